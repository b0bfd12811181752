"""What all backends share: the checks of a request, and frames by time on top of frames by number."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np

from fixformer.data.video.decoder import Limits
from fixformer.data.video.frame_table import on_show
from fixformer.errors import InputError


class DecoderBase(ABC):
    """See `fixformer.data.video.decoder.Decoder`."""

    def __init__(self, file: str, limits: Limits) -> None:
        self._file, self._limits = file, limits

    @property
    @abstractmethod
    def timestamps(self) -> np.ndarray: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def get_frames(self, indices: Sequence[int]) -> np.ndarray: ...

    @abstractmethod
    def close(self) -> None: ...

    def get_frames_at(self, seconds: Sequence[float]) -> np.ndarray:
        times_F = self.timestamps
        end = float(times_F[-1] + (times_F[-1] - times_F[-2])) if len(times_F) > 1 else float("inf")
        outside = [t for t in seconds if not 0 <= t <= end]
        if outside:
            raise InputError(f"{self._file}: {outside[0]:g} s asked for, of a video from 0 to {end:g} s")
        return self.get_frames(on_show(times_F, seconds))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_range(self, indices: Sequence[int]) -> list[int]:
        count = len(self)
        wanted = [int(i) for i in indices]
        outside = [i for i in wanted if not 0 <= i < count]
        if outside:
            raise InputError(f"{self._file}: frame {outside[0]} asked for, of a video with frames 0 to {count - 1}")
        return wanted

    def _allocate(self, count: int, size: tuple[int, int]) -> np.ndarray:
        """An array `frames_THWC` for frames of this width and height, within the limit."""
        width, height = size
        if count * height * width * 3 > self._limits.bytes:
            asked = f"{count} frames of {width} x {height} need more than {self._limits.bytes:,} bytes (Limits.bytes)"
            raise InputError(f"{self._file}: {asked}; ask for fewer, or for a smaller short_side")
        return np.empty((count, height, width, 3), dtype=np.uint8)
