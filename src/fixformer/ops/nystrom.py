"""Nyström attention: softmax attention rebuilt from segment means of queries and keys.

B batch, H heads, N queries, M keys, E head width, R landmarks.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from fixformer.ops.pooling import segment_means
from fixformer.ops.precision import accumulate_in_float32
from fixformer.ops.softmax_attention import softmax_attention, softmax_attention_matrix, softmax_attention_reference

ITERATIONS = 6  # as in the authors' code


def nystrom_attention(
    q_BHNE: Tensor,
    k_BHME: Tensor,
    v_BHME: Tensor,
    num_landmarks: int,
    iterations: int = ITERATIONS,
    per_matrix_start: bool = True,
) -> Tensor:
    """softmax(q k̄ᵀ) softmax(q̄ k̄ᵀ)⁺ softmax(q̄ kᵀ) v; softmax attention if there are no more tokens than landmarks."""
    if num_landmarks >= min(q_BHNE.shape[-2], k_BHME.shape[-2]):
        return softmax_attention(q_BHNE, k_BHME, v_BHME)
    q_BHRE, k_BHRE = (_landmarks(x, num_landmarks) for x in (q_BHNE, k_BHME))
    summary_BHRE = F.scaled_dot_product_attention(q_BHRE, k_BHME, v_BHME)
    corrected_BHRE = _solve(q_BHRE, k_BHRE, summary_BHRE, iterations, per_matrix_start)
    return F.scaled_dot_product_attention(q_BHNE, k_BHRE, corrected_BHRE)


@accumulate_in_float32
def _landmarks(x_BHNE: Tensor, num_landmarks: int) -> Tensor:
    return segment_means(x_BHNE, num_landmarks)


@accumulate_in_float32
def _solve(q_BHRE: Tensor, k_BHRE: Tensor, x_BHRE: Tensor, iterations: int, per_matrix_start: bool) -> Tensor:
    return iterative_pinv(softmax_attention_matrix(q_BHRE, k_BHRE), iterations, per_matrix_start) @ x_BHRE


def iterative_pinv(a_BHRR: Tensor, iterations: int = ITERATIONS, per_matrix_start: bool = True) -> Tensor:
    """Pseudo-inverse of row-stochastic matrices, approximate after a few iterations.

    The start is aᵀ over the largest column sum: of each matrix, or of all of them as in the original code, where
    the result for one video then depends on the others in its batch.
    """
    columns_BHR = a_BHRR.sum(dim=-2)
    largest = columns_BHR.amax(-1)[..., None, None] if per_matrix_start else columns_BHR.amax()
    z_BHRR = a_BHRR.mT / largest
    eye_RR = torch.eye(a_BHRR.shape[-1], dtype=a_BHRR.dtype, device=a_BHRR.device)
    for _ in range(iterations):
        az_BHRR = a_BHRR @ z_BHRR
        z_BHRR = z_BHRR @ (13 * eye_RR - az_BHRR @ (15 * eye_RR - az_BHRR @ (7 * eye_RR - az_BHRR))) / 4
    return z_BHRR


@accumulate_in_float32
def nystrom_attention_reference(
    q_BHNE: Tensor,
    k_BHME: Tensor,
    v_BHME: Tensor,
    num_landmarks: int,
    iterations: int = ITERATIONS,
    per_matrix_start: bool = True,
) -> Tensor:
    """The definition, with the full attention map written out.

    It shares `iterative_pinv`, which is part of the definition and is tested against the exact pseudo-inverse.
    """
    if num_landmarks >= min(q_BHNE.shape[-2], k_BHME.shape[-2]):
        return softmax_attention_reference(q_BHNE, k_BHME, v_BHME)

    def softmax_map(a: Tensor, b: Tensor) -> Tensor:
        return torch.softmax(torch.einsum("bhie,bhje->bhij", a, b) / a.shape[-1] ** 0.5, dim=-1)

    q_BHRE, k_BHRE = (_landmarks_reference(x, num_landmarks) for x in (q_BHNE, k_BHME))
    inverse_BHRR = iterative_pinv(softmax_map(q_BHRE, k_BHRE), iterations, per_matrix_start)
    weights_BHNM = softmax_map(q_BHNE, k_BHRE) @ inverse_BHRR @ softmax_map(q_BHRE, k_BHME)
    return weights_BHNM @ v_BHME


def _landmarks_reference(x_BHNE: Tensor, num_landmarks: int) -> Tensor:
    N = x_BHNE.shape[-2]
    length = N // num_landmarks
    ends, end = [], 0
    for c in range(num_landmarks):
        end += length if c < (length + 1) * num_landmarks - N else length + 1
        ends.append(end)
    return torch.stack([x_BHNE[..., a:b, :].mean(-2) for a, b in zip([0, *ends], ends, strict=False)], dim=-2)
