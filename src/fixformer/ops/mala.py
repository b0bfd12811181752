"""MALA, magnitude-aware linear attention (Fan et al., ICCV 2025), on features φ(q), φ(k) of elu + 1.

In linear attention the length of φ(q) cancels; here a longer query attends more sharply. With s = E^-½ and z_i the mean
over all keys of s φ(q_i)·φ(k_j), the weights are (s/M) φ(q_i)·φ(k_j) (1 + 1/z_i) - z_i/M: their sum is one, some are
negative.

Shapes: B batch, H heads, N queries, M keys, E head width.
"""

import torch
from torch import Tensor

from fixformer.ops.linear_attention import EPS, ProductOrder, weighted_sums
from fixformer.ops.precision import accumulate_in_float32


@accumulate_in_float32
def mala_attention(
    q_BHNE: Tensor, k_BHME: Tensor, v_BHME: Tensor, eps: float = EPS, product_order: ProductOrder = "auto"
) -> Tensor:
    """y_i = v̄ + (s/M + 1 / (φ(q_i)·Σ_j φ(k_j) + eps)) Σ_j (φ(q_i)·φ(k_j)) (v_j - v̄), in O(N) for many tokens.

    The definition, with the mean value v̄ taken out of every sum: the large terms that would cancel never appear, and
    where all features vanish, as those of elu + 1 do below -17 in float32, the mean value remains.
    """
    mean_BH1E = v_BHME.mean(-2, keepdim=True)
    sums_BHNE = weighted_sums(q_BHNE, k_BHME, v_BHME - mean_BH1E, product_order)
    # A product and a sum, not a matrix product: normalisation is not counted as FLOPs, as in linear attention.
    norm_BHN1 = (q_BHNE * k_BHME.sum(-2, keepdim=True)).sum(-1, keepdim=True)
    by_magnitude = q_BHNE.shape[-1] ** -0.5 / k_BHME.shape[-2]
    return mean_BH1E + (by_magnitude + 1 / (norm_BHN1 + eps)) * sums_BHNE


def mala_attention_matrix(q_BHNE: Tensor, k_BHME: Tensor, eps: float = EPS) -> Tensor:
    """The attention matrix that MALA implies: `[B, H, N, M]`, rows sum to one."""
    products_BHNM = q_BHNE @ k_BHME.mT
    norm_BHN1 = products_BHNM.sum(-1, keepdim=True)
    deviations_BHNM = products_BHNM - products_BHNM.mean(-1, keepdim=True)
    by_magnitude = q_BHNE.shape[-1] ** -0.5 / k_BHME.shape[-2]
    return 1 / k_BHME.shape[-2] + (by_magnitude + 1 / (norm_BHN1 + eps)) * deviations_BHNM


@accumulate_in_float32
def mala_attention_reference(q_BHNE: Tensor, k_BHME: Tensor, v_BHME: Tensor, eps: float = EPS) -> Tensor:
    """The definition, query by query. `eps` is shared by the M keys in the part that is divided by z_i."""
    M, scale = k_BHME.shape[2], q_BHNE.shape[3] ** -0.5
    y = []
    for i in range(q_BHNE.shape[2]):
        product_BHM1 = (q_BHNE[:, :, i : i + 1] * k_BHME).sum(-1, keepdim=True)
        z_BH11 = scale * product_BHM1.sum(2, keepdim=True) / M
        by_magnitude_BHM1 = scale / M * product_BHM1 - z_BH11 / M
        normalised_BHM1 = (scale * product_BHM1 + scale * eps / M) / (M * z_BH11 + scale * eps)
        y.append(((by_magnitude_BHM1 + normalised_BHM1) * v_BHME).sum(2))
    return torch.stack(y, dim=2)
