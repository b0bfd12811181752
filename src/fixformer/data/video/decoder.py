"""Video in: one small `Decoder` interface, several backends behind `open_video`.

Frames are RGB uint8 arrays `frames_THWC`, upright (rotation and mirroring in the metadata are applied), addressed by
index or by time, and equal to what a full sequential decode gives.

Legend: T frames, H height, W width, C the three colours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Literal, Protocol, Self, get_args

import numpy as np

from fixformer.config import Backend
from fixformer.errors import UnknownName, UserError

Source = str | Path | bytes | BinaryIO
Policy = Literal["strict", "partial"]

BACKENDS: tuple[str, ...] = get_args(Backend)


class DecodeError(UserError):
    """A video that cannot be read; the message names the file, and the stream and frame where they are known."""

    def __init__(
        self, problem: str, *, file: str | None = None, stream: int | None = None, frame: int | None = None
    ) -> None:
        place = [file, None if stream is None else f"stream {stream}", None if frame is None else f"frame {frame}"]
        where = ", ".join(part for part in place if part)
        super().__init__(f"{where}: {problem}" if where else problem)
        self.problem, self.file, self.stream, self.frame = problem, file, stream, frame

    def __reduce__(self) -> tuple[object, ...]:
        # the default would format the place into the message a second time when a loader's worker sends it home
        return _rebuild_error, (type(self), self.problem, self.file, self.stream, self.frame)


def _rebuild_error(
    kind: type["DecodeError"], problem: str, file: str | None, stream: int | None, frame: int | None
) -> "DecodeError":
    return kind(problem, file=file, stream=stream, frame=frame)


class NoVideoStream(DecodeError):
    """A media file without pictures."""


@dataclass(frozen=True)
class Limits:
    """What one file may cost before it is refused.

    Args:
        seconds: processor time of one call (opening, or one request for frames); ten times as much on the clock.
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
    """Damage that was stepped over: `frame` good frames came before it."""

    frame: int
    message: str


@dataclass(frozen=True)
class VideoInfo:
    """What a file says about itself. `width` and `height` are those of the returned frames: upright, resized if asked.

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


class Decoder(Protocol):
    """Random access to the frames of one video; close it, or use it in a `with`."""

    @property
    def info(self) -> VideoInfo: ...

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Damage met so far; complete once `len()` was asked under the policy "partial"."""
        ...

    @property
    def timestamps(self) -> np.ndarray:
        """When each frame begins, in seconds from the first."""
        ...

    def __len__(self) -> int: ...

    def get_frames(self, indices: Sequence[int]) -> np.ndarray:
        """`frames_THWC` for frame numbers in any order, repeats allowed."""
        ...

    def get_frames_at(self, seconds: Sequence[float]) -> np.ndarray:
        """`frames_THWC` on show at these times, in seconds from the first frame."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def open_video(
    source: Source,
    *,
    backend: str = "pyav",
    policy: Policy = "strict",
    limits: Limits = Limits(),  # noqa: B008 - frozen
    short_side: int | None = None,
    threads: int = 1,
    fps: float | None = None,
) -> Decoder:
    """Open a video file, its bytes, a binary file object, a folder of images, or a video inside a shard.

    Args:
        source: what to read. A folder is a video whose frames are its images in natural order.
        backend: "pyav", or "torchcodec" where it is installed.
        policy: on damage, "strict" raises `DecodeError`; "partial" keeps the good frames and records a `Fault`.
        limits: what the file may cost before it is refused.
        short_side: scale the frames so that their shorter side has this many pixels.
        threads: of the decoder. One is right inside a data loader's worker.
        fps: for an image folder, which has no clock of its own.
    """
    if backend not in BACKENDS:
        raise UnknownName("decoder backend", backend, BACKENDS)
    source, name = _inside_shard(source)
    if isinstance(source, str | Path) and Path(source).is_dir():
        from fixformer.data.video.image_folder import ImageFolderDecoder

        return ImageFolderDecoder(Path(source), policy=policy, limits=limits, short_side=short_side, fps=fps)
    if backend == "torchcodec":
        from fixformer.data.video.torchcodec_decoder import TorchCodecDecoder

        return TorchCodecDecoder(source, policy=policy, limits=limits, short_side=short_side, threads=threads)
    from fixformer.data.video.pyav_decoder import PyAVDecoder

    return PyAVDecoder(source, policy=policy, limits=limits, short_side=short_side, threads=threads, name=name)


def _inside_shard(source: Source) -> tuple[Source, str | None]:
    """The bytes and the name of a video inside a tar shard; any other source as it is."""
    if isinstance(source, str) and ".tar::" in source:
        from fixformer.data.video.shard_member import is_member, read_member

        if is_member(source):
            return read_member(source), source
    return source, None
