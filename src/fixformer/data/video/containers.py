"""Opening a container with FFmpeg, within limits, and choosing its video stream."""

import io
import time
from pathlib import Path

import av
from av.container import InputContainer
from av.stream import Disposition
from av.video.stream import VideoStream

from fixformer.data.video.decoder import DecodeError, Limits, NoVideoStream, Source
from fixformer.data.video.source_file import require_content

# Formats that hold video. FFmpeg reads many more, some of which open other files or render text.
_FORMATS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpeg,mpegts,mpegvideo,flv,asf,ogg,gif,apng,nut,mxf,ivf,obu,av1,dv,rm,swf,"
    "h264,hevc,m4v,vc1,mjpeg,yuv4mpegpipe,jpeg_pipe,png_pipe,bmp_pipe,webp_pipe,tiff_pipe,ppm_pipe,pgm_pipe"
)
# Wall-clock time allowed per second of processor time: a file must not be refused because the machine is busy or was
# suspended, but a read that blocks for ever (a dead network mount) has to end too.
CLOCK_FACTOR = 10
_AVFMT_FLAG_GENPTS = 1


class Deadline:
    """The time limit of one call: `seconds` of processor time, or `CLOCK_FACTOR` times as much wall-clock time."""

    def __init__(self, seconds: float, file: str) -> None:
        self._seconds, self._file = seconds, file
        self._cpu_end = time.thread_time() + seconds
        self._clock_end = time.monotonic() + seconds * CLOCK_FACTOR

    def check(self) -> None:
        if time.thread_time() > self._cpu_end or time.monotonic() > self._clock_end:
            raise DecodeError(f"gave up after {self._seconds:g} s (Limits.seconds)", file=self._file)


def source_name(source: Source) -> str:
    """The name of a source in messages."""
    if isinstance(source, str | Path):
        return str(source)
    return "<bytes>" if isinstance(source, bytes) else str(getattr(source, "name", "<file object>"))


def error_text(error: Exception) -> str:
    """FFmpeg's description of an error: its log line where there is one, else the name of the error."""
    log = getattr(error, "log", None)
    if log and str(log[2]).strip():
        return str(log[2]).strip()
    return str(getattr(error, "strerror", None) or error).strip() or type(error).__name__


def open_stream(
    source: Source, limits: Limits, *, threads: int, strict: bool, name: str | None = None
) -> tuple[InputContainer, VideoStream]:
    """The opened container and the video stream a player would show, its decoder set up but not started.

    A `strict` decoder reports damage that it would otherwise conceal. `name` is for messages.
    """
    name = name or source_name(source)
    container = _open(source, limits, name)
    try:
        stream = _video_stream(container, limits, name)
    except DecodeError:
        container.close()
        raise
    codec = stream.codec_context
    codec.thread_count = threads
    if threads != 1:
        codec.thread_type = "AUTO"
    codec.options = {"max_pixels": str(limits.pixels)} | ({"err_detect": "explode"} if strict else {})
    return container, stream


def local_url(path: str | Path) -> str:
    """What FFmpeg takes for this regular file and for nothing else: a colon in the name is not a protocol's."""
    try:
        require_content(path)
    except FileNotFoundError:
        raise DecodeError("no such file", file=str(path)) from None
    except (OSError, ValueError) as error:  # the latter for a name with a null character
        raise DecodeError(f"cannot be opened as a video: {getattr(error, 'strerror', error)}", file=str(path)) from None
    return f"file:{Path(path)}"


def _open(source: Source, limits: Limits, name: str) -> InputContainer:
    options = {"format_whitelist": _FORMATS, "protocol_whitelist": "file", "max_pixels": str(limits.pixels)}
    seconds = limits.seconds
    readable: object = source
    if isinstance(source, bytes):
        readable = io.BytesIO(source)
    elif isinstance(source, str | Path):
        readable = local_url(source)
    elif source.seekable():
        source.seek(0)  # the caller may have read from it before
    try:
        # "r" whatever the mode of an open file: a temporary one is open for writing, too
        container = av.open(readable, "r", options=options, metadata_errors="replace", timeout=(seconds, seconds))
    except av.error.ExitError:
        raise DecodeError(f"gave up after {seconds:g} s (Limits.seconds)", file=name) from None
    except av.error.FFmpegError as error:
        raise DecodeError(f"cannot be opened as a video: {error_text(error)}", file=name) from error
    assert isinstance(container, InputContainer)
    container.flags &= ~_AVFMT_FLAG_GENPTS  # generated timestamps are wrong when frames are reordered
    return container


def _video_stream(container: InputContainer, limits: Limits, name: str) -> VideoStream:
    streams = [s for s in container.streams.video if not s.disposition & Disposition.attached_pic]
    if not streams:
        held = ", ".join(sorted({s.type for s in container.streams})) or "nothing"
        raise NoVideoStream(f"no video stream (it holds {held})", file=name)
    best = container.streams.best("video")
    stream = best if best in streams else streams[0]
    codec = stream.codec_context
    if codec is None:
        raise DecodeError("no decoder for this codec", file=name, stream=stream.index)
    check_pixels(codec.width, codec.height, limits, name, stream.index)
    return stream


def check_pixels(width: int, height: int, limits: Limits, name: str, stream: int) -> None:
    """Refuse a picture that is larger than the limit."""
    if width * height > limits.pixels:
        problem = f"a picture of {width} x {height} pixels exceeds the limit of {limits.pixels:,} (Limits.pixels)"
        raise DecodeError(problem, file=name, stream=stream)
