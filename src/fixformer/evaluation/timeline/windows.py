"""Overlapping windows of a long video; each of its frames is decoded, scaled and cropped once, and kept while needed.

The frames of a window are those that a clip of this part of the file would have (`data/clips/views.py`).

Legend: V views = K clips x S crops (clip-major), C colours, T frames, H height, W width, F frames of the file.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fixformer.config import ClipSpec
from fixformer.data.clips import transforms
from fixformer.data.clips.frames import part_of
from fixformer.data.clips.views import view_indices
from fixformer.data.video import Decoder
from fixformer.errors import InputError
from fixformer.evaluation.timeline.frame_models import FrameModel

# Decoded frames in memory before they are scaled: ten of 1080p.
DECODED_BYTES = 64 << 20
# What is kept of the frames of overlapping windows: 3,500 frames of 224 x 224 pixels.
HELD_BYTES = 512 << 20
# A single picture has no duration; it is taken to be shown as long as a frame of a usual video.
STILL_SECONDS = 0.04
# What is left at the end of a video gets a window of its own unless it is shorter than this share of the stride.
LEAST_REMAINDER = 0.05
THUMBNAIL_SIDE = 96


@dataclass(frozen=True)
class Window:
    """A part of the video in seconds. `frames_KT` are the numbers of its frames; none is less than `first`."""

    start: float
    length: float
    first: int
    frames_KT: np.ndarray

    @property
    def middle(self) -> float:
        return self.start + self.length / 2


def seconds_of(times_F: np.ndarray) -> float:
    """The length of a video; its last frame is taken to last as long as the one before it."""
    return float(2 * times_F[-1] - times_F[-2]) if len(times_F) > 1 else STILL_SECONDS


def window_starts(seconds: float, length: float, stride: float) -> list[float]:
    """Where the windows begin: a stride apart, and one more that ends with the video if something is left of it."""
    spare = seconds - length
    if spare <= 0:
        return [0.0]
    starts = [number * stride for number in range(math.floor(spare / stride + 1e-9) + 1)]
    return [*starts, spare] if spare - starts[-1] > LEAST_REMAINDER * stride else starts


def plan_windows(
    decoder: Decoder, times_F: np.ndarray, spec: ClipSpec, length: float, stride: float, clips: int
) -> Iterator[Window]:
    """The windows of one length, from first to last."""
    for start in window_starts(seconds_of(times_F), length, stride):
        part = part_of(decoder, spec, start=start, end=start + length, times_F=times_F)
        frames_KT = part.picks[view_indices(part, spec, clips)]
        yield Window(start, length, int(part.picks[0]), frames_KT)


class WindowFrames:
    """Reads the frames of windows, in what form the model wants to keep them (`FrameModel.keep`).

    `thumbnails` collects pictures at the given times, which ascend: pairs of seconds and `[H, W, C]`.
    """

    def __init__(
        self,
        decoder: Decoder,
        times_F: np.ndarray,
        spec: ClipSpec,
        crops: int,
        model: FrameModel,
        thumbnail_times: Iterable[float] = (),
    ) -> None:
        self._decoder, self._times_F, self._spec, self._crops, self._model = decoder, times_F, spec, crops, model
        self._kept: dict[int, Tensor] = {}
        self._chunk = max(1, DECODED_BYTES // (3 * decoder.info.width * decoder.info.height))
        self._thumbnail_times = deque(thumbnail_times)
        self.thumbnails: list[tuple[float, np.ndarray]] = []

    def of_each(self, windows: Iterable[Window]) -> Iterator[tuple[Window, Tensor]]:
        """Every window with its kept frames `[V, T, ...]`; windows come in the order of their first frames.

        A window may want frames between those of the window before it, and to go back would be to decode again. So
        frames are decoded when all windows are known that begin before the end of what is decoded.
        """
        ahead: deque[Window] = deque()
        rest = iter(windows)
        reached = -1
        while True:
            while not ahead or ahead[-1].first <= int(ahead[0].frames_KT.max()):
                if (following := next(rest, None)) is None:
                    break
                ahead.append(following)
            if not ahead:
                return
            last = int(ahead[0].frames_KT.max())
            wanted = {int(number) for window in ahead for number in window.frames_KT.flat if reached < number <= last}
            self._read(sorted(wanted))
            reached = max(reached, last)
            window = ahead.popleft()
            frames_KT = [torch.stack([self._kept[int(number)] for number in row_T]) for row_T in window.frames_KT]
            yield window, torch.stack(frames_KT).transpose(1, 2).flatten(0, 1)  # [K, T, S, ...] to [V, T, ...]
            first_needed = ahead[0].first if ahead else reached + 1
            self._kept = {number: kept for number, kept in self._kept.items() if number >= first_needed}

    def _read(self, numbers: list[int]) -> None:
        """Decode frames whose numbers ascend and are larger than those of all frames before."""
        for begin in range(0, len(numbers), self._chunk):
            part = numbers[begin : begin + self._chunk]
            clip_CTHW = transforms.from_frames(self._decoder.get_frames(part))
            crops_SCTHW = torch.stack(transforms.view_crops(clip_CTHW, self._spec, self._crops))
            self._kept.update(zip(part, self._model.keep(crops_SCTHW).unbind(), strict=True))
            self._take_thumbnails(part, crops_SCTHW[self._crops // 2])
            size = sum(kept.nbytes for kept in self._kept.values())
            if size > HELD_BYTES:
                raise InputError(
                    f"windows that overlap so much keep {len(self._kept):,} frames ({size >> 20:,} MB) in memory; use "
                    "a longer stride or a shorter window."
                )

    def _take_thumbnails(self, numbers: list[int], clip_CTHW: Tensor) -> None:
        for place, number in enumerate(numbers):
            seconds = float(self._times_F[number])
            if self._thumbnail_times and seconds >= self._thumbnail_times[0]:
                self._thumbnail_times.popleft()
                small_C1HW = transforms.resize(clip_CTHW[:, place : place + 1], THUMBNAIL_SIDE, THUMBNAIL_SIDE)
                self.thumbnails.append((seconds, small_C1HW[:, 0].permute(1, 2, 0).contiguous().numpy()))
