"""Softmax attention, the quadratic twin.

Shapes: B batch, H heads, N queries, M keys, E head width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from fixformer.ops.precision import accumulate_in_float32


def softmax_attention(q_BHNE: Tensor, k_BHME: Tensor, v_BHME: Tensor) -> Tensor:
    """softmax(q kᵀ / √E) v, fused (PyTorch's SDPA)."""
    return F.scaled_dot_product_attention(q_BHNE, k_BHME, v_BHME)


def softmax_attention_matrix(q_BHNE: Tensor, k_BHME: Tensor) -> Tensor:
    """The attention matrix `[B, H, N, M]`, rows sum to one."""
    return (q_BHNE @ k_BHME.mT * q_BHNE.shape[-1] ** -0.5).softmax(-1)


@accumulate_in_float32
def softmax_attention_reference(q_BHNE: Tensor, k_BHME: Tensor, v_BHME: Tensor) -> Tensor:
    """Eq. 1, query by query: y_i = Σ_j exp(q_i · k_j / √E) v_j / Σ_j exp(q_i · k_j / √E)."""
    y = []
    for i in range(q_BHNE.shape[2]):
        score_BHM1 = (q_BHNE[:, :, i : i + 1] * k_BHME).sum(-1, keepdim=True) / q_BHNE.shape[-1] ** 0.5
        weight_BHM1 = torch.exp(score_BHM1 - score_BHM1.amax(2, keepdim=True))  # the largest cancels; exp stays finite
        y.append((weight_BHM1 * v_BHME).sum(2) / weight_BHM1.sum(2))
    return torch.stack(y, dim=2)
