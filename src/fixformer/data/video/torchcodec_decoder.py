"""The optional torchcodec backend (`pip install "fixformer[torchcodec]"`, with FFmpeg's libraries on the system).

It is as exact as torchcodec's own "exact" mode, which differs from a sequential decode where packets and frames do not
correspond one to one (DivX in AVI, frames hidden by an edit list); the default backend has no such exceptions.

Legend: T requested frames, H height, W width, C the three colours.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fixformer.data.video.containers import check_pixels, local_url, open_stream, source_name
from fixformer.data.video.decoder import DecodeError, Decoder, Fault, Limits, Policy, Source, VideoInfo
from fixformer.data.video.scaling import scaled_size
from fixformer.errors import MissingExtra, SettingsConflict


class TorchCodecDecoder(Decoder):
    """See `Decoder`. There are no partial results: a damaged file is an error."""

    def __init__(self, source: Source, *, policy: Policy, limits: Limits, short_side: int | None, threads: int) -> None:
        super().__init__(source_name(source), limits)
        if policy != "strict":
            raise SettingsConflict(
                f"backend 'torchcodec' has no policy {policy!r}; use 'strict' or the backend 'pyav'."
            )
        self._decoder = _open(source, limits, threads, short_side, self._file)
        meta = self._decoder.metadata
        check_pixels(meta.width, meta.height, limits, self._file, meta.stream_index)

    @property
    def info(self) -> VideoInfo:
        meta = self._decoder.metadata
        frames_1HWC = self.get_frames([0])
        return VideoInfo(
            width=frames_1HWC.shape[2],
            height=frames_1HWC.shape[1],
            fps=meta.average_fps,
            duration=meta.duration_seconds_from_header,
            header_frames=meta.num_frames_from_header,
            codec=meta.codec,
            container="unknown",
            pixel_format=meta.pixel_format or "unknown",
            rotation=round(-(meta.rotation or 0)) % 360,
            mirrored=False,
            stream=meta.stream_index,
        )

    @property
    def faults(self) -> tuple[Fault, ...]:
        return ()

    @property
    def timestamps(self) -> np.ndarray:
        # torchcodec gives timestamps only together with pictures: 16 at a time, so that few are in memory
        starts = range(0, len(self), 16)
        with self._decode_errors():
            parts = [self._decoder.get_frames_in_range(i, min(i + 16, len(self))).pts_seconds.numpy() for i in starts]
        times = np.concatenate(parts)
        return times - times[0]

    def __len__(self) -> int:
        return len(self._decoder)

    def get_frames(self, indices: Sequence[int]) -> np.ndarray:
        wanted = self._check_range(indices)
        meta = self._decoder.metadata
        self._allocate(len(wanted), (meta.width, meta.height))
        with self._decode_errors():
            return self._decoder.get_frames_at(wanted).data.numpy()

    @contextmanager
    def _decode_errors(self) -> Iterator[None]:
        """torchcodec raises `RuntimeError` for everything; while decoding, the cause is the file."""
        try:
            yield
        except RuntimeError as error:
            raise DecodeError(str(error), file=self._file, stream=self._decoder.metadata.stream_index) from error

    def close(self) -> None:
        del self._decoder


def _open(source: Source, limits: Limits, threads: int, short_side: int | None, file: str) -> Any:
    try:
        from torchcodec.decoders import VideoDecoder
        from torchcodec.transforms import Resize
    except (ImportError, RuntimeError) as error:
        raise MissingExtra(f"backend 'torchcodec' ({error.__class__.__name__} on import)", "torchcodec") from error
    # torchcodec cannot be told which formats and protocols a file may use: what ours refuses never gets there
    open_stream(source, limits, threads=1, strict=True, name=file)[0].close()
    try:
        settings: dict[str, Any] = {"dimension_order": "NHWC", "num_ffmpeg_threads": threads, "seek_mode": "exact"}
        plain = VideoDecoder(_rewound(source), **settings)
        if short_side is None:
            return plain
        width, height = scaled_size(plain.metadata.width, plain.metadata.height, short_side)
        return VideoDecoder(_rewound(source), transforms=[Resize((height, width))], **settings)
    except (RuntimeError, ValueError) as error:
        raise DecodeError(f"cannot be opened as a video: {str(error).splitlines()[0]}", file=file) from error


def _rewound(source: Source) -> Any:
    if isinstance(source, str | Path):
        return local_url(source)
    if not isinstance(source, bytes):
        source.seek(0)
    return source
