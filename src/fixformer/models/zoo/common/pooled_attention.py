"""Attention whose queries, keys and values are pooled on the grid of tokens (MViT).

Shapes: B batch, H heads, N tokens (the class token, then the grid in raster order), E head width, C channels.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Grid = tuple[int, int, int]
NORM_EPS = 1e-6


def pool_tokens(x_BHNE: Tensor, grid: Grid, pool: Callable[[Tensor], Tensor]) -> tuple[Tensor, Grid]:
    """Apply `pool` to the grid of every head; the class token is left as it is."""
    B, H, _, E = x_BHNE.shape
    token, patches = x_BHNE[:, :, :1], x_BHNE[:, :, 1:]
    volume = patches.reshape(B * H, *grid, E).movedim(-1, 1)
    pooled = pool(volume)
    T, Y, X = pooled.shape[2:]
    patches = pooled.flatten(2).transpose(1, 2).reshape(B, H, T * Y * X, E)
    return torch.cat([token, patches], dim=2), (T, Y, X)


class TokenPool(nn.Module):
    """A depth-wise convolution shared by the heads, and a LayerNorm that also acts on the class token."""

    def __init__(self, head_dim: int, stride: Grid) -> None:
        super().__init__()
        self.conv = nn.Conv3d(head_dim, head_dim, 3, stride, padding=1, groups=head_dim, bias=False)
        # Tokens are channels-last, hence so is the gradient; with another layout of the weight DDP copies and warns.
        self.conv.to(memory_format=torch.channels_last_3d)  # type: ignore[call-overload]
        self.norm = nn.LayerNorm(head_dim, eps=NORM_EPS)

    def forward(self, x_BHNE: Tensor, grid: Grid) -> tuple[Tensor, Grid]:
        x_BHNE, grid = pool_tokens(x_BHNE, grid, self.conv)
        return self.norm(x_BHNE), grid


class NoPool(nn.Module):
    def forward(self, x_BHNE: Tensor, grid: Grid) -> tuple[Tensor, Grid]:
        return x_BHNE, grid


class PooledAttention(nn.Module):
    """Softmax attention; the output has as many tokens as the pooled queries. Queries are pooled only if strided."""

    def __init__(self, dim: int, num_heads: int, q_stride: Grid, kv_stride: Grid) -> None:
        super().__init__()
        self.num_heads = num_heads
        head_dim = dim // num_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.pool_q: nn.Module = NoPool() if q_stride == (1, 1, 1) else TokenPool(head_dim, q_stride)
        self.pool_k = TokenPool(head_dim, kv_stride)
        self.pool_v = TokenPool(head_dim, kv_stride)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x_BNC: Tensor, grid: Grid) -> tuple[Tensor, Grid]:
        qkv_BN3HE = self.qkv(x_BNC).unflatten(-1, (3, self.num_heads, -1))
        q_BHNE, k_BHNE, v_BHNE = qkv_BN3HE.permute(2, 0, 3, 1, 4).unbind(0)
        q_BHNE, q_grid = self.pool_q(q_BHNE, grid)
        k_BHNE, _ = self.pool_k(k_BHNE, grid)
        v_BHNE, _ = self.pool_v(v_BHNE, grid)
        y_BHNE = F.scaled_dot_product_attention(q_BHNE, k_BHNE, v_BHNE)
        return self.proj(y_BHNE.transpose(1, 2).flatten(2)), q_grid
