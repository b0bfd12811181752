"""Landmarks as averages of neighbouring tokens.

B batch, H heads, N tokens in raster order of a grid, E head width, C landmarks.
"""

from collections.abc import Callable, Sequence
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

GRID_POOLS: dict[int, Callable[..., Tensor]] = {2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}


def segment_means(x_BHNE: Tensor, num_segments: int) -> Tensor:
    """Means over contiguous segments whose lengths differ by at most one token, the shorter ones first."""
    N = x_BHNE.shape[-2]
    C = min(num_segments, N)
    length, num_longer = N // C, N % C
    if num_longer == 0:
        return x_BHNE.unflatten(-2, (C, length)).mean(dim=-2)
    num_shorter = C - num_longer
    shorter, longer = x_BHNE.tensor_split((num_shorter * length,), dim=-2)
    return torch.cat([segment_means(shorter, num_shorter), segment_means(longer, num_longer)], dim=-2)


def grid_means(x_BHNE: Tensor, grid: Sequence[int], size: Sequence[int]) -> Tensor:
    """Adaptive average pooling of tokens on a grid, (rows, columns) or (frames, rows, columns), to `size` landmarks."""
    B, H, N, E = x_BHNE.shape
    assert N == prod(grid), f"{N} tokens do not fill a grid of {tuple(grid)}"
    x = x_BHNE.reshape(B * H, *grid, E).movedim(-1, 1)
    return GRID_POOLS[len(grid)](x, tuple(size)).flatten(2).transpose(1, 2).view(B, H, prod(size), E)
