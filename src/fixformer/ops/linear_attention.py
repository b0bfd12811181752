"""Linear attention, Eq. 3 of the paper, on features φ(q), φ(k) that a kernel has already made non-negative.

Shapes: B batch, H heads, N queries, M keys, E head width.
"""

from typing import Literal

from torch import Tensor

from fixformer.ops.precision import accumulate_in_float32

EPS = 1e-6
Association = Literal["auto", "keys_values", "queries_keys"]


def cheaper_association(queries: int, keys: int, width: int) -> Association:
    """The order of the two products with fewer multiplications: quadratic wins below `width` tokens."""
    keys_values = (queries + keys) * width * width
    queries_keys = 2 * queries * keys * width
    return "keys_values" if keys_values <= queries_keys else "queries_keys"


@accumulate_in_float32
def linear_attention(
    q_BHNE: Tensor, k_BHME: Tensor, v_BHME: Tensor, eps: float = EPS, association: Association = "auto"
) -> Tensor:
    """y_i = φ(q_i) Σ_j φ(k_j)ᵀ v_j / (φ(q_i) · Σ_j φ(k_j) + eps), in O(N) for many tokens.

    `association` forces one order of the products; "auto" takes the cheaper one.
    """
    if association == "auto":
        association = cheaper_association(q_BHNE.shape[-2], k_BHME.shape[-2], q_BHNE.shape[-1])
    attend = _keys_values_first if association == "keys_values" else _queries_keys_first
    return attend(q_BHNE, k_BHME, v_BHME, eps)


def _keys_values_first(q_BHNE: Tensor, k_BHME: Tensor, v_BHME: Tensor, eps: float) -> Tensor:
    y_BHNE = q_BHNE @ (k_BHME.mT @ v_BHME)
    # A product and a sum, not a matrix product: the papers' FLOPs leave normalisation out, and so does a counter.
    norm_BHN1 = (q_BHNE * k_BHME.sum(-2, keepdim=True)).sum(-1, keepdim=True)
    return y_BHNE / (norm_BHN1 + eps)


def _queries_keys_first(q_BHNE: Tensor, k_BHME: Tensor, v_BHME: Tensor, eps: float) -> Tensor:
    return linear_attention_matrix(q_BHNE, k_BHME, eps) @ v_BHME


def linear_attention_matrix(q_BHNE: Tensor, k_BHME: Tensor, eps: float = EPS) -> Tensor:
    """The attention matrix that linear attention implies but never forms: `[B, H, N, M]`, rows sum to one."""
    weights_BHNM = q_BHNE @ k_BHME.mT
    return weights_BHNM / (weights_BHNM.sum(-1, keepdim=True) + eps)


@accumulate_in_float32
def linear_attention_reference(q_BHNE: Tensor, k_BHME: Tensor, v_BHME: Tensor, eps: float = EPS) -> Tensor:
    """The definition: a weighted mean of the values with explicit weights, O(N²)."""
    return linear_attention_matrix(q_BHNE, k_BHME, eps) @ v_BHME
