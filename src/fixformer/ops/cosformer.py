"""cosFormer: ReLU linear attention whose weights fade with the distance between query and key, by a cosine.

B batch, H heads, N queries, M keys, E head width. Positions are indices in the sequence (raster order in a frame).
"""

from math import pi

import torch
import torch.nn.functional as F
from torch import Tensor

from fixformer.ops.linear_attention import ProductOrder, cheaper_product_order
from fixformer.ops.precision import accumulate_in_float32

# As in the authors' code: a query without a positive entry has weights of zero, and then an output of zero.
SMALLEST_DENOMINATOR = 1e-6


@accumulate_in_float32
def cosformer_attention(q_BHNE: Tensor, k_BHME: Tensor, v_BHME: Tensor, product_order: ProductOrder = "auto") -> Tensor:
    """Weights relu(q_i)·relu(k_j) cos(π/2 (i-j)/max(N, M)), normalised; a query without a positive entry gives 0.

    `product_order` forces one order of the products; "auto" takes the cheaper one.
    """
    if product_order == "auto":
        product_order = cheaper_product_order(q_BHNE.shape[-2], k_BHME.shape[-2], q_BHNE.shape[-1])
    multiply = _keys_values_first if product_order == "keys_values" else _queries_keys_first
    return multiply(q_BHNE.relu(), k_BHME.relu(), v_BHME)


def _keys_values_first(q_BHNE: Tensor, k_BHME: Tensor, v_BHME: Tensor) -> Tensor:
    """cos(a - b) = sin a sin b + cos a cos b, hence features twice as wide."""
    longest = max(q_BHNE.shape[-2], k_BHME.shape[-2])
    q_BHND, k_BHMD = _turn(q_BHNE, longest), _turn(k_BHME, longest)
    y_BHNE = q_BHND @ (k_BHMD.mT @ v_BHME)
    norm_BHN1 = (q_BHND * k_BHMD.sum(-2, keepdim=True)).sum(-1, keepdim=True)
    return y_BHNE / norm_BHN1.clamp_min(SMALLEST_DENOMINATOR)


def _turn(x_BHNE: Tensor, longest: int) -> Tensor:
    """Every channel times the sine and the cosine of the token's position: `[B, H, N, 2·E]`."""
    angle_N = _angles(x_BHNE, longest)
    phase_N21 = torch.stack([angle_N.sin(), angle_N.cos()], dim=-1).unsqueeze(-1)
    return (x_BHNE.unsqueeze(-2) * phase_N21).flatten(-2)


def _angles(x_BHNE: Tensor, longest: int) -> Tensor:
    return torch.arange(x_BHNE.shape[-2], dtype=x_BHNE.dtype, device=x_BHNE.device) * (pi / (2 * longest))


def _queries_keys_first(q_BHNE: Tensor, k_BHME: Tensor, v_BHME: Tensor) -> Tensor:
    longest = max(q_BHNE.shape[-2], k_BHME.shape[-2])
    distance_NM = _angles(q_BHNE, longest).unsqueeze(1) - _angles(k_BHME, longest)
    weights_BHNM = q_BHNE @ k_BHME.mT * distance_NM.cos()
    return weights_BHNM @ v_BHME / weights_BHNM.sum(-1, keepdim=True).clamp_min(SMALLEST_DENOMINATOR)


@accumulate_in_float32
def cosformer_attention_reference(q_BHNE: Tensor, k_BHME: Tensor, v_BHME: Tensor) -> Tensor:
    """The definition, query by query."""
    N, M = q_BHNE.shape[-2], k_BHME.shape[-2]
    j_M = torch.arange(M, dtype=q_BHNE.dtype, device=q_BHNE.device)
    rows = []
    for i in range(N):
        similarity_BHM = torch.einsum("bhe,bhme->bhm", F.relu(q_BHNE[:, :, i]), F.relu(k_BHME))
        weights_BHM = similarity_BHM * torch.cos(pi / 2 * (i - j_M) / max(N, M))
        total_BH1 = weights_BHM.sum(-1, keepdim=True).clamp(min=SMALLEST_DENOMINATOR)
        rows.append(torch.einsum("bhm,bhme->bhe", weights_BHM, v_BHME) / total_BH1)
    return torch.stack(rows, dim=2)
