"""From pixels to tokens, and the embeddings of time and position.

Shapes: B batch, T frames, H rows, W columns of tokens, D width, C channels.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PatchEmbed(nn.Module):
    """Frames to tokens: one convolution per frame, overlapping when the stride is below the patch size."""

    def __init__(self, dim: int, size: int, stride: int, padding: int, norm: bool, channels: int = 3) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, dim, size, stride, padding)
        self.norm = nn.LayerNorm(dim, eps=1e-5) if norm else nn.Identity()

    def grid(self, image_size: int) -> int:
        """Tokens along one side of a square frame."""
        (size, *_), (stride, *_), padding = self.proj.kernel_size, self.proj.stride, self.proj.padding[0]
        return (image_size + 2 * int(padding) - size) // stride + 1

    def forward(self, video_BCTHW: Tensor) -> Tensor:
        batch, _, frames = video_BCTHW.shape[:3]
        x_NDHW = self.proj(video_BCTHW.transpose(1, 2).flatten(0, 1))
        return self.norm(x_NDHW.permute(0, 2, 3, 1).unflatten(0, (batch, frames)))


class ConvStem(nn.Module):
    """Frames to tokens: 3x3 convolutions of stride 2 until a token covers `size` pixels.

    They see each frame and, amplified, its difference from the clip's mean frame; all but the last also see the frame
    before and after. The static background fills most of a video and would otherwise dominate: trained from scratch on
    a small set, single patches stay at chance for longer than this takes to learn.
    """

    # On LSA64 normalised pixels have a standard deviation of 1, their differences from the mean frame one of 0.11 to
    # 0.18: four times that is of the same order. Chosen once with the lsa64 recipe, not tuned further.
    gain = 4.0

    def __init__(self, dim: int, size: int, norm: bool, channels: int = 3) -> None:
        super().__init__()
        stages = size.bit_length() - 1
        widths = [2 * channels, *(max(dim >> (stages - 1 - i), 16) for i in range(stages - 1)), dim]
        frames = [3] * (stages - 1) + [1]
        self.convs = nn.ModuleList(
            nn.Conv3d(c_in, c_out, (kernel, 3, 3), (1, 2, 2), (kernel // 2, 1, 1))
            for c_in, c_out, kernel in zip(widths, widths[1:], frames, strict=False)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=1e-5) for width in widths[1:-1])
        self.norm = nn.LayerNorm(dim, eps=1e-5) if norm else nn.Identity()

    def grid(self, image_size: int) -> int:
        """Tokens along one side of a square frame."""
        return -(-image_size // 2 ** len(self.convs))

    def forward(self, video_BCTHW: Tensor) -> Tensor:
        change_BCTHW = self.gain * (video_BCTHW - video_BCTHW.mean(2, keepdim=True))
        x_BCTHW = torch.cat([video_BCTHW, change_BCTHW], 1).contiguous(memory_format=torch.channels_last_3d)
        *inner, last = self.convs
        for conv, norm in zip(inner, self.norms, strict=True):
            x_BCTHW = F.gelu(norm(conv(x_BCTHW).movedim(1, -1))).movedim(-1, 1)
        return self.norm(last(x_BCTHW).movedim(1, -1))


class TimeEmbed(nn.Module):
    """One learned vector per frame, interpolated to any number of frames."""

    def __init__(self, slots: int, dim: int) -> None:
        super().__init__()
        self.slots = nn.Parameter(torch.zeros(slots, dim))

    def vectors(self, frames: int) -> Tensor:
        return interpolate_time(self.slots, frames)

    def resize(self, frames: int, height: int, width: int) -> None:
        """Interpolate once; otherwise the table is interpolated anew for every clip of another size."""
        self.slots = _table(self.vectors(frames))

    def forward(self, x_BTHWD: Tensor) -> Tensor:
        return x_BTHWD + self.vectors(x_BTHWD.shape[1])[:, None, None]


class TiledTimeEmbed(TimeEmbed):
    """The released code's table: frame t gets entry t mod slots."""

    def vectors(self, frames: int) -> Tensor:
        return self.slots[torch.arange(frames, device=self.slots.device) % len(self.slots)]

    def resize(self, frames: int, height: int, width: int) -> None:
        """Nothing to do: a tiled table fits any number of frames."""


class PositionEmbed(nn.Module):
    """One learned vector per position in the frame, interpolated to any grid."""

    def __init__(self, height: int, width: int, dim: int) -> None:
        super().__init__()
        self.table = nn.Parameter(nn.init.trunc_normal_(torch.empty(height, width, dim), std=0.02))

    def resize(self, frames: int, height: int, width: int) -> None:
        self.table = _table(interpolate_space(self.table, height, width))

    def forward(self, x_BTHWD: Tensor) -> Tensor:
        return x_BTHWD + interpolate_space(self.table, x_BTHWD.shape[2], x_BTHWD.shape[3])


def resize_tables(module: nn.Module, *size: Any) -> None:
    """Call `module.resize(*size)`, which creates new parameters; frozen ones stay frozen."""
    frozen = {name for name, parameter in module.named_parameters() if not parameter.requires_grad}
    module.resize(*size)  # type: ignore[operator]
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name not in frozen)


def _table(values: Tensor) -> nn.Parameter:
    return nn.Parameter(values.detach().clone(memory_format=torch.contiguous_format))


def interpolate_time(slots_TD: Tensor, frames: int) -> Tensor:
    """Linear interpolation of a table over time; unchanged at its own length."""
    if len(slots_TD) == frames:
        return slots_TD
    return F.interpolate(slots_TD.T[None], size=frames, mode="linear", align_corners=False)[0].T


def interpolate_space(table_HWD: Tensor, height: int, width: int) -> Tensor:
    """Bicubic interpolation of a table over a grid; unchanged at its own size."""
    if table_HWD.shape[:2] == (height, width):
        return table_HWD
    resized = F.interpolate(table_HWD.permute(2, 0, 1)[None], (height, width), mode="bicubic", align_corners=False)
    return resized[0].permute(1, 2, 0)
