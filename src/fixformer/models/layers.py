"""The plain parts of a video Transformer.

Shapes: B batch, T frames, H rows, W columns of tokens, D width, C channels.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fixformer.models.noise import Dropout, DropPath


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

    They see each frame and, amplified, how it differs from the clip's mean picture; all but the last also see the frame
    before and after. What stands still fills most of a video and would otherwise drown what moves: from scratch on a
    small set, single patches stay at chance for longer than this takes to learn.
    """

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
        """Interpolate for good; without it the table is interpolated for every clip of another size."""
        self.slots = _table(self.vectors(frames))

    def forward(self, x_BTHWD: Tensor) -> Tensor:
        return x_BTHWD + self.vectors(x_BTHWD.shape[1])[:, None, None]


class TiledTimeEmbed(TimeEmbed):
    """The released code's table: frame t gets entry t mod slots."""

    def vectors(self, frames: int) -> Tensor:
        return self.slots[torch.arange(frames, device=self.slots.device) % len(self.slots)]

    def resize(self, frames: int, height: int, width: int) -> None:
        """A tiled table serves any number of frames as it is."""


class PositionEmbed(nn.Module):
    """One learned vector per place in the frame, interpolated to any grid."""

    def __init__(self, height: int, width: int, dim: int) -> None:
        super().__init__()
        self.table = nn.Parameter(nn.init.trunc_normal_(torch.empty(height, width, dim), std=0.02))

    def resize(self, frames: int, height: int, width: int) -> None:
        self.table = _table(interpolate_space(self.table, height, width))

    def forward(self, x_BTHWD: Tensor) -> Tensor:
        return x_BTHWD + interpolate_space(self.table, x_BTHWD.shape[2], x_BTHWD.shape[3])


def resize_tables(module: nn.Module, *size: Any) -> None:
    """`module.resize(*size)`, which makes new parameters; what was frozen stays frozen."""
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


class MeanPool(nn.Module):
    """Tokens to one vector: mean over the places of a frame, dropout, mean over frames."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.width = dim
        self.dropout = Dropout(dropout)

    def forward(self, x_BTHWD: Tensor) -> Tensor:
        return self.dropout(x_BTHWD.mean((2, 3))).mean(1)


class GridPool(nn.Module):
    """Tokens to one vector that still says when and where: the mean of each cell of a coarse grid, fewer channels.

    A mean over everything leaves it to the blocks to write time and place into the tokens, which a small set teaches
    slowly: the order of events, and where a hand is, are then read from here. Cells are those of adaptive pooling.
    """

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
    """The matrix `[size, count]` that averages over cells; where they do not divide, neighbours share a place."""
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


def init_weights(module: nn.Module) -> None:
    """Linear: truncated normal 0.02, bias zero. Convolution: normal with the fan-out of its group."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Conv2d):
        fan_out = math.prod(module.kernel_size) * module.out_channels // module.groups
        nn.init.normal_(module.weight, std=math.sqrt(2 / fan_out))
        assert module.bias is not None
        nn.init.zeros_(module.bias)
