"""The residual branch, which every part of a block is, and the MLPs that are its last one.

Shapes: B batch, T frames, H rows, W columns of tokens, D width.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from fixformer.models.layers.noise import DropPath


class Mlp(nn.Module):
    """Linear, GELU, Linear. `approximate="tanh"` is the GELU of models that come from JAX."""

    def __init__(self, dim: int, hidden: int, approximate: str = "none") -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)
        self.approximate = approximate

    def hidden(self, x_BTHWD: Tensor) -> Tensor:
        return F.gelu(self.fc1(x_BTHWD), approximate=self.approximate)

    def forward(self, x_BTHWD: Tensor) -> Tensor:
        return self.fc2(self.hidden(x_BTHWD))


class ConvMlp(Mlp):
    """The same with a depth-wise 3x3 convolution on each frame's grid before GELU, as in the released code."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__(dim, hidden)
        self.dwconv = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden)

    def hidden(self, x_BTHWD: Tensor) -> Tensor:
        h_NHWD = self.fc1(x_BTHWD).flatten(0, 1)
        # Tokens are channels-last already: permuting is a view, and the convolution keeps that layout.
        h_NHWD = self.dwconv(h_NHWD.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return F.gelu(h_NHWD).unflatten(0, x_BTHWD.shape[:2])


class Branch(nn.Module):
    """x + body(norm(x)): the shape of every part of a block. `context` is what the body needs beside x."""

    def __init__(self, dim: int, body: nn.Module, drop_path: float, eps: float = 1e-6) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=eps)
        self.body = body
        self.drop_path = DropPath(drop_path)

    def residual(self, x_BTHWD: Tensor, *context: Any) -> Tensor:
        return self.drop_path(self.body(self.norm(x_BTHWD), *context))

    def forward(self, x_BTHWD: Tensor, *context: Any) -> Tensor:
        return x_BTHWD + self.residual(x_BTHWD, *context)
