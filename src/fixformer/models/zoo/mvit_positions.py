"""The class token and separate positions for time and space (MViT).

Shapes: B batch, N tokens, C channels; a grid is (frames, rows, columns) of tokens.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fixformer.models.zoo.pooled_attention import Grid


class SeparablePositions(nn.Module):
    """A patch at (t, y, x) gets temporal[t] + spatial[y, x]; the class token has its own position."""

    def __init__(self, dim: int, grid: Grid) -> None:
        super().__init__()
        T, H, W = grid
        self.grid = grid
        self.cls_token = nn.Parameter(torch.empty(1, 1, dim))
        self.class_embed = nn.Parameter(torch.empty(1, 1, dim))
        self.temporal = nn.Parameter(torch.empty(1, T, dim))
        self.spatial = nn.Parameter(torch.empty(1, H * W, dim))
        for table in self.parameters():
            nn.init.trunc_normal_(table, std=0.02)

    def forward(self, patches_BNC: Tensor, grid: Grid) -> Tensor:
        temporal, spatial = self.tables(grid)
        positions_1NC = (temporal[:, :, None] + spatial[:, None]).flatten(1, 2)
        token_B1C = (self.cls_token + self.class_embed).expand(patches_BNC.shape[0], -1, -1)
        return torch.cat([token_B1C, patches_BNC + positions_1NC], dim=1)

    def tables(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """The two tables, interpolated if `grid` is not the one they were made for."""
        temporal = self.temporal if grid[0] == self.grid[0] else resize_line(self.temporal, grid[0])
        same_plane = grid[1:] == self.grid[1:]
        spatial = self.spatial if same_plane else resize_plane(self.spatial, self.grid[1:], grid[1:])
        return temporal, spatial

    @torch.no_grad()
    def resize(self, grid: Grid) -> None:
        """Replace the tables by interpolated ones of another size."""
        temporal, spatial = self.tables(grid)
        if grid != self.grid:
            self.temporal, self.spatial = nn.Parameter(temporal.clone()), nn.Parameter(spatial.clone())
        self.grid = grid


def resize_line(table_1TC: Tensor, length: int) -> Tensor:
    """A table of positions in time, interpolated linearly to another number of frames."""
    return F.interpolate(table_1TC.transpose(1, 2), length, mode="linear").transpose(1, 2)


def resize_plane(table_1NC: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """A table of positions in the plane, row by row, interpolated bicubically to another number of rows and columns."""
    plane = table_1NC.transpose(1, 2).unflatten(2, old)
    return F.interpolate(plane, new, mode="bicubic").flatten(2).transpose(1, 2)
