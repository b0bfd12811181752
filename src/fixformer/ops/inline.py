"""InLine attention (Han et al., NeurIPS 2024): linear attention normalised by a difference, with no kernel.

With s = E^-½ the weights are (s/M) q_i·k_j + (1 - s q_i·k̄)/M: their sum is one for any query and key, so nothing has to
be positive; some weights are negative.

Shapes: B batch, H heads, N queries, M keys, E head width.
"""

import torch
from torch import Tensor

from fixformer.ops.linear_attention import ProductOrder, weighted_sums
from fixformer.ops.precision import accumulate_in_float32


@accumulate_in_float32
def inline_attention(q_BHNE: Tensor, k_BHME: Tensor, v_BHME: Tensor, product_order: ProductOrder = "auto") -> Tensor:
    """y_i = v̄ + (s/M) Σ_j (q_i·k_j) (v_j - v̄), in O(N) for many tokens.

    The definition with the mean value v̄ taken out of the sum, so that no large terms cancel.
    """
    mean_BH1E = v_BHME.mean(-2, keepdim=True)
    sums_BHNE = weighted_sums(q_BHNE, k_BHME, v_BHME - mean_BH1E, product_order)
    return mean_BH1E + q_BHNE.shape[-1] ** -0.5 / k_BHME.shape[-2] * sums_BHNE


def inline_attention_matrix(q_BHNE: Tensor, k_BHME: Tensor) -> Tensor:
    """The attention matrix that InLine attention implies: `[B, H, N, M]`, rows sum to one."""
    scores_BHNM = q_BHNE @ k_BHME.mT * q_BHNE.shape[-1] ** -0.5
    return (1 + scores_BHNM - scores_BHNM.mean(-1, keepdim=True)) / k_BHME.shape[-2]


@accumulate_in_float32
def inline_attention_reference(q_BHNE: Tensor, k_BHME: Tensor, v_BHME: Tensor) -> Tensor:
    """The definition, query by query: y_i = (s/M) Σ_j (q_i·k_j) v_j + (1 - s q_i·k̄) v̄."""
    M, scale = k_BHME.shape[2], q_BHNE.shape[3] ** -0.5
    k_mean_BHE, v_mean_BHE = k_BHME.sum(2) / M, v_BHME.sum(2) / M
    y = []
    for i in range(q_BHNE.shape[2]):
        q_BHE = q_BHNE[:, :, i]
        score_BHM1 = scale * torch.einsum("bhe,bhme->bhm", q_BHE, k_BHME)[..., None]
        rest_BH1 = 1 - scale * (q_BHE * k_mean_BHE).sum(-1, keepdim=True)
        y.append((score_BHM1 * v_BHME).sum(2) / M + rest_BH1 * v_mean_BHE)
    return torch.stack(y, dim=2)
