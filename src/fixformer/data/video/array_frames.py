"""A clip in memory as a video: the frames of a numpy array or a torch tensor.

Legend: T frames, H height, W width, C the three colours.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from av.video.frame import VideoFrame

from fixformer.data.video.containers import check_pixels
from fixformer.data.video.decoder import Decoder, Fault, Limits, NoTimestamps, VideoInfo
from fixformer.data.video.orientation import RgbConverter
from fixformer.errors import InputError

NAME = "the clip"
EXPECTED = "expected RGB frames of type uint8 and shape [T, H, W, 3]"


class ArrayDecoder(Decoder):
    """Frames that are decoded already; scaled by the same function as those of a file."""

    def __init__(self, frames_THWC: np.ndarray, *, limits: Limits, short_side: int | None, fps: float | None) -> None:
        super().__init__(NAME, limits)
        self._frames_THWC, self._fps = as_frames(frames_THWC), fps
        count, height, width, _ = self._frames_THWC.shape
        check_pixels(width, height, limits, NAME, 0)
        if count > limits.frames:
            raise InputError(f"{NAME} has {count:,} frames, more than the limit of {limits.frames:,} (Limits.frames).")
        self._converter = RgbConverter(self._picture(0), short_side)

    @property
    def info(self) -> VideoInfo:
        width, height = self._converter.size
        return VideoInfo(
            width=width,
            height=height,
            fps=self._fps,
            duration=len(self) / self._fps if self._fps else None,
            header_frames=None,
            codec="none",
            container="array",
            pixel_format="rgb24",
            rotation=0,
            mirrored=False,
            stream=0,
        )

    @property
    def faults(self) -> tuple[Fault, ...]:
        return ()

    @property
    def timestamps(self) -> np.ndarray:
        if self._fps is None:
            raise NoTimestamps(NAME, "an array of frames")
        return np.arange(len(self)) / self._fps

    def __len__(self) -> int:
        return len(self._frames_THWC)

    def get_frames(self, indices: Sequence[int]) -> np.ndarray:
        wanted = self._check_range(indices)
        frames_THWC = self._allocate(len(wanted), self._converter.size)
        for place, index in enumerate(wanted):
            frames_THWC[place] = self._converter.convert(self._picture(index))
        return frames_THWC

    def close(self) -> None:
        """Nothing is open."""

    def _picture(self, index: int) -> VideoFrame:
        return VideoFrame.from_ndarray(np.ascontiguousarray(self._frames_THWC[index]), format="rgb24")


def as_frames(clip: Any) -> np.ndarray:
    """`frames_THWC` of an array or a tensor, or an `InputError` that says what to change."""
    shape, kind = tuple(clip.shape), str(clip.dtype).removeprefix("torch.")
    given = f"a clip of type {kind} and shape {list(shape)}"
    if kind != "uint8":
        raise InputError(f"{given}: {EXPECTED}; bring the values to 0 to 255 and convert them to uint8.")
    if len(shape) != 4 or shape[3] != 3 or 0 in shape:
        raise InputError(f"{given}: {EXPECTED}; {_remedy(shape)}.")
    return clip if isinstance(clip, np.ndarray) else np.asarray(clip.detach().cpu())


def _remedy(shape: tuple[int, ...]) -> str:
    if len(shape) == 4 and shape[1] == 3:
        return "[T, 3, H, W] becomes that by clip.transpose(0, 2, 3, 1), with torch clip.permute(0, 2, 3, 1)"
    if len(shape) == 4 and shape[0] == 3:
        return "[3, T, H, W] becomes that by clip.transpose(1, 2, 3, 0), with torch clip.permute(1, 2, 3, 0)"
    if len(shape) == 5:
        return "give one clip at a time"
    return "repeat a grey picture three times, and give a single picture as clip[None]"
