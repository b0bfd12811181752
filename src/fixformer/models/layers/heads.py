"""From tokens to logits: pooling and classifiers.

Shapes: B batch, T frames, H rows, W columns of tokens, D width.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fixformer.models.layers.noise import Dropout


class MeanPool(nn.Module):
    """Tokens to one vector: mean over the positions of a frame, dropout, mean over frames."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.width = dim
        self.dropout = Dropout(dropout)

    def forward(self, x_BTHWD: Tensor) -> Tensor:
        return self.dropout(x_BTHWD.mean((2, 3))).mean(1)


class GridPool(nn.Module):
    """Tokens to one vector that keeps coarse time and position: the mean of each cell of a grid, in fewer channels.

    With a mean over everything the blocks must write time and position into the tokens, which takes long to learn from
    a small set. Here the head reads the order of events, and where a hand is, directly. Cells are those of adaptive
    pooling.
    """

    # Frames, rows, columns: quarters of a clip tell an action's phases apart, thirds of a frame left, middle and right.
    # With a quarter of the channels the head's input is 9 times the width. Chosen once, with the demo, and not tuned.
    cells = (4, 3, 3)

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.reduce = nn.Linear(dim, dim // 4)
        self.dropout = Dropout(dropout)
        self.width = math.prod(self.cells) * (dim // 4)

    def forward(self, x_BTHWD: Tensor) -> Tensor:
        x = self.reduce(x_BTHWD)
        for axis, (size, count) in enumerate(zip(x_BTHWD.shape[1:4], self.cells, strict=True), 1):
            x = (x.movedim(axis, -1) @ cell_means(size, count, x)).movedim(-1, axis)
        return self.dropout(x.flatten(1))


def cell_means(size: int, count: int, like: Tensor) -> Tensor:
    """The matrix `[size, count]` that averages over cells; where they do not divide evenly, neighbours overlap."""
    place, cell = torch.arange(size, device=like.device)[:, None], torch.arange(count, device=like.device)
    inside = (place * count < (cell + 1) * size) & ((place + 1) * count > cell * size)
    return (inside / inside.sum(0)).to(like.dtype)


class MlpHead(nn.Module):
    """The released head: LayerNorm, Linear, GELU, dropout, Linear."""

    def __init__(self, dim: int, hidden: int, num_classes: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=1e-5)
        self.fc1 = nn.Linear(dim, hidden)
        self.dropout = Dropout(dropout)
        self.fc = nn.Linear(hidden, num_classes)

    def pre_logits(self, x_BD: Tensor) -> Tensor:
        return self.dropout(F.gelu(self.fc1(self.norm(x_BD))))

    def forward(self, x_BD: Tensor) -> Tensor:
        return self.fc(self.pre_logits(x_BD))


class LinearHead(nn.Module):
    """The public ViT's head: one Linear."""

    def __init__(self, dim: int, num_classes: int) -> None:
        super().__init__()
        self.fc = nn.Linear(dim, num_classes)

    def pre_logits(self, x_BD: Tensor) -> Tensor:
        return x_BD

    def forward(self, x_BD: Tensor) -> Tensor:
        return self.fc(x_BD)
