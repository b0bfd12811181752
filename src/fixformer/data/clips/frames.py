"""Videos as the clip spec sees them: a part of the file, at most so many frames, at a stored short side.

`FrameSource` is what sampling and views need of a video. `PickedFrames` of a decoder is one, `CachedFrames` another.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from fixformer.config import Backend, ClipSpec
from fixformer.config.clip import FrameRate
from fixformer.data.clips.sampling import evenly_spaced, frames_between
from fixformer.data.video import Decoder, Policy, VideoSource, open_video


class FrameSource(Protocol):
    """Frames by number, their times in seconds from the first, and their rate."""

    @property
    def fps(self) -> float | None: ...

    @property
    def timestamps(self) -> np.ndarray: ...

    def __len__(self) -> int: ...

    def get_frames(self, indices: Sequence[int] | np.ndarray) -> np.ndarray: ...


class PickedFrames:
    """Some of a decoder's frames, in order, seen as a video of their own."""

    def __init__(self, decoder: Decoder, picks: np.ndarray, fps: float | None) -> None:
        self.fps = fps
        self._decoder = decoder
        self._picks = picks

    @property
    def timestamps(self) -> np.ndarray:
        times = self._decoder.timestamps[self._picks]
        return times - times[0]

    def __len__(self) -> int:
        return len(self._picks)

    def get_frames(self, indices: Sequence[int] | np.ndarray) -> np.ndarray:
        """Every distinct frame is decoded once, however often it is asked for."""
        wanted, place = np.unique(self._picks[np.asarray(indices)], return_inverse=True)
        return self._decoder.get_frames(wanted.tolist())[place.reshape(-1)]


@contextmanager
def open_frames(
    source: VideoSource,
    spec: ClipSpec,
    *,
    start: float | None = None,
    end: float | None = None,
    backend: Backend = "pyav",
    damaged: Policy = "strict",
    fps: FrameRate | None = None,
) -> Iterator[FrameSource]:
    """The video, or its part from `start` to `end` seconds, with the spec's `keep_frames` and `keep_short_side`.

    `fps` is the rate of what has no timestamps: a folder of images or an array.
    """
    with open_video(source, backend=backend, policy=damaged, short_side=spec.keep_short_side, fps=fps) as decoder:
        # the timestamps of a whole video are not needed, and a folder of images has none
        whole = start is None and end is None
        first, count = (0, len(decoder)) if whole else frames_between(decoder.timestamps, start, end)
        kept = evenly_spaced(count, spec.keep_frames)
        rate = decoder.info.fps
        yield PickedFrames(decoder, first + kept, None if rate is None or not count else rate * len(kept) / count)
