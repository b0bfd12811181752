"""I3D: Inception-v1 with its filters inflated to three dimensions.

Shapes: B batch, C channels, T frames, H rows, W columns.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fixformer.config.model import ModelSettings
from fixformer.models.registry import register
from fixformer.models.zoo.common.checkpointing import run_block
from fixformer.models.zoo.common.convolution import ConvNormAct
from fixformer.models.zoo.common.pooled_classifier import PooledClassifier, initialise_convolutions

Size = tuple[int, int, int]
HEAD_FRAMES = 2  # the published head averages over a window of 2 frames before classifying

batch_norm = partial(nn.BatchNorm3d, eps=1e-3, momentum=0.01)


class Widths(NamedTuple):
    """Output channels of the four branches; the middle two reduce channels first."""

    point: int
    reduce_wide: int
    wide: int
    reduce_narrow: int
    narrow: int
    pooled: int

    @property
    def out_dim(self) -> int:
        return self.point + self.wide + self.narrow + self.pooled


# Groups of blocks, each after a pooling given by its kernel and stride.
GROUPS: tuple[tuple[Size, Size, tuple[Widths, ...]], ...] = (
    ((1, 3, 3), (1, 2, 2), (Widths(64, 96, 128, 16, 32, 32), Widths(128, 128, 192, 32, 96, 64))),
    (
        (3, 3, 3),
        (2, 2, 2),
        (
            Widths(192, 96, 208, 16, 48, 64),
            Widths(160, 112, 224, 24, 64, 64),
            Widths(128, 128, 256, 24, 64, 64),
            Widths(112, 144, 288, 32, 64, 64),
            Widths(256, 160, 320, 32, 128, 128),
        ),
    ),
    ((2, 2, 2), (2, 2, 2), (Widths(256, 160, 320, 32, 128, 128), Widths(384, 192, 384, 48, 128, 128))),
)
STEM_DIMS = (64, 64, 192)


def pad_same(x_BCTHW: Tensor, kernel: Sequence[int], stride: Sequence[int]) -> Tensor:
    """TensorFlow's "same" padding: zeros, the odd one at the end, so that there are ceil(size / stride) outputs."""
    padding: list[int] = []
    for size, k, s in zip(reversed(x_BCTHW.shape[2:]), reversed(kernel), reversed(stride), strict=True):
        total = max(k - (size % s or s), 0)
        padding += [total // 2, total - total // 2]
    return F.pad(x_BCTHW, padding)


class SameMaxPool(nn.Module):
    """Max pooling with "same" padding; its zeros count in the maximum, as in the published code."""

    def __init__(self, kernel: Size, stride: Size) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride

    def forward(self, x_BCTHW: Tensor) -> Tensor:
        return F.max_pool3d(pad_same(x_BCTHW, self.kernel, self.stride), self.kernel, self.stride)


class InflatedStem(nn.Module):
    """The 7x7x7 convolution of stride 2; its padding depends on the size of the clip."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.conv = nn.Conv3d(in_dim, out_dim, 7, stride=2, bias=False)
        self.norm = batch_norm(out_dim)
        self.act = nn.ReLU()

    def forward(self, x_BCTHW: Tensor) -> Tensor:
        padded = pad_same(x_BCTHW, self.conv.kernel_size, self.conv.stride)
        return self.act(self.norm(self.conv(padded)))


def unit(in_dim: int, out_dim: int, kernel: int) -> ConvNormAct:
    return ConvNormAct(in_dim, out_dim, (kernel,) * 3, act=nn.ReLU(), norm=batch_norm)


class Inception(nn.Module):
    """Four branches side by side, concatenated."""

    def __init__(self, in_dim: int, widths: Widths) -> None:
        super().__init__()
        self.point = unit(in_dim, widths.point, 1)
        self.wide = nn.Sequential(unit(in_dim, widths.reduce_wide, 1), unit(widths.reduce_wide, widths.wide, 3))
        self.narrow = nn.Sequential(unit(in_dim, widths.reduce_narrow, 1), unit(widths.reduce_narrow, widths.narrow, 3))
        self.pooled = nn.Sequential(SameMaxPool((3, 3, 3), (1, 1, 1)), unit(in_dim, widths.pooled, 1))

    def forward(self, x_BCTHW: Tensor) -> Tensor:
        return torch.cat([self.point(x_BCTHW), self.wide(x_BCTHW), self.narrow(x_BCTHW), self.pooled(x_BCTHW)], dim=1)


class I3D(PooledClassifier):
    """Runs at any T and size; `width` scales all channels."""

    def __init__(self, settings: ModelSettings, *, width: float = 1.0) -> None:
        super().__init__(settings)
        stem_dims = [int(width * dim) for dim in STEM_DIMS]
        groups = [(k, s, [Widths(*(int(width * w) for w in widths)) for widths in group]) for k, s, group in GROUPS]
        self.stem = nn.Sequential(
            InflatedStem(3, stem_dims[0]),
            SameMaxPool((1, 3, 3), (1, 2, 2)),
            unit(stem_dims[0], stem_dims[1], 1),
            unit(stem_dims[1], stem_dims[2], 3),
        )
        in_dim = stem_dims[-1]
        self.groups = nn.ModuleList()
        for kernel, stride, group in groups:
            blocks: list[nn.Module] = [SameMaxPool(kernel, stride)]
            for widths in group:
                blocks.append(Inception(in_dim, widths))
                in_dim = widths.out_dim
            self.groups.append(nn.ModuleList(blocks))
        initialise_convolutions(self)
        self.add_head(in_dim)

    def forward_features(self, video_BCTHW: Tensor) -> Tensor:
        """The last feature map, `[B, C, T/8, H/32, W/32]`."""
        x_BCTHW = run_block(self.stem, video_BCTHW, checkpointing=self.checkpointing)
        for group in self.groups:
            for block in group.children():
                x_BCTHW = run_block(block, x_BCTHW, checkpointing=self.checkpointing)
        return x_BCTHW

    def pool(self, features: Tensor) -> Tensor:
        """Averages over space and `HEAD_FRAMES` frames; each is classified, as published."""
        frames_BCT = features.mean(dim=(3, 4))
        return F.avg_pool1d(frames_BCT, min(HEAD_FRAMES, frames_BCT.shape[2]), stride=1).transpose(1, 2)


@register(ModelSettings(num_classes=400, num_frames=64))
def i3d(settings: ModelSettings) -> I3D:
    """I3D on RGB frames."""
    return I3D(settings)
