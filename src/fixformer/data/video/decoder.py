"""The `Decoder` interface, which every backend implements.

Frames are RGB uint8 arrays `frames_THWC`, upright (rotation and mirroring in the metadata are applied), addressed by
index or by time, and equal to what a full sequential decode gives.

Legend: T frames, H height, W width, C the three colours.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Literal, Self

import numpy as np

from fixformer.config.schema import coerce
from fixformer.data.video.frame_table import frames_at
from fixformer.errors import InputError, UserError

Source = str | Path | bytes | BinaryIO
VideoSource = Source | np.ndarray  # an array holds the frames themselves
Policy = Literal["strict", "partial"]


class DecodeError(UserError):
    """A video that cannot be read; the message names the file, and the stream and frame where they are known."""

    def __init__(
        self, problem: str, *, file: str | None = None, stream: int | None = None, frame: int | None = None
    ) -> None:
        place = [file, None if stream is None else f"stream {stream}", None if frame is None else f"frame {frame}"]
        where = ", ".join(part for part in place if part)
        super().__init__(f"{where}: {problem}" if where else problem)
        self.problem, self.file, self.stream, self.frame = problem, file, stream, frame


class NoVideoStream(DecodeError):
    """A media file without a video stream."""


class NoTimestamps(InputError):
    """A folder of images or an array was asked for frames by time."""

    def __init__(self, name: str, what: str = "a folder of images") -> None:
        super().__init__(f"{name} is {what}, which has no timestamps; set clock='frames', or open it with fps=NUMBER.")


@dataclass(frozen=True)
class Limits:
    """What one file may cost before it is refused. The defaults are far above any real clip: they stop decompression
    bombs, endless streams and requests that would not fit in memory.

    Args:
        seconds: processor time of one call (opening, or one request for frames); ten times as much wall-clock time.
        pixels: of one picture, before any resizing.
        frames: in the whole file; an endless stream ends here.
        bytes: of one returned array.
    """

    seconds: float = 60.0
    pixels: int = 8192 * 8192
    frames: int = 1_000_000
    bytes: int = 8 << 30


@dataclass(frozen=True)
class Fault:
    """Damage that was skipped: `frame` good frames came before it."""

    frame: int
    message: str


@dataclass(frozen=True)
class VideoInfo:
    """What a file says about itself. `width` and `height` are those of the returned frames: upright and resized.

    `header_frames` and `duration` (seconds) are the header's claims, which may be wrong; `len(decoder)` counts.
    `rotation` is the clockwise turn in degrees that was applied to the coded picture.
    """

    width: int
    height: int
    fps: float | None
    duration: float | None
    header_frames: int | None
    codec: str
    container: str
    pixel_format: str
    rotation: int
    mirrored: bool
    stream: int


class Decoder(ABC):
    """Random access to the frames of one video; close it, or use it in a `with`."""

    def __init__(self, file: str, limits: Limits) -> None:
        self._file, self._limits = file, limits

    @property
    @abstractmethod
    def info(self) -> VideoInfo: ...

    @property
    @abstractmethod
    def faults(self) -> tuple[Fault, ...]:
        """Damage found so far; complete after `len()` under the policy "partial"."""

    @property
    @abstractmethod
    def timestamps(self) -> np.ndarray:
        """Presentation time of each frame, in seconds from the first."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def get_frames(self, indices: Sequence[int]) -> np.ndarray:
        """`frames_THWC` for frame numbers in any order, repeats allowed."""

    @abstractmethod
    def close(self) -> None: ...

    def get_frames_at(self, seconds: Sequence[float]) -> np.ndarray:
        """`frames_THWC` displayed at these times, in seconds from the first frame."""
        times_F = self.timestamps
        end = float(times_F[-1] + (times_F[-1] - times_F[-2])) if len(times_F) > 1 else float("inf")
        seconds = [coerce(t, float, "seconds") for t in seconds]
        outside = [t for t in seconds if not 0 <= t <= end]
        if outside:
            raise InputError(f"{self._file}: {outside[0]:g} s is out of range; the video runs from 0 to {end:g} s.")
        return self.get_frames(frames_at(times_F, seconds))

    def verify(self) -> None:
        """Take length, times and faults from a full decode, not from what the file's headers promise."""
        len(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_range(self, indices: Sequence[int]) -> list[int]:
        count = len(self)
        try:
            wanted = [index(i) for i in indices]
        except TypeError:
            raise InputError(f"{self._file}: indices={indices!r}: expected a list of frame numbers.") from None
        outside = [i for i in wanted if not 0 <= i < count]
        if outside:
            raise InputError(
                f"{self._file}: frame {outside[0]} is out of range; the video has frames 0 to {count - 1}."
            )
        return wanted

    def _allocate(self, count: int, size: tuple[int, int]) -> np.ndarray:
        """An array `frames_THWC` for frames of this width and height, within the limit."""
        width, height = size
        if count * height * width * 3 > self._limits.bytes:
            need = f"{count} frames of {width} x {height} need more than {self._limits.bytes:,} bytes (Limits.bytes)"
            raise InputError(f"{self._file}: {need}; request fewer, or a smaller short_side.")
        return np.empty((count, height, width, 3), dtype=np.uint8)
