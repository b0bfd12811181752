"""Rank-augmented linear attention (RALA; Fan et al., CVPR 2025) on features φ(q), φ(k) that a kernel has made.

Not the paper's "RALA", which is LARA (`ops/lara.py`). Before linear attention, key j is multiplied by
M softmax_j(s φ(q)̄·φ(k_j)), s = E^-½. Keys that resemble the mean query count more, so that Σ_j φ(k_j)ᵀ v_j is less of
an average and has a higher rank.

Shapes: B batch, H heads, N queries, M keys, E head width.
"""

import torch
from torch import Tensor

from fixformer.ops.linear_attention import EPS, ProductOrder, linear_attention, linear_attention_matrix
from fixformer.ops.precision import accumulate_in_float32


@accumulate_in_float32
def rank_attention(
    q_BHNE: Tensor, k_BHME: Tensor, v_BHME: Tensor, eps: float = EPS, product_order: ProductOrder = "auto"
) -> Tensor:
    """Linear attention with weighted keys."""
    return linear_attention(q_BHNE, weigh_keys(q_BHNE, k_BHME), v_BHME, eps, product_order)


def weigh_keys(q_BHNE: Tensor, k_BHME: Tensor) -> Tensor:
    """Every key times M softmax_j(s q̄·k_j); the mean of these weights is one."""
    scores_BH1M = q_BHNE.mean(-2, keepdim=True) @ k_BHME.mT * q_BHNE.shape[-1] ** -0.5
    return k_BHME * (scores_BH1M.softmax(-1).mT * k_BHME.shape[-2])


def rank_attention_matrix(q_BHNE: Tensor, k_BHME: Tensor, eps: float = EPS) -> Tensor:
    """The attention matrix that is implied: `[B, H, N, M]`, rows sum to one."""
    return linear_attention_matrix(q_BHNE, weigh_keys(q_BHNE, k_BHME), eps)


@accumulate_in_float32
def rank_attention_reference(q_BHNE: Tensor, k_BHME: Tensor, v_BHME: Tensor, eps: float = EPS) -> Tensor:
    """The definition, query by query: weights α_j φ(q_i)·φ(k_j) over their sum."""
    N, M, width = q_BHNE.shape[2], k_BHME.shape[2], q_BHNE.shape[3]
    score_BHM = torch.einsum("bhne,bhme->bhm", q_BHNE, k_BHME) / (N * width**0.5)
    exponential_BHM = torch.exp(score_BHM - score_BHM.amax(-1, keepdim=True))
    alpha_BHM = M * exponential_BHM / exponential_BHM.sum(-1, keepdim=True)
    y = []
    for i in range(N):
        weight_BHM = alpha_BHM * torch.einsum("bhe,bhme->bhm", q_BHNE[:, :, i], k_BHME)
        total_BH1 = weight_BHM.sum(-1, keepdim=True) + eps
        y.append(torch.einsum("bhm,bhme->bhe", weight_BHM, v_BHME) / total_BH1)
    return torch.stack(y, dim=2)
