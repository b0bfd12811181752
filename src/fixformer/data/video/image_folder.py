"""A folder of images as a video: its frames are the images in natural order (2 before 10).

Legend: T requested frames, H height, W width, C the three colours.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import av
import numpy as np
from av.video.frame import VideoFrame

from fixformer.data.video.containers import Deadline, check_pixels, error_text, open_stream
from fixformer.data.video.decoder import DecodeError, Decoder, Fault, Limits, NoTimestamps, Policy, VideoInfo
from fixformer.data.video.orientation import RgbConverter
from fixformer.data.video.source_file import require_content
from fixformer.data.video.suffixes import IMAGE_SUFFIXES
from fixformer.runtime.files import read_bytes


class ImageFolderDecoder(Decoder):
    """Images are decoded on request; those of another size than the first are scaled to it."""

    def __init__(
        self, folder: Path, *, policy: Policy, limits: Limits, short_side: int | None, fps: float | None
    ) -> None:
        super().__init__(str(folder), limits)
        self._policy, self._short_side, self._fps = policy, short_side, fps
        self._paths = image_paths(folder)
        if not self._paths:
            raise DecodeError("a folder without images", file=str(folder))
        if len(self._paths) > limits.frames:
            raise DecodeError(f"more than {limits.frames:,} frames, the limit (Limits.frames)", file=str(folder))
        self._faults: list[Fault] = []
        self._good: list[Path] | None = None
        self._converter: RgbConverter | None = None
        self._first_frame: VideoFrame | None = None

    @property
    def info(self) -> VideoInfo:
        converter = self._get_converter()
        assert self._first_frame is not None
        width, height = converter.size
        return VideoInfo(
            width=width,
            height=height,
            fps=self._fps,
            duration=len(self) / self._fps if self._fps else None,
            header_frames=None,
            codec=self._good_paths()[0].suffix.lower().lstrip("."),
            container="images",
            pixel_format=self._first_frame.format.name,
            rotation=converter.orientation.rotation,
            mirrored=converter.orientation.mirrored,
            stream=0,
        )

    @property
    def faults(self) -> tuple[Fault, ...]:
        return tuple(self._faults)

    @property
    def timestamps(self) -> np.ndarray:
        if self._fps is None:
            raise NoTimestamps(self._file)
        return np.arange(len(self)) / self._fps

    def __len__(self) -> int:
        return len(self._good_paths())

    def get_frames(self, indices: Sequence[int]) -> np.ndarray:
        wanted = self._check_range(indices)
        deadline = Deadline(self._limits.seconds, self._file)
        converter = self._get_converter()
        frames_THWC = self._allocate(len(wanted), converter.size)
        for place, index in enumerate(wanted):
            frames_THWC[place] = converter.convert(self._decode(self._good_paths()[index]))
            deadline.check()
        return frames_THWC

    def verify(self) -> None:
        """Every image must decode; under the policy "partial" those that do not have been left out already."""
        deadline = Deadline(self._limits.seconds, self._file)
        for path in self._good_paths() if self._policy == "strict" else ():
            self._decode(path)
            deadline.check()

    def close(self) -> None:
        self._first_frame = None

    def _good_paths(self) -> list[Path]:
        """All images; under the policy "partial" only those that decode, which means trying each."""
        if self._good is None and self._policy == "strict":
            self._good = self._paths
        if self._good is None:
            deadline = Deadline(self._limits.seconds, self._file)
            good: list[Path] = []
            for path in self._paths:
                deadline.check()
                try:
                    self._decode(path)
                except DecodeError as error:
                    self._faults.append(Fault(len(good), str(error)))
                else:
                    good.append(path)
            if not good:
                raise DecodeError(f"none of {len(self._paths)} images could be decoded", file=self._file)
            self._good = good
        return self._good

    def _get_converter(self) -> RgbConverter:
        if self._converter is None:
            self._first_frame = self._decode(self._good_paths()[0])
            self._converter = RgbConverter(self._first_frame, self._short_side)
        return self._converter

    def _decode(self, path: Path) -> VideoFrame:
        # as bytes, so that FFmpeg sees one picture and never a numbered sequence
        container, stream = open_stream(_read(path), self._limits, threads=1, strict=True, name=str(path))
        with container:
            try:
                frame = next(container.decode(stream), None)
            except av.error.FFmpegError as error:
                raise DecodeError(error_text(error), file=str(path)) from error
        if frame is None or frame.is_corrupt:
            raise DecodeError("the picture is damaged", file=str(path))
        check_pixels(frame.width, frame.height, self._limits, str(path), 0)
        return frame


def _read(path: Path) -> bytes:
    try:
        require_content(path)
        return read_bytes(path)
    except OSError as error:
        raise DecodeError(f"cannot be read: {error.strerror}", file=str(path)) from None


def image_paths(folder: Path) -> list[Path]:
    """The images that are the frames, in order. Names with a leading dot are files of the system (macOS: `._0.png`)."""
    found = (p for p in folder.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES and not p.name.startswith("."))
    return sorted(found, key=natural_key)


def natural_key(path: Path) -> list[tuple[int, int, str]]:
    """Sorts numbers in names by value, and before letters; only 0 to 9 are digits here, `²` is a letter."""
    parts = re.split(r"([0-9]+)", path.name)
    return [(0, int(part), "") if i % 2 else (1, 0, part) for i, part in enumerate(parts) if part]
