"""Readers open the video of a sample as frames: by decoding it here, or from the cache (`cache.CachedReader`)."""

from contextlib import AbstractContextManager
from typing import Protocol

from fixformer.config import Backend, ClipSpec
from fixformer.data.clips.frames import FrameSource, open_frames
from fixformer.data.listing import Sample
from fixformer.data.video import Policy


class VideoReader(Protocol):
    """Opens videos of one list of samples. Readers are sent to workers, so they can be pickled."""

    def open(self, index: int, sample: Sample, content: bytes | None = None) -> AbstractContextManager[FrameSource]:
        """The video of `sample`, which is number `index` of the list, from its bytes if they have been read already."""
        ...


class DecodingReader:
    """Decodes the file of a sample, or its bytes."""

    def __init__(self, spec: ClipSpec, *, backend: Backend = "pyav", damaged: Policy = "strict") -> None:
        self.spec, self.backend, self.damaged = spec, backend, damaged

    def open(self, index: int, sample: Sample, content: bytes | None = None) -> AbstractContextManager[FrameSource]:
        source = sample.path if content is None else content
        options = {"start": sample.start, "end": sample.end}
        return open_frames(source, self.spec, **options, backend=self.backend, damaged=self.damaged)
