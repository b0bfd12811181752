"""Depth-wise convolutions by hand: the same values and gradients as torch's."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fixformer.models.layers import depthwise as by_hand
from fixformer.models.layers.lite0 import SameConv

CASES = [(size, stride) for size in by_hand.SIZES for stride in by_hand.STRIDES if (size, stride) != (3, 1)]
SIDES = [(2, 2), (4, 6), (8, 2), (16, 20)]


def plain(conv: SameConv, x_NCHW: Tensor) -> Tensor:
    """TensorFlow's SAME padding, then a convolution without any."""
    size, stride = conv.kernel_size[0], conv.stride[0]
    pads: list[int] = []
    for side in reversed(x_NCHW.shape[2:]):
        missing = max((-(-side // stride) - 1) * stride + size - side, 0)
        pads += [missing // 2, missing - missing // 2]
    return F.conv2d(F.pad(x_NCHW, pads), conv.weight, conv.bias, stride, 0, 1, conv.groups)


def layer(size: int, stride: int) -> SameConv:
    torch.manual_seed(size + stride)
    return SameConv(3, 3, size, stride, groups=3)


@pytest.mark.parametrize(("size", "stride"), CASES)
@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_values_and_gradients_are_those_of_a_padded_convolution(
    size: int, stride: int, sides: tuple[int, int], memory_format: torch.memory_format
) -> None:
    conv = layer(size, stride)
    x_NCHW = torch.randn(2, 3, *sides).contiguous(memory_format=memory_format).requires_grad_()
    assert by_hand.is_faster(x_NCHW, size, stride)
    found, expected = conv(x_NCHW), plain(conv, x_NCHW)
    assert "_Depthwise" in found.grad_fn.name()
    g_NCHW = torch.randn_like(expected)
    leaves = (x_NCHW, conv.weight, conv.bias)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    for own, theirs in zip(
        torch.autograd.grad(found, leaves, g_NCHW), torch.autograd.grad(expected, leaves, g_NCHW), strict=True
    ):
        torch.testing.assert_close(own, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("size", "stride"), CASES)
def test_it_may_be_differentiated_twice(size: int, stride: int) -> None:
    conv = layer(size, stride)
    x_NCHW = torch.randn(1, 3, 4, 6, requires_grad=True)

    def penalty(out_NCHW: Tensor) -> Tensor:
        (g_NCHW,) = torch.autograd.grad(out_NCHW.square().sum(), x_NCHW, create_graph=True)
        return g_NCHW.square().sum()

    (own,) = torch.autograd.grad(penalty(conv(x_NCHW)), conv.weight)
    (theirs,) = torch.autograd.grad(penalty(plain(conv, x_NCHW)), conv.weight)
    torch.testing.assert_close(own, theirs, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("size", "stride"), CASES)
def test_only_the_gradients_that_are_needed(size: int, stride: int) -> None:
    conv = layer(size, stride).requires_grad_(False)
    x_NCHW = torch.randn(1, 3, 4, 4, requires_grad=True)
    conv(x_NCHW).sum().backward()
    assert x_NCHW.grad is not None
    assert conv.weight.grad is None


@pytest.mark.parametrize(
    ("size", "stride", "x", "expected"),
    [
        (5, 1, {"size": (1, 3, 3, 5)}, True),
        (5, 2, {"size": (1, 3, 4, 5)}, False),  # an odd side is padded alike on both sides
        (3, 1, {"size": (1, 3, 4, 4)}, False),  # torch is fast enough
        (7, 1, {"size": (1, 3, 8, 8)}, False),
        (5, 1, {"size": (0, 3, 8, 8)}, False),
        (5, 1, {"size": (1, 3, 8, 8), "dtype": torch.float64}, False),
        (5, 1, {"size": (1, 3, 8, 8), "device": "meta"}, False),
    ],
)
def test_where_it_is_used(size: int, stride: int, x: dict[str, Any], expected: bool) -> None:
    assert by_hand.is_faster(torch.zeros(**x), size, stride) is expected
