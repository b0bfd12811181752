"""Linear attention, Eq. 3 of the paper, on features φ(q), φ(k) that a kernel has already made non-negative.

Shapes: B batch, H heads, N queries, M keys, E head width.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from fixformer.errors import UnknownName
from fixformer.ops.precision import accumulate_in_float32

# Added to every denominator, as in the released code, for kernels that can be zero.
EPS = 1e-6
# Which of the two matrix products comes first: φ(k)ᵀ v, linear in the number of tokens, or φ(q) φ(k)ᵀ, quadratic.
ProductOrder = Literal["auto", "keys_values", "queries_keys"]
PRODUCT_ORDERS = get_args(ProductOrder)


def cheaper_product_order(queries: int, keys: int, width: int, values: int | None = None) -> ProductOrder:
    """The order of the two products with fewer multiplications: quadratic wins below `width` tokens.

    `values` is the width of the values where it differs from that of the features.
    """
    values = width if values is None else values
    keys_values = (queries + keys) * width * values
    queries_keys = queries * keys * (width + values)
    return "keys_values" if keys_values <= queries_keys else "queries_keys"


def resolve_product_order(order: ProductOrder, q_BHNE: Tensor, k_BHME: Tensor) -> ProductOrder:
    """The order itself, or the cheaper one for "auto"."""
    if order not in PRODUCT_ORDERS:
        raise UnknownName("product_order", order, PRODUCT_ORDERS)
    if order != "auto":
        return order
    return cheaper_product_order(q_BHNE.shape[-2], k_BHME.shape[-2], q_BHNE.shape[-1])


@accumulate_in_float32
def linear_attention(
    q_BHNE: Tensor, k_BHME: Tensor, v_BHME: Tensor, eps: float = EPS, product_order: ProductOrder = "auto"
) -> Tensor:
    """y_i = φ(q_i) Σ_j φ(k_j)ᵀ v_j / (φ(q_i) · Σ_j φ(k_j) + eps), in O(N) for many tokens.

    `product_order` forces one order of the products; "auto" takes the cheaper one.
    """
    if resolve_product_order(product_order, q_BHNE, k_BHME) == "queries_keys":
        return linear_attention_matrix(q_BHNE, k_BHME, eps) @ v_BHME
    y_BHNE = q_BHNE @ (k_BHME.mT @ v_BHME)
    # A product and a sum, not a matrix product: the papers' FLOPs leave normalisation out, and so does a counter.
    norm_BHN1 = (q_BHNE * k_BHME.sum(-2, keepdim=True)).sum(-1, keepdim=True)
    return y_BHNE / (norm_BHN1 + eps)


def linear_attention_matrix(q_BHNE: Tensor, k_BHME: Tensor, eps: float = EPS) -> Tensor:
    """The attention matrix that linear attention implies but never forms: `[B, H, N, M]`, rows sum to one."""
    weights_BHNM = q_BHNE @ k_BHME.mT
    return weights_BHNM / (weights_BHNM.sum(-1, keepdim=True) + eps)


def weighted_sums(q_BHNE: Tensor, k_BHME: Tensor, v_BHME: Tensor, product_order: ProductOrder = "auto") -> Tensor:
    """Σ_j (q_i · k_j) v_j, not normalised. For operators that normalise in another way."""
    if resolve_product_order(product_order, q_BHNE, k_BHME) == "queries_keys":
        return q_BHNE @ k_BHME.mT @ v_BHME
    return q_BHNE @ (k_BHME.mT @ v_BHME)


Gradients = tuple[Tensor, Tensor, Tensor]


def linear_attention_gradients(
    q_BHNE: Tensor,
    k_BHME: Tensor,
    v_BHME: Tensor,
    y_BHNE: Tensor,
    g_BHNE: Tensor,
    eps: float = EPS,
    product_order: ProductOrder = "auto",
) -> Gradients:
    """The gradients of q, k and v, from what `linear_attention` returned and its gradient; sums are made again."""
    order = resolve_product_order(product_order, q_BHNE, k_BHME)
    function = _gradients_by_matrix if order == "queries_keys" else _gradients_by_sums
    return function(q_BHNE, k_BHME, v_BHME, y_BHNE, g_BHNE, eps)


def _gradients_by_matrix(q: Tensor, k: Tensor, v: Tensor, y: Tensor, g: Tensor, eps: float) -> Gradients:
    weights_BHNM = q @ k.mT
    norm_BHN1 = weights_BHNM.sum(-1, keepdim=True).add_(eps)
    g_v = weights_BHNM.div_(norm_BHN1).mT @ g
    # through the division: what every weight adds to y, less what it adds to the norm
    g_weights_BHNM = (g @ v.mT).sub_((g * y).sum(-1, keepdim=True)).div_(norm_BHN1)
    return g_weights_BHNM @ k, g_weights_BHNM.mT @ q, g_v


def _gradients_by_sums(q: Tensor, k: Tensor, v: Tensor, y: Tensor, g: Tensor, eps: float) -> Gradients:
    sum_BH1E = k.sum(-2, keepdim=True)
    g_y_BHNE = g / (q * sum_BH1E).sum(-1, keepdim=True).add_(eps)
    g_norm_BHN1 = (g_y_BHNE * y).sum(-1, keepdim=True).neg_()
    g_product_BHEE = q.mT @ g_y_BHNE
    g_q = (g_y_BHNE @ (v.mT @ k)).addcmul_(g_norm_BHN1, sum_BH1E)
    g_k = (v @ g_product_BHEE.mT).add_(g_norm_BHN1.mT @ q)
    return g_q, g_k, k @ g_product_BHEE


@accumulate_in_float32
def linear_attention_reference(q_BHNE: Tensor, k_BHME: Tensor, v_BHME: Tensor, eps: float = EPS) -> Tensor:
    """Eq. 3, query by query: y_i = Σ_j (φ(q_i) · φ(k_j)) v_j / (Σ_j φ(q_i) · φ(k_j) + eps)."""
    y = []
    for i in range(q_BHNE.shape[2]):
        weight_BHM1 = (q_BHNE[:, :, i : i + 1] * k_BHME).sum(-1, keepdim=True)  # φ(q_i) · φ(k_j) for all j
        y.append((weight_BHM1 * v_BHME).sum(2) / (weight_BHM1.sum(2) + eps))
    return torch.stack(y, dim=2)
