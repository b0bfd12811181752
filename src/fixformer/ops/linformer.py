"""Linformer: keys and values are projected along the sequence onto a few slots, then softmax attention.

B batch, H heads, N queries, M keys, E head width, R slots.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from fixformer.errors import InputError
from fixformer.ops.precision import accumulate_in_float32


def linformer_attention(
    q_BHNE: Tensor, k_BHME: Tensor, v_BHME: Tensor, key_projection_MR: Tensor, value_projection_MR: Tensor
) -> Tensor:
    """softmax(q (Eᵀ k)ᵀ / √E) (Fᵀ v); a sequence shorter than the projections uses their first rows."""
    k_BHRE = _project_sequence(k_BHME, key_projection_MR)
    v_BHRE = _project_sequence(v_BHME, value_projection_MR)
    return F.scaled_dot_product_attention(q_BHNE, k_BHRE, v_BHRE)


@accumulate_in_float32
def _project_sequence(x_BHME: Tensor, projection_MR: Tensor) -> Tensor:
    M, longest = x_BHME.shape[-2], projection_MR.shape[0]
    if longest < M:
        raise InputError(f"Linformer's projections cover {longest} tokens, not {M}; interpolate them to {M} rows first")
    return projection_MR[:M].mT @ x_BHME


def resize_projection(projection_MR: Tensor, grid: tuple[int, int], new_grid: tuple[int, int]) -> Tensor:
    """A projection for another number of tokens, interpolated over their (rows, columns); `(M, 1)` for a sequence.

    Rows are rescaled so that a constant sequence keeps its projection.
    """
    assert grid[0] * grid[1] == projection_MR.shape[0], f"{projection_MR.shape[0]} rows do not fill a grid of {grid}"
    rows, columns = (
        _interpolation(old, new, projection_MR) * (old / new) for old, new in zip(grid, new_grid, strict=True)
    )
    return torch.einsum("ah,bw,hwr->abr", rows, columns, projection_MR.unflatten(0, grid)).flatten(0, 1)


def _interpolation(old: int, new: int, like: Tensor) -> Tensor:
    """Linear interpolation `[new, old]` between pixel centres, over a wider neighbourhood when it makes smaller.

    Torch's own, with antialias=True, returns wrong numbers on the CPU for a grid one column wide (seen in 2.13).
    """
    centres = (torch.arange(new, dtype=like.dtype, device=like.device) + 0.5) * (old / new) - 0.5
    distance = (centres.unsqueeze(1) - torch.arange(old, dtype=like.dtype, device=like.device)).abs()
    weights = (1 - distance / max(old / new, 1.0)).clamp_min(0)
    return weights / weights.sum(1, keepdim=True)


@accumulate_in_float32
def linformer_attention_reference(
    q_BHNE: Tensor, k_BHME: Tensor, v_BHME: Tensor, key_projection_MR: Tensor, value_projection_MR: Tensor
) -> Tensor:
    """The definition, with the attention map written out."""
    M, E = k_BHME.shape[-2:]
    k_BHRE = torch.einsum("mr,bhme->bhre", key_projection_MR[:M], k_BHME)
    v_BHRE = torch.einsum("mr,bhme->bhre", value_projection_MR[:M], v_BHME)
    weights_BHNR = torch.softmax(torch.einsum("bhne,bhre->bhnr", q_BHNE, k_BHRE) / E**0.5, dim=-1)
    return torch.einsum("bhnr,bhre->bhne", weights_BHNR, v_BHRE)
