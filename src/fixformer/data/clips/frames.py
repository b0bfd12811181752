"""Videos as the clip spec sees them: a part of the file, at most so many frames, at a stored short side.

`FrameSource` is what sampling and views need of a video; some frames of a decoder are one, an entry of the cache is.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from fixformer.config import ClipSpec
from fixformer.data.clips.sampling import evenly_spaced, frames_between
from fixformer.data.listing import Sample
from fixformer.data.video import Decoder, Policy, Source, open_video


class FrameSource(Protocol):
    """Frames by number, their times in seconds from the first, and how many of them there are in a second."""

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


def picked(decoder: Decoder, spec: ClipSpec, *, start: float | None = None, end: float | None = None) -> PickedFrames:
    """The decoder's frames from `start` to `end` seconds, thinned to the spec's `keep_frames`."""
    whole = start is None and end is None
    first, count = (0, len(decoder)) if whole else frames_between(decoder.timestamps, start, end)
    kept = evenly_spaced(count, spec.keep_frames)
    fps = decoder.info.fps
    return PickedFrames(decoder, first + kept, None if fps is None or not count else fps * len(kept) / count)


@contextmanager
def open_frames(
    source: Source,
    spec: ClipSpec,
    *,
    start: float | None = None,
    end: float | None = None,
    backend: str = "pyav",
    damaged: Policy = "strict",
) -> Iterator[FrameSource]:
    """Open a video as `spec` wants it seen."""
    with open_video(source, backend=backend, policy=damaged, short_side=spec.keep_short_side) as decoder:
        yield picked(decoder, spec, start=start, end=end)


class FrameReader:
    """Opens samples by decoding; `cache.CachedReader` does the same from the cache. Both are sent to workers."""

    def __init__(self, spec: ClipSpec, *, backend: str = "pyav", damaged: Policy = "strict") -> None:
        self.spec, self.backend, self.damaged = spec, backend, damaged

    @contextmanager
    def open(self, index: int, sample: Sample) -> Iterator[FrameSource]:
        """The video of a sample; `index` is its place in the data set."""
        with open_frames(
            sample.path, self.spec, start=sample.start, end=sample.end, backend=self.backend, damaged=self.damaged
        ) as frames:
            yield frames
