"""Heat over pictures.

Legend: T frames, H height, W width, C the three colours; t, h, w frames, rows and columns of tokens or cells.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

# From cold to hot; brightness grows with the heat, so that it can be read without colours.
STOPS = np.array([(20, 12, 60), (105, 25, 130), (205, 60, 80), (250, 150, 20), (252, 250, 150)], float)
OPACITY = 0.55


def stretched(values_thw: Tensor) -> Tensor:
    """From 0, the least of the clip, to 1, the largest; zeros if all are equal."""
    low, high = values_thw.min(), values_thw.max()
    return (values_thw - low) / (high - low) if high > low else torch.zeros_like(values_thw)


def enlarged(values_thw: Tensor, size_THW: tuple[int, int, int]) -> Tensor:
    """Trilinear interpolation to every frame and pixel."""
    return F.interpolate(values_thw[None, None].float(), size_THW, mode="trilinear", align_corners=False)[0, 0]


def averaged(values_thw: Tensor, cells: tuple[int, int, int]) -> np.ndarray:
    """The mean of every cell, to compare maps of different grids."""
    return F.adaptive_avg_pool3d(values_thw[None, None].float(), cells)[0, 0].numpy()


def colours(heat: np.ndarray) -> np.ndarray:
    """Bytes `[..., C]` of heat in [0, 1]."""
    place = np.clip(heat, 0, 1) * (len(STOPS) - 1)
    channels = [np.interp(place, np.arange(len(STOPS)), STOPS[:, colour]) for colour in range(3)]
    return np.stack(channels, -1).round().astype(np.uint8)


def overlay(frames_THWC: np.ndarray, heat_THW: np.ndarray) -> np.ndarray:
    """Pictures in grey with the heat over them, as bytes."""
    grey_THW1 = frames_THWC @ np.array([0.299, 0.587, 0.114])
    mixed = (1 - OPACITY) * grey_THW1[..., None] + OPACITY * colours(heat_THW)
    return mixed.round().astype(np.uint8)
