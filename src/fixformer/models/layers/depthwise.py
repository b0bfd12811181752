"""Depth-wise convolutions of pictures, padded as TensorFlow does, faster on a CPU than torch's own.

oneDNN has a kernel of its own only for the weights' gradient of 3 x 3 filters: that of 5 x 5 ones takes 14 times as
long for three times the work, two fifths of a training step of EfficientNet-Lite0. It is put together from 3 x 3 ones
here. And a stride of two needs one more pixel at the end than at the beginning: a filter that is enlarged by a row and
a column of zeros at its beginning gives the same without a padded copy of the picture.

Shapes: N pictures, C channels, H rows, W columns.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fixformer.models.layers.ordinary import is_ordinary

SIZES, STRIDES = (3, 5), (1, 2)


def is_faster(x_NCHW: Tensor, size: int, stride: int) -> bool:
    """Whether `depthwise` computes this: not if somebody traces it, or if an odd side needs other padding."""
    if size not in SIZES or stride not in STRIDES or (size, stride) == (3, 1) or not is_ordinary(x_NCHW):
        return False
    return x_NCHW.numel() > 0 and all(side % stride == 0 for side in x_NCHW.shape[2:])


def depthwise(x_NCHW: Tensor, weight_C1KK: Tensor, bias_C: Tensor, stride: int) -> Tensor:
    """What `SameConv` computes with as many groups as channels."""
    out_NCHW: Tensor = _Depthwise.apply(x_NCHW, weight_C1KK, bias_C, stride)
    return out_NCHW


def _enlarged(weight_C1KK: Tensor, stride: int) -> Tensor:
    """A filter that starts one pixel earlier, with zeros, for a stride of two."""
    return F.pad(weight_C1KK, (1, 0, 1, 0)) if stride == 2 else weight_C1KK


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_NCHW: Tensor, weight_C1KK: Tensor, bias_C: Tensor, stride: int) -> Tensor:
        ctx.save_for_backward(x_NCHW, weight_C1KK)
        ctx.stride = stride
        channels, size = weight_C1KK.shape[0], weight_C1KK.shape[-1]
        return F.conv2d(x_NCHW, _enlarged(weight_C1KK, stride), bias_C, stride, size // 2, 1, channels)

    @staticmethod
    def backward(ctx: Any, g_NCHW: Tensor) -> Any:
        x_NCHW, weight_C1KK = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        size, stride = weight_C1KK.shape[-1], ctx.stride
        g_x_NCHW = g_weight_C1KK = None
        if needs_x:
            enlarged = _enlarged(weight_C1KK, stride)
            g_x_NCHW = _gradients(g_NCHW, x_NCHW, enlarged, stride, size // 2, (True, False))[0]
        if needs_weight:
            g_weight_C1KK = GRADIENTS[size, stride](g_NCHW, x_NCHW, weight_C1KK)
        return g_x_NCHW, g_weight_C1KK, g_NCHW.sum((0, 2, 3)) if needs_bias else None, None


def _gradients(
    g_NCHW: Tensor, x_NCHW: Tensor, weight_C1KK: Tensor, stride: int, padding: int, needed: tuple[bool, bool]
) -> tuple[Tensor, Tensor]:
    """Of the input and of the weights, as torch computes them."""
    channels = weight_C1KK.shape[0]
    found = torch.ops.aten.convolution_backward(
        *(g_NCHW, x_NCHW, weight_C1KK, [channels], [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], channels),
        [*needed, False],
    )
    return found[0], found[1]


def _filter_gradient(g_NCHW: Tensor, x_NCHW: Tensor, weight_C1KK: Tensor, stride: int = 1) -> Tensor:
    """Of a 3 x 3 filter without padding; the values of `weight_C1KK` do not matter."""
    dense_NCHW = x_NCHW.contiguous(memory_format=torch.channels_last)
    return _gradients(g_NCHW, dense_NCHW, weight_C1KK[:, :, :3, :3], stride, 0, (False, True))[1]


def _small_with_stride(g_NCHW: Tensor, x_NCHW: Tensor, weight_C1KK: Tensor) -> Tensor:
    return _filter_gradient(g_NCHW, F.pad(x_NCHW, (0, 1, 0, 1)), weight_C1KK, 2)


def _large(g_NCHW: Tensor, x_NCHW: Tensor, weight_C1KK: Tensor) -> Tensor:
    """A 5 x 5 filter's corners are 3 x 3 filters on the picture moved by two pixels; they overlap in a cross."""
    rows, columns = g_NCHW.shape[2:]
    padded_NCHW = F.pad(x_NCHW, (2, 2, 2, 2))
    found = torch.empty_like(weight_C1KK)
    for i in (0, 2):
        for j in (0, 2):
            part_NCHW = padded_NCHW[:, :, i : i + rows + 2, j : j + columns + 2]
            found[:, :, i : i + 3, j : j + 3] = _filter_gradient(g_NCHW, part_NCHW, weight_C1KK)
    return found


def _large_with_stride(g_NCHW: Tensor, x_NCHW: Tensor, weight_C1KK: Tensor) -> Tensor:
    """With a stride of two, even and odd pixels meet different weights: at most 3 x 3 of them, without a stride."""
    rows, columns = g_NCHW.shape[2:]
    # one pixel before the picture; behind it as many as four filters of 3 x 3 need
    padded_NCHW = F.pad(x_NCHW, (1, 3, 1, 3))
    found = torch.empty_like(weight_C1KK)
    for i in (0, 1):
        for j in (0, 1):
            part_NCHW = padded_NCHW[:, :, i::2, j::2][:, :, : rows + 2, : columns + 2]
            found[:, :, i::2, j::2] = _filter_gradient(g_NCHW, part_NCHW, weight_C1KK)[:, :, : 3 - i, : 3 - j]
    return found


GRADIENTS = {(3, 2): _small_with_stride, (5, 1): _large, (5, 2): _large_with_stride}
