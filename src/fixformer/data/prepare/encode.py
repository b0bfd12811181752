"""Encode one video again for training: small, upright, without sound, cheap to decode from any frame.

Legend: T frames, H height, W width, C the three colours.
"""

import io
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import av
import numpy as np

from fixformer.data.clips.sampling import frames_between
from fixformer.data.listing import Sample
from fixformer.data.video import DecodeError, Decoder, Policy, open_video
from fixformer.data.video.containers import error_text
from fixformer.data.video.content import stamp_of
from fixformer.errors import InputError, UserError

CLOCK = 90_000  # ticks per second, as in MPEG: at the usual frame rates a frame is a whole number of them, or nearly
CHUNK = 32  # frames decoded at a time, which bounds the memory
DEFAULT_FPS = 25.0  # of folders of images and files without a frame rate
FAILURES = (DecodeError, InputError, OSError)  # what one bad video may raise


@dataclass(frozen=True)
class EncodeSettings:
    """How videos are encoded.

    Args:
        short_side: pixels; a smaller video is not enlarged.
        keyframes: largest distance of two key frames, so that a clip can start anywhere at little cost.
        quality: x264's constant rate factor; 18 is nearly transparent, 23 visibly worse.
        damaged: "strict" counts a video with damage in the middle as failed, "partial" keeps its good frames.
    """

    short_side: int = 256
    keyframes: int = 16
    quality: int = 20
    damaged: Policy = "strict"


@dataclass(frozen=True)
class Encoded:
    """A video ready to be stored."""

    data: bytes
    frames: int
    width: int
    height: int
    fps: float | None


def source_of(sample: Sample) -> list[Any]:
    """What a video is made from: the part of the file, and the file's stamp now; None if there is no file.

    The id is not enough: ids need not be unique, and one may belong to another file when `prepare` is resumed.
    """
    with suppress(OSError):
        return [sample.id, sample.path, sample.start, sample.end, *stamp_of(sample.path)]
    return [sample.id, sample.path, sample.start, sample.end, None]


def reencode(sample: Sample, encoding: EncodeSettings) -> Encoded:
    """Encode the sample's part of its file. Every frame is kept, with its timestamp."""
    with open_video(sample.path, policy=encoding.damaged) as video:
        info = video.info
    if min(info.width, info.height) < 2:
        raise InputError(f"{sample.path}: {info.width} x {info.height} pixels cannot be encoded; the minimum is 2 x 2.")
    short_side = min(encoding.short_side, info.width, info.height)
    with open_video(sample.path, policy=encoding.damaged, short_side=short_side) as video:
        ticks, first = _ticks(video, sample)
        buffer = io.BytesIO()
        try:
            size = _encode(video, first, ticks, encoding, buffer)
        except av.error.FFmpegError as error:
            raise InputError(f"{sample.path} cannot be encoded: {error_text(error)}.") from None
    return Encoded(buffer.getvalue(), len(ticks), *size, info.fps)


def _ticks(video: Decoder, sample: Sample) -> tuple[np.ndarray, int]:
    """Timestamps in ticks of the clock, from 0, of the frames to keep, and the number of the first of them."""
    if video.info.container == "images":  # which have no timestamps
        seconds = np.arange(len(video)) / (video.info.fps or DEFAULT_FPS)
    else:
        seconds = video.timestamps
    first, count = frames_between(seconds, sample.start, sample.end)
    chosen = seconds[first : first + count]
    ticks = np.round((chosen - chosen[0]) * CLOCK).astype(np.int64)
    return _increasing(ticks), first


def _increasing(ticks: np.ndarray) -> np.ndarray:
    """Strictly increasing ticks, as x264 requires: each the smallest that is not earlier than the given one."""
    steps = np.arange(len(ticks))
    return np.maximum.accumulate(ticks - steps) + steps


def _encode(
    video: Decoder, first: int, ticks: np.ndarray, encoding: EncodeSettings, buffer: io.BytesIO
) -> tuple[int, int]:
    info = video.info
    width, height = info.width // 2 * 2, info.height // 2 * 2  # 4:2:0 stores one colour for 2 x 2 pixels
    with av.open(buffer, "w", format="mp4") as output:
        stream = output.add_stream("libx264", rate=Fraction(info.fps or DEFAULT_FPS).limit_denominator(1001))
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.time_base = Fraction(1, CLOCK)
        stream.codec_context.thread_count = 1
        stream.codec_context.options = {
            "crf": str(encoding.quality),
            "preset": "veryfast",
            "g": str(encoding.keyframes),
            "tune": "fastdecode",  # no deblocking, no arithmetic coding: a fifth larger, decodes twice as fast
            "mbtree": "0",  # with its macroblock tree x264 is not deterministic, even on one thread
        }
        for begin in range(0, len(ticks), CHUNK):
            chunk = ticks[begin : begin + CHUNK]
            frames_THWC = video.get_frames(range(first + begin, first + begin + len(chunk)))
            for picture_HWC, tick in zip(frames_THWC, chunk, strict=True):
                frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture_HWC[:height, :width]), format="rgb24")
                frame.pts, frame.time_base = int(tick), Fraction(1, CLOCK)
                output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return width, height


def require_encoder() -> None:
    """Fail before the first video if H.264 cannot be encoded."""
    if "libx264" not in av.codecs_available:
        raise UserError(
            f"this build of PyAV ({av.__version__}) has no libx264 to encode H.264; "
            "install the wheel from PyPI: pip install --force-reinstall --only-binary av av"
        )
