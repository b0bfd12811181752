"""Operations on the pixels of a whole clip: tables, colour matrices, affine maps.

Every frame gets the same operation; statistics (histograms, means) are of the clip, so that brightness does not
flicker. Clips are uint8 tensors `clip_CTHW`, made contiguous where they are not.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

GREY_WEIGHTS = (0.299, 0.587, 0.114)
FILL = 128
IDENTITY = np.arange(256)


def apply_tables(clip_CTHW: Tensor, tables: Sequence[np.ndarray]) -> Tensor:
    """Replace every byte by its entry: one table for all colours, or one for each."""
    planes = clip_CTHW.contiguous().numpy()
    packed = [np.clip(table, 0, 255).astype(np.uint8).tobytes() for table in tables]
    # bytearray.translate is twice as fast as indexing a numpy table
    if len(packed) == 1:
        mapped = bytearray(planes).translate(packed[0])
        return torch.from_numpy(np.frombuffer(mapped, np.uint8).reshape(planes.shape))
    mapped_planes = [bytearray(plane).translate(table) for plane, table in zip(planes, packed, strict=True)]
    return torch.from_numpy(np.stack([np.frombuffer(plane, np.uint8) for plane in mapped_planes]).reshape(planes.shape))


def invert(clip_CTHW: Tensor) -> Tensor:
    return 255 - clip_CTHW


def solarise(clip_CTHW: Tensor, threshold: int) -> Tensor:
    return apply_tables(clip_CTHW, [np.where(threshold > IDENTITY, IDENTITY, 255 - IDENTITY)])


def solarise_add(clip_CTHW: Tensor, add: int) -> Tensor:
    return apply_tables(clip_CTHW, [np.where(IDENTITY < 128, IDENTITY + add, IDENTITY)])


def posterise(clip_CTHW: Tensor, bits: int) -> Tensor:
    return apply_tables(clip_CTHW, [IDENTITY & ~(2 ** (8 - bits) - 1)])


def brightness(clip_CTHW: Tensor, factor: float) -> Tensor:
    return apply_tables(clip_CTHW, [IDENTITY * factor])


def contrast(clip_CTHW: Tensor, factor: float) -> Tensor:
    mean = grey_mean(clip_CTHW)
    return apply_tables(clip_CTHW, [mean + factor * (IDENTITY - mean)])


def auto_contrast(clip_CTHW: Tensor) -> Tensor:
    """Stretch every colour to the full range."""
    return apply_tables(clip_CTHW, [_stretch_table(counts) for counts in histograms(clip_CTHW)])


def equalise(clip_CTHW: Tensor) -> Tensor:
    """Make every colour's histogram flat."""
    return apply_tables(clip_CTHW, [_equalise_table(counts) for counts in histograms(clip_CTHW)])


def saturation(clip_CTHW: Tensor, factor: float) -> Tensor:
    return colour_matrix(clip_CTHW, saturation_matrix(factor), np.zeros(3))


def sharpness(clip_CTHW: Tensor, factor: float) -> Tensor:
    """Blend with a smoothed copy (weights 1 around 5); the outermost pixels stay."""
    x = clip_CTHW.contiguous().flatten(0, 1).float()
    rows = x[:, :-2] + x[:, 1:-1] + x[:, 2:]
    boxes = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    smooth = x.clone()
    smooth[:, 1:-1, 1:-1] = (boxes + x[:, 1:-1, 1:-1] * 4) / 13
    return _bytes(torch.lerp(smooth, x, factor)).reshape(clip_CTHW.shape)


def colour_matrix(clip_CTHW: Tensor, matrix: np.ndarray, offset: np.ndarray) -> Tensor:
    """`matrix @ rgb + offset` for every pixel."""
    flat = clip_CTHW.contiguous().view(3, -1).float()
    mixed = torch.addmm(torch.tensor(offset, dtype=torch.float32)[:, None], torch.from_numpy(matrix).float(), flat)
    return _bytes(mixed).view(clip_CTHW.shape)


def saturation_matrix(factor: float) -> np.ndarray:
    return factor * np.eye(3) + (1 - factor) * np.broadcast_to(GREY_WEIGHTS, (3, 3))


