"""One video, encoded again for training: small, upright, without sound, cheap to decode from any frame on.

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
from fixformer.errors import InputError, MissingExtra

CLOCK = 90_000  # every usual frame rate is a whole number of these, or nearly
CHUNK = 32
FAILURES = (DecodeError, InputError, OSError)  # what one bad video may raise


@dataclass(frozen=True)
class Recipe:
    """How videos are encoded.

    Args:
        short_side: pixels; a smaller video is not made larger.
        keyframes: a key frame at least every so many frames, so that a clip can start anywhere at little cost.
        quality: x264's constant rate factor; 18 is near transparent, 23 visibly worse.
        damaged: "strict" counts a video that breaks in the middle as failed, "partial" keeps its good frames.
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
    """What a video is made from: which part of which file, and as the file is now. None stands for no file.

    Ids need not be unique, and one may stand for another file when the work goes on.
    """
    with suppress(OSError):
        return [sample.id, sample.path, sample.start, sample.end, *stamp_of(sample.path)]
    return [sample.id, sample.path, sample.start, sample.end, None]


def reencode(sample: Sample, recipe: Recipe) -> Encoded:
    """The sample's part of its file. Every frame is kept, at its own time."""
    with open_video(sample.path, policy=recipe.damaged) as video:
        info = video.info
    if min(info.width, info.height) < 2:
        raise InputError(f"{sample.path}: {info.width} x {info.height} pixels cannot be encoded; 2 x 2 is the least.")
    short_side = min(recipe.short_side, info.width, info.height)
    with open_video(sample.path, policy=recipe.damaged, short_side=short_side) as video:
        times, first = _times(video, sample)
        buffer = io.BytesIO()
        try:
            size = _encode(video, first, times, recipe, buffer)
        except av.error.FFmpegError as error:
            raise InputError(f"{sample.path} cannot be encoded: {error_text(error)}.") from None
    return Encoded(buffer.getvalue(), len(times), *size, info.fps)


def _times(video: Decoder, sample: Sample) -> tuple[np.ndarray, int]:
    """Times in units of the clock, from 0, of the frames to keep, and the number of the first of them."""
    fps = video.info.fps
    seconds = video.timestamps if video.info.container != "images" else np.arange(len(video)) / (fps or 25.0)
    first, count = frames_between(seconds, sample.start, sample.end)
    chosen = seconds[first : first + count]
    ticks = np.round((chosen - chosen[0]) * CLOCK).astype(np.int64)
    return _increasing(ticks), first


def _increasing(ticks: np.ndarray) -> np.ndarray:
    """The nearest times, none earlier, that grow with every frame: x264 refuses others."""
    steps = np.arange(len(ticks))
    return np.maximum.accumulate(ticks - steps) + steps


def _encode(video: Decoder, first: int, times: np.ndarray, recipe: Recipe, buffer: io.BytesIO) -> tuple[int, int]:
    info = video.info
    width, height = info.width // 2 * 2, info.height // 2 * 2  # 4:2:0 has one colour for two by two pixels
    with av.open(buffer, "w", format="mp4") as output:
        stream = output.add_stream("libx264", rate=Fraction(info.fps or 25.0).limit_denominator(1001))
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.time_base = Fraction(1, CLOCK)
        stream.codec_context.thread_count = 1
        stream.codec_context.options = _options(recipe)
        for begin in range(0, len(times), CHUNK):
            ticks = times[begin : begin + CHUNK]
            frames_THWC = video.get_frames(range(first + begin, first + begin + len(ticks)))
            for picture, tick in zip(frames_THWC, ticks, strict=True):
                frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture[:height, :width]), format="rgb24")
                frame.pts, frame.time_base = int(tick), Fraction(1, CLOCK)
                output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return width, height


def _options(recipe: Recipe) -> dict[str, str]:
    return {
        "crf": str(recipe.quality),
        "preset": "veryfast",
        "g": str(recipe.keyframes),
        "tune": "fastdecode",  # no in-loop filter, no arithmetic coding: larger by a fifth, decodes twice as fast
    }


def require_encoder() -> None:
    """Fail before the first video rather than at it."""
    if "libx264" not in av.codecs_available:
        raise MissingExtra("encoding H.264 (this build of PyAV has no libx264)", "data")
