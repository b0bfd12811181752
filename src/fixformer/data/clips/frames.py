"""Videos as the clip spec sees them: a part of the file, at most so many frames, at a stored short side.

`FrameSource` is what sampling and views need of a video. `PickedFrames` of a decoder is one, `CachedFrames` another.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from fixformer.config import Backend, ClipSpec
from fixformer.data.clips.sampling import evenly_spaced, frames_between
from fixformer.data.video import Decoder, Policy, Source, open_video


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

    def __init__(
        self, decoder: Decoder, picks: np.ndarray, fps: float | None, times_F: np.ndarray | None = None
    ) -> None:
        self.fps, self.picks = fps, picks
        self._decoder, self._times_F = decoder, times_F

    @property
    def timestamps(self) -> np.ndarray:
        times = (self._decoder.timestamps if self._times_F is None else self._times_F)[self.picks]
        return times - times[0]

    def __len__(self) -> int:
        return len(self.picks)

    def get_frames(self, indices: Sequence[int] | np.ndarray) -> np.ndarray:
        """Every distinct frame is decoded once, however often it is asked for."""
        wanted, place = np.unique(self.picks[np.asarray(indices)], return_inverse=True)
        return self._decoder.get_frames(wanted.tolist())[place.reshape(-1)]


@contextmanager
def open_frames(
    source: Source,
    spec: ClipSpec,
    *,
    start: float | None = None,
    end: float | None = None,
    backend: Backend = "pyav",
    damaged: Policy = "strict",
) -> Iterator[FrameSource]:
    """The video, or its part from `start` to `end` seconds, with the spec's `keep_frames` and `keep_short_side`."""
    with open_video(source, backend=backend, policy=damaged, short_side=spec.keep_short_side) as decoder:
        yield part_of(decoder, spec, start=start, end=end)


def part_of(
    decoder: Decoder,
    spec: ClipSpec,
    *,
    start: float | None = None,
    end: float | None = None,
    times_F: np.ndarray | None = None,
) -> PickedFrames:
    """The decoder's frames from `start` to `end` seconds, at most the spec's `keep_frames`.

    `times_F` are the decoder's timestamps; a caller with many parts has them computed once.
    """
    # the timestamps of a whole video are not needed, and a folder of images has none
    if start is None and end is None:
        first, count = 0, len(decoder)
    else:
        first, count = frames_between(decoder.timestamps if times_F is None else times_F, start, end)
    kept = evenly_spaced(count, spec.keep_frames)
    fps = decoder.info.fps
    fps = None if fps is None or not count else fps * len(kept) / count
    return PickedFrames(decoder, first + kept, fps, times_F)
