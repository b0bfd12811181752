"""Scaling, cropping and normalising clips; nothing here is random.

A clip is a uint8 tensor `clip_CTHW` with any strides: decoded frames are THWC in memory, which is also what the fast
scaling path wants, so nothing is copied until the end. Sizes and offsets equal the released code
(`tests/golden/sampling.json`).

Legend: C three colours, T frames, H height, W width.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fixformer.config import ClipSpec, Fit
from fixformer.data.video.scaling import require_scalable, scaled_size
from fixformer.errors import UserError

# TSN's crop scales and, in quarters of the free space (x, y), the 13 places where it puts a crop
MULTISCALE_RATIOS = (1.0, 0.875, 0.75, 0.66)
MULTISCALE_PLACES = (
    *((0, 0), (4, 0), (0, 4), (4, 4), (2, 2)),
    *((0, 2), (4, 2), (2, 4), (2, 0)),
    *((1, 1), (3, 1), (1, 3), (3, 3)),
)


def from_frames(frames_THWC: np.ndarray) -> Tensor:
    """Decoded frames as a clip; shares memory."""
    assert frames_THWC.dtype == np.uint8, frames_THWC.dtype
    assert frames_THWC.shape[-1] == 3, frames_THWC.shape
    return torch.from_numpy(frames_THWC).permute(3, 0, 1, 2)


def resize(clip_CTHW: Tensor, height: int, width: int, antialias: bool = True) -> Tensor:
    """Bilinear, half-pixel centres. Without `antialias`, scaling down drops pixels instead of averaging them."""
    if clip_CTHW.shape[-2:] == (height, width):
        return clip_CTHW
    enlarges = height >= clip_CTHW.shape[-2] and width >= clip_CTHW.shape[-1]
    frames_TCHW = clip_CTHW.permute(1, 0, 2, 3).contiguous(memory_format=torch.channels_last)
    # enlarging is the same with and without the filter, and torch's filtered path is five times faster
    scaled = F.interpolate(frames_TCHW, (height, width), mode="bilinear", antialias=antialias or enlarges)
    return scaled.permute(1, 0, 2, 3)


def resize_short_side(clip_CTHW: Tensor, side: int, antialias: bool = True) -> Tensor:
    """Scaled so that the shorter side has `side` pixels."""
    height, width = clip_CTHW.shape[-2:]
    require_scalable(width, height, side)
    width, height = scaled_size(width, height, side)
    return resize(clip_CTHW, height, width, antialias)


def scaled_to(clip_CTHW: Tensor, side: int, fit: Fit, antialias: bool = True) -> Tensor:
    """Ready to be cropped: the short side has `side` pixels, or both sides with fit "squeeze"."""
    if fit == "squeeze":
        return resize(clip_CTHW, side, side, antialias)
    return resize_short_side(clip_CTHW, side, antialias)


def crop(clip_CTHW: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
    assert top + height <= clip_CTHW.shape[-2], (top, height, clip_CTHW.shape)
    assert left + width <= clip_CTHW.shape[-1], (left, width, clip_CTHW.shape)
    return clip_CTHW[..., top : top + height, left : left + width]


def view_crop_offsets(height: int, width: int, size: int, focus: float = 0.5) -> list[tuple[int, int]]:
    """(top, left) of the crops left, middle, right; top, middle, bottom of an upright picture."""
    y, x = middle(height, width, focus)
    top, left = math.ceil((height - size) * y), math.ceil((width - size) * x)
    if height > width:
        return [(0, left), (top, left), (height - size, left)]
    return [(top, 0), (top, left), (top, width - size)]


def middle(height: int, width: int, focus: float) -> tuple[float, float]:
    """Where (y, x) in the free space the middle crop is, from 0 to 1: `focus` on the long side, else centred."""
    return (focus, 0.5) if height > width else (0.5, focus)


def chosen_crops(crops: int) -> Sequence[int]:
    """Which of the three test crops: the centre one, or all."""
    if crops not in (1, 3):
        raise UserError(f"crops={crops}: expected 1 (centre) or 3 (left, centre, right).")
    return (1,) if crops == 1 else (0, 1, 2)


def view_crops(clip_CTHW: Tensor, spec: ClipSpec, crops: int) -> list[Tensor]:
    """The clip scaled to the test short side and cropped once or three times."""
    scaled = scaled_to(clip_CTHW, spec.test_short_side, spec.fit, spec.antialias)
    height, width = scaled.shape[-2:]
    offsets = view_crop_offsets(height, width, spec.size, spec.focus)
    return [crop(scaled, *offsets[k], spec.size, spec.size) for k in chosen_crops(crops)]


def multiscale_sizes(height: int, width: int) -> list[tuple[int, int]]:
    """(width, height) of TSN's candidate crops: ratios of the short side, neighbouring ratios may be combined."""
    sides = [max(1, int(min(height, width) * ratio)) for ratio in MULTISCALE_RATIOS]
    return [(w, h) for i, h in enumerate(sides) for j, w in enumerate(sides) if abs(i - j) <= 1]


def multiscale_offsets(height: int, width: int, crop_width: int, crop_height: int) -> list[tuple[int, int]]:
    """(left, top) of the 13 places of a crop."""
    step_x, step_y = (width - crop_width) // 4, (height - crop_height) // 4
    return [(x * step_x, y * step_y) for x, y in MULTISCALE_PLACES]


def random_crop_bounds(height: int, width: int, size: int) -> tuple[int, int]:
    """Largest top and left a training crop draws; the released code never draws the very last offset."""
    return max(height - size - 1, 0), max(width - size - 1, 0)


def normalise(video: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Bytes `[..., C, T, H, W]` as float32, (x / 255 - mean) / std."""
    shape = (-1, 1, 1, 1)
    scale = torch.tensor([1 / (255 * s) for s in std], device=video.device).view(shape)
    shift = torch.tensor([-m / s for m, s in zip(mean, std, strict=True)], device=video.device).view(shape)
    return video.float().mul_(scale).add_(shift)


def erase_boxes(video_BCTHW: Tensor, boxes_B4: Tensor) -> Tensor:
    """Set each clip's box (top, left, height, width) to zero, in place; an empty box erases nothing."""
    for clip_CTHW, (top, left, height, width) in zip(video_BCTHW, boxes_B4.tolist(), strict=True):
        clip_CTHW[:, :, top : top + height, left : left + width] = 0
    return video_BCTHW
