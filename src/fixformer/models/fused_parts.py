"""What the branches with a backward pass written by hand have in common: chunks, and the gradients of their layers.

A gradient is None where a weight is frozen; otherwise a chunk adds to it.

Shapes: R rows (tokens of a chunk), C and D channels.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

# The largest tensor of a chunk: it and the two or three beside it should fit a processor's last cache, often 32 MB.
# Tried with fixformer_base on an AMD EPYC: 8 and 16 MB are equally fast, 4 MB is slower by 2 %.
CHUNK_BYTES = 16 << 20


def chunks(size: int, bytes_each: int) -> Iterator[slice]:
    """Slices of `size` things, nearly equal, that take `CHUNK_BYTES` at most if each takes `bytes_each`."""
    count = -(-size // max(1, CHUNK_BYTES // bytes_each))
    for i in range(count):
        yield slice(i * size // count, (i + 1) * size // count)


class Affine(NamedTuple):
    """Weight and bias of a Linear, a convolution or a LayerNorm, or their gradients."""

    weight: Tensor | None
    bias: Tensor | None

    def linear(self, x_RC: Tensor) -> Tensor:
        return torch.nn.functional.linear(x_RC, self.weight, self.bias)  # type: ignore[arg-type]

    def add_linear(self, g_RD: Tensor, x_RC: Tensor) -> None:
        """Add the gradients of a Linear that was given x."""
        if self.weight is not None:
            self.weight.addmm_(g_RD.t(), x_RC)
        if self.bias is not None:
            self.bias.add_(g_RD.sum(0))


class Normalised(NamedTuple):
    """Rows after LayerNorm, and its statistics of each."""

    rows_RD: Tensor
    mean_R1: Tensor
    scale_R1: Tensor


def normalise(x_RD: Tensor, norm: Affine, eps: float) -> Normalised:
    return Normalised(*torch.native_layer_norm(x_RD, x_RD.shape[-1:], norm.weight, norm.bias, eps))


def add_norm_gradients(
    g_RD: Tensor, x_RD: Tensor, normalised: Normalised, norm: Affine, g_norm: Affine, g_x_RD: Tensor
) -> None:
    """Add the gradients of x and of the LayerNorm's weights."""
    needed = [True, g_norm.weight is not None, g_norm.bias is not None]
    found = torch.ops.aten.native_layer_norm_backward(
        *(g_RD, x_RD, x_RD.shape[-1:], normalised.mean_R1, normalised.scale_R1, norm.weight, norm.bias, needed)
    )
    for total, part in zip((g_x_RD, g_norm.weight, g_norm.bias), found, strict=True):
        if total is not None:
            total.add_(part)
