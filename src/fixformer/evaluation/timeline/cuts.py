"""Cuts of an edited video: places where a picture has nothing to do with the one before it.

A cut changes the picture many times more than any frame around it does; a flash or a fast movement changes several
frames in a row.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fixformer.data.clips.transforms import resize

SIDE = 32  # of the pictures that are compared
AROUND = 5  # pictures on each side that a change is compared with
# On joined LSA64 clips, whose cuts keep person and background, all 132 cuts exceed 3.6; of 7,000 other frames one does.
LEAST_RATIO = 3.0
# Grey values of 0 to 255: what noise and compression change, so that a still picture has no cuts.
NOISE = 0.1


def small_pictures(clip_CTHW: Tensor) -> Tensor:
    """Grey pictures `[T, H, W]` to compare."""
    return resize(clip_CTHW, SIDE, SIDE).float().mean(0)


class ChangeMeter:
    """The mean change from each picture to the next; pictures come in parts."""

    def __init__(self) -> None:
        self.changes: list[float] = []
        self.times: list[float] = []
        self._last_HW: Tensor | None = None

    def add(self, clip_CTHW: Tensor, times: Sequence[float]) -> None:
        pictures_THW = small_pictures(clip_CTHW)
        before = pictures_THW[:1] if self._last_HW is None else self._last_HW[None]
        changes = (pictures_THW - torch.cat([before, pictures_THW[:-1]])).abs().mean((1, 2))
        self.changes += changes.tolist()
        self.times += times
        self._last_HW = pictures_THW[-1]

    def cuts(self) -> list[float]:
        """Seconds of the cuts: halfway between the two pictures."""
        return find_cuts(self.times, self.changes)


def find_cuts(times: Sequence[float], changes: Sequence[float]) -> list[float]:
    """`changes` are those of each picture from the one before it; the first has none."""
    if not changes:
        return []
    values = np.asarray(changes)
    padded = np.pad(values, AROUND, constant_values=0)
    near = np.lib.stride_tricks.sliding_window_view(padded, 2 * AROUND + 1)
    others = np.delete(near, AROUND, axis=1).max(1)
    is_cut = values > LEAST_RATIO * (others + NOISE)
    return [(times[i - 1] + times[i]) / 2 for i in np.flatnonzero(is_cut).tolist() if i > 0]