def hue_matrix(turns: float) -> np.ndarray:
    """Rotate colours about the grey axis."""
    angle = 2 * math.pi * turns
    c, s = math.cos(angle), math.sin(angle) / math.sqrt(3)
    cross = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
    return c * np.eye(3) + (1 - c) / 3 + s * cross


def grey_mean(clip_CTHW: Tensor) -> float:
    """Mean luminance, from every fourth row and column: a clip has pixels to spare."""
    sample = clip_CTHW[:, :, ::4, ::4].float().mean(dim=(1, 2, 3))
    return float(sample @ torch.tensor(GREY_WEIGHTS))


def histograms(clip_CTHW: Tensor) -> list[np.ndarray]:
    return [np.bincount(plane.reshape(-1).numpy(), minlength=256) for plane in clip_CTHW.contiguous()]


def affine(clip_CTHW: Tensor, matrix: np.ndarray) -> Tensor:
    """Sample every output pixel (x, y) at `matrix @ (x, y, 1)` of the input, bilinear, grey outside."""
    channels, frames, height, width = clip_CTHW.shape
    # grid_sample wants half-pixel coordinates scaled to [-1, 1]
    to_pixels = np.array([[width / 2, 0, width / 2 - 0.5], [0, height / 2, height / 2 - 0.5], [0, 0, 1]])
    full = np.vstack([matrix, [0, 0, 1]])
    theta = torch.from_numpy((np.linalg.inv(to_pixels) @ full @ to_pixels)[:2]).float()
    planes = clip_CTHW.contiguous().view(1, channels * frames, height, width).float().sub_(FILL)
    grid = F.affine_grid(theta[None], [1, 1, height, width], align_corners=False)
    moved = F.grid_sample(planes, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return _bytes(moved.add_(FILL)).view(clip_CTHW.shape)


def rotate(clip_CTHW: Tensor, degrees: float) -> Tensor:
    """Counter-clockwise about the centre."""
    height, width = clip_CTHW.shape[-2:]
    x, y = (width - 1) / 2, (height - 1) / 2
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return affine(clip_CTHW, np.array([[c, -s, x - c * x + s * y], [s, c, y - s * x - c * y]]))


def shear_x(clip_CTHW: Tensor, slope: float) -> Tensor:
    return affine(clip_CTHW, np.array([[1, slope, 0], [0, 1, 0]]))


def shear_y(clip_CTHW: Tensor, slope: float) -> Tensor:
    return affine(clip_CTHW, np.array([[1, 0, 0], [slope, 1, 0]]))


def translate_x(clip_CTHW: Tensor, share: float) -> Tensor:
    return shift(clip_CTHW, round(share * clip_CTHW.shape[-1]), 0)


def translate_y(clip_CTHW: Tensor, share: float) -> Tensor:
    return shift(clip_CTHW, 0, round(share * clip_CTHW.shape[-2]))


def shift(clip_CTHW: Tensor, right: int, down: int) -> Tensor:
    """Move the picture by whole pixels, grey behind it."""
    height, width = clip_CTHW.shape[-2:]
    moved = torch.full_like(clip_CTHW, FILL)
    to_y, from_y = slice(max(down, 0), height + min(down, 0)), slice(max(-down, 0), height - max(down, 0))
    to_x, from_x = slice(max(right, 0), width + min(right, 0)), slice(max(-right, 0), width - max(right, 0))
    moved[..., to_y, to_x] = clip_CTHW[..., from_y, from_x]
    return moved


def _stretch_table(counts: np.ndarray) -> np.ndarray:
    used = np.flatnonzero(counts)
    low, high = int(used[0]), int(used[-1])
    return IDENTITY if high <= low else (IDENTITY - low) * (255.0 / (high - low))


def _equalise_table(counts: np.ndarray) -> np.ndarray:
    used = np.flatnonzero(counts)
    if len(used) < 2:
        return IDENTITY
    below = np.concatenate([[0], np.cumsum(counts)[:-1]])
    return np.round(below * (255.0 / (counts.sum() - counts[used[-1]])))


def _bytes(x: Tensor) -> Tensor:
    return x.add_(0.5).clamp_(0, 255).to(torch.uint8)
