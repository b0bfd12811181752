"""The definition of what is right: a plain sequential decode with PyAV, and random access held against it."""

import contextlib
import io
import random
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np

from fixformer.data.video import Decoder


def in_order(source: Path | bytes, wanted: set[int] | None = None) -> dict[int, np.ndarray]:
    """Frames of a sequential decode by number, turned by PyAV's own reading of the angle; all unless told which."""
    found = {}
    opened = io.BytesIO(source) if isinstance(source, bytes) else str(source)
    with av.open(opened, metadata_errors="replace") as container:
        stream = container.streams.best("video")
        stream.codec_context.thread_count = 1
        for number, frame in enumerate(undamaged(container, stream)):
            if wanted is None or number in wanted:
                found[number] = np.rot90(frame.to_ndarray(format="rgb24"), round(frame.rotation / 90)).copy()
    return found


def undamaged(container: av.container.InputContainer, stream: av.VideoStream) -> Iterator[av.VideoFrame]:
    """What players do with a packet that cannot be decoded: go on with the next."""
    for packet in container.demux(stream):
        with contextlib.suppress(av.error.InvalidDataError):
            yield from packet.decode()


def pick(seed: str, count: int) -> list[int]:
    """Scattered frames, a run of neighbours, the ends, out of order and repeated."""
    rng = random.Random(seed)
    middle = rng.randrange(count)
    run = [min(count - 1, middle + i) for i in range(4)]
    picks = [rng.randrange(count) for _ in range(6)] + run + [0, count - 1, count - 1]
    rng.shuffle(picks)
    return picks


def assert_random_access_is_exact(source: Path | bytes, video: Decoder, requests: int = 2, seed: str = "") -> None:
    picks = [pick(f"{seed}{number}", len(video)) for number in range(requests)]
    expected = in_order(source, {index for request in picks for index in request})
    for request in picks:
        for index, frame_HWC in zip(request, video.get_frames(request), strict=True):
            assert np.array_equal(frame_HWC, expected[index]), f"frame {index}"
