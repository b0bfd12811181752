"""What the branches with a backward pass written by hand have in common: chunks, and the gradients of their layers.

Shapes: R rows (tokens of a chunk), C and D channels.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# The largest tensor of a chunk: it and the two or three beside it should fit a processor's last cache, often 32 MB.
# Tried with fixformer_base on an AMD EPYC: inference is equally fast with 8 and 16 MB and slower by 2 % with 4 MB;
# training is faster by 2 % with 8 MB than with 16 or 32.
CHUNK_BYTES = 8 << 20


def chunks(size: int, bytes_each: int) -> Iterator[slice]:
    """Slices of `size` things, nearly equal, that take `CHUNK_BYTES` at most if each takes `bytes_each`."""
    count = -(-size // max(1, CHUNK_BYTES // bytes_each))
    for i in range(count):
        yield slice(i * size // count, (i + 1) * size // count)


class Affine(NamedTuple):
    """Weight and bias of a Linear, a convolution or a LayerNorm."""

    weight: Tensor
    bias: Tensor

    def linear(self, x_RC: Tensor) -> Tensor:
        return F.linear(x_RC, self.weight, self.bias)


class AffineGradient(NamedTuple):
    """The sums of their gradients; None where they are frozen."""

    weight: Tensor | None
    bias: Tensor | None

    def add_linear(self, g_RD: Tensor, x_RC: Tensor) -> None:
        """Add those of a Linear that was given x."""
        if self.weight is not None:
            self.weight.addmm_(g_RD.t(), x_RC)
        self.add_bias(g_RD)

    def add_bias(self, g_RD: Tensor) -> None:
        if self.bias is not None:
            self.bias.add_(g_RD.sum(0))

    def add(self, weight: Tensor | None, bias: Tensor | None) -> None:
        """Add parts, which are None where they are not needed."""
        for total, part in zip(self, (weight, bias), strict=True):
            if total is not None and part is not None:
                total.add_(part)

    def part(self, i: int, count: int) -> "AffineGradient":
        """Views of the i-th of `count` equal parts of the output."""
        return AffineGradient(*(None if both is None else both.chunk(count)[i] for both in self))


class Normalised(NamedTuple):
    """Rows after LayerNorm, and its statistics of each."""

    rows_RD: Tensor
    mean_R1: Tensor
    scale_R1: Tensor


def normalise(x_RD: Tensor, norm: Affine, eps: float) -> Normalised:
    return Normalised(*torch.native_layer_norm(x_RD, x_RD.shape[-1:], norm.weight, norm.bias, eps))


def add_norm_gradients(
    g_RD: Tensor, x_RD: Tensor, normalised: Normalised, norm: Affine, g_norm: AffineGradient, g_x_RD: Tensor
) -> None:
    """Add the gradients of x and of the LayerNorm's weights."""
    needed = [True, g_norm.weight is not None, g_norm.bias is not None]
    g_input_RD, g_weight, g_bias = torch.ops.aten.native_layer_norm_backward(
        *(g_RD, x_RD, x_RD.shape[-1:], normalised.mean_R1, normalised.scale_R1, norm.weight, norm.bias, needed)
    )
    g_x_RD.add_(g_input_RD)
    g_norm.add(g_weight, g_bias)


Layer = nn.Linear | nn.LayerNorm | nn.Conv2d


class Operator(Protocol):
    """A branch of a block in chunks. Weights are given in the order of its layers, which are not read."""

    layers: list[Layer]

    def forward(self, weights: Sequence[Affine], x_BTHWD: Tensor, out_BTHWD: Tensor, kept: list[Tensor] | None) -> None:
        """Add body(norm(x)) to `out`, which may be x itself, and to `kept` what the backward pass needs."""

    def backward(
        self,
        weights: Sequence[Affine],
        gradients: Sequence[AffineGradient],
        kept: Sequence[Tensor],
        x_BTHWD: Tensor,
        g_BTHWD: Tensor,
        g_x_BTHWD: Tensor,
    ) -> None:
        """Add the gradients of weights and x to theirs."""
