"""Polarity-aware linear attention (PolaFormer; Meng et al., ICLR 2025): no sign of query and key is lost.

The features of x are [relu(x)^p, relu(-x)^p], with a power p >= 1 of each head and channel that makes weights more
concentrated. For the first half of the value channels (the larger, if their number is odd) channels of the same sign
meet, q+·k+ + q-·k-; for the second half those of opposite signs, q+·k- + q-·k+.

In a fresh network the third power of a query or key is less than any eps that could be added to a denominator. So
features are divided by the largest one, of each query and of all keys of a head, which cancels in the weights.

Shapes: B batch, H heads, N queries, M keys, E head width, F = 2E features.
"""

import torch
from torch import Tensor

from fixformer.ops.linear_attention import (
    EPS,
    ProductOrder,
    cheaper_product_order,
    linear_attention,
    linear_attention_matrix,
)
from fixformer.ops.precision import accumulate_in_float32

# Largest features below it are taken for zero. Its inverse must not overflow in the gradient, where it meets 1 / eps.
LEAST_LARGEST = 1e-20


def polar_features(x_BHNE: Tensor, power_HE: Tensor, largest_over: tuple[int, ...] = ()) -> Tensor:
    """[relu(x)^p, relu(-x)^p] `[B, H, N, F]`. At zero the gradients of x and of p are zero.

    With `largest_over` the features are divided by the largest one over these axes.
    """
    magnitude_BHNE = x_BHNE.abs() ** power_HE.unsqueeze(-2)  # one power for both signs: it is most of the cost
    if largest_over:
        # The divisors cancel in the attention up to eps, hence constants for the gradient.
        largest = magnitude_BHNE.detach().amax(largest_over, keepdim=True)
        magnitude_BHNE = magnitude_BHNE / largest.clamp_min(LEAST_LARGEST)
    zero = torch.zeros_like(magnitude_BHNE)
    return torch.cat([magnitude_BHNE.where(x_BHNE > 0, zero), magnitude_BHNE.where(x_BHNE < 0, zero)], dim=-1)


def same_sign_channels(width: int) -> int:
    """How many of the value channels, the first ones, meet features of the same sign."""
    return (width + 1) // 2


@accumulate_in_float32
def polar_attention(
    q_BHNE: Tensor,
    k_BHME: Tensor,
    v_BHME: Tensor,
    power_HE: Tensor,
    eps: float = EPS,
    product_order: ProductOrder = "auto",
) -> Tensor:
    """Linear attention of each half of the value channels, given queries and keys before any kernel."""
    N, E = q_BHNE.shape[-2:]
    half = same_sign_channels(E)
    if product_order == "auto":
        product_order = cheaper_product_order(N, k_BHME.shape[-2], 2 * E, half)
    q_BHNF, k_BHMF = polar_features(q_BHNE, power_HE, (-1,)), polar_features(k_BHME, power_HE, (-2, -1))
    same = linear_attention(q_BHNF, k_BHMF, v_BHME[..., :half], eps, product_order)
    opposite = linear_attention(_swap_signs(q_BHNF), k_BHMF, v_BHME[..., half:], eps, product_order)
    return torch.cat([same, opposite], dim=-1)


def _swap_signs(x_BHNF: Tensor) -> Tensor:
    return torch.cat(x_BHNF.chunk(2, dim=-1)[::-1], dim=-1)


def polar_attention_matrices(
    q_BHNE: Tensor, k_BHME: Tensor, power_HE: Tensor, eps: float = EPS
) -> tuple[Tensor, Tensor]:
    """The matrices `[B, H, N, M]` of the first and of the second half of the value channels; rows sum to one."""
    q_BHNF, k_BHMF = polar_features(q_BHNE, power_HE, (-1,)), polar_features(k_BHME, power_HE, (-2, -1))
    opposite_BHNM = linear_attention_matrix(_swap_signs(q_BHNF), k_BHMF, eps)
    return linear_attention_matrix(q_BHNF, k_BHMF, eps), opposite_BHNM


@accumulate_in_float32
def polar_attention_reference(
    q_BHNE: Tensor, k_BHME: Tensor, v_BHME: Tensor, power_HE: Tensor, eps: float = EPS
) -> Tensor:
    """The definition, query by query and channel by channel of the values. Largest features are the unit of `eps`."""
    power_H1E = power_HE[:, None]
    q_plus, q_minus = torch.relu(q_BHNE) ** power_H1E, torch.relu(-q_BHNE) ** power_H1E
    k_plus, k_minus = torch.relu(k_BHME) ** power_H1E, torch.relu(-k_BHME) ** power_H1E
    k_largest_BH1 = torch.maximum(k_plus, k_minus).detach().flatten(2).max(-1, keepdim=True)[0]
    rows = []
    for i in range(q_BHNE.shape[2]):
        of_query = (q_plus[:, :, i : i + 1], q_minus[:, :, i : i + 1])
        same_BHM = (of_query[0] * k_plus + of_query[1] * k_minus).sum(-1)
        opposite_BHM = (of_query[0] * k_minus + of_query[1] * k_plus).sum(-1)
        q_largest_BH1 = torch.maximum(*of_query).detach().flatten(2).max(-1, keepdim=True)[0]
        least_BH = (eps * q_largest_BH1 * k_largest_BH1).squeeze(-1)
        channels = []
        for e in range(v_BHME.shape[3]):
            weight_BHM = same_BHM if 2 * e < v_BHME.shape[3] else opposite_BHM
            channels.append((weight_BHM * v_BHME[..., e]).sum(-1) / (weight_BHM.sum(-1) + least_BH))
        rows.append(torch.stack(channels, dim=-1))
    return torch.stack(rows, dim=2)
