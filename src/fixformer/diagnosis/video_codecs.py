"""Which codecs decode here: a few frames are encoded in memory and read as any video is, but for AV1, whose encoders
are rare and print much: its three frames are below.

Legend: T frames, H height, W width, C the three colours.
"""

import io
from base64 import b85decode
from collections.abc import Iterator

import av
import numpy as np
from av.video.stream import VideoStream

from fixformer.data.video import open_video
from fixformer.data.video.containers import error_text
from fixformer.diagnosis.finding import Finding
from fixformer.errors import UserError

# Name -> decoders of which one is needed, encoder for the test, container and pixel format.
CODECS = {
    "H.264": (("h264",), "libx264", "mp4", "yuv420p"),
    "H.265": (("hevc",), "libx265", "mp4", "yuv420p"),
    "VP8": (("vp8", "libvpx"), "libvpx", "webm", "yuv420p"),
    "VP9": (("vp9", "libvpx-vp9"), "libvpx-vp9", "webm", "yuv420p"),
    "AV1": (("libdav1d", "libaom-av1", "av1"), "", "ivf", "yuv420p"),
    "MPEG-4": (("mpeg4",), "mpeg4", "avi", "yuv420p"),
    "MPEG-2": (("mpeg2video",), "mpeg2video", "vob", "yuv420p"),
    "Motion JPEG": (("mjpeg",), "mjpeg", "avi", "yuvj420p"),
    "GIF": (("gif",), "gif", "gif", "rgb8"),
}
NEEDED = ("H.264",)  # without which most files in the world cannot be read
# `_made_frames` by libsvtav1
AV1 = (
    "L`z9V001BWK~^v^Kmb4h82|tP0RR910{{R300000E&u=k00000000005&#Mc00002um6o-FbFap5CEwH1P~yBJ^%;=q-zQ%HKx3d)$8{0B-HvO4G=B>0"
    "003100000000sIG8HHS03?!09fJUI!weuG0Kfnk2eqj(6EFe<2_yhJ7ytkSKmZH?7<RaH1poj50ssI2000005&#+jhy"
)
QUIET = {"libx265": {"x265-params": "log-level=none:pools=none"}}
REMEDY = "pip install --force-reinstall av"
FRAMES, SIDE = 3, 64
MOST_DIFFERENCE = 24.0  # grey levels in the mean: compression loses less, a wrong picture differs by more


def codec_findings() -> Iterator[Finding]:
    for name, (decoders, encoder, container, pixel_format) in CODECS.items():
        if not any(_exists(decoder) for decoder in decoders):
            yield _bad(name, "no decoder")
        elif encoder and not _exists(encoder, to_encode=True):
            yield Finding("codecs", name, "ok", "a decoder is there (not tried: nothing here encodes it)")
        else:
            problem = _round_trip(encoder, container, pixel_format)
            yield _bad(name, problem) if problem else Finding("codecs", name, "ok", "decodes")


def _bad(name: str, problem: str) -> Finding:
    return Finding("codecs", name, "broken" if name in NEEDED else "absent", problem, REMEDY)


def _exists(name: str, *, to_encode: bool = False) -> bool:
    try:
        av.codec.Codec(name, "w" if to_encode else "r")
    except av.codec.codec.UnknownCodecError:
        return False
    return True


def _round_trip(encoder: str, container: str, pixel_format: str) -> str:
    """What goes wrong when a made video is encoded and decoded, or nothing."""
    frames_THWC = _made_frames()
    try:
        data = _encode(frames_THWC, encoder, container, pixel_format) if encoder else b85decode(AV1)
    except (av.error.FFmpegError, ValueError) as error:
        return f"cannot be tried: {error_text(error)}"
    try:
        with open_video(data) as video:
            found_THWC = video.get_frames(range(len(video)))
    except UserError as error:
        return f"does not decode: {error}"
    if len(found_THWC) != FRAMES:
        return f"gives {len(found_THWC)} of {FRAMES} frames"
    difference = float(np.abs(found_THWC.astype(float) - frames_THWC).mean())
    return f"gives wrong pictures (off by {difference:.0f} of 255)" if difference > MOST_DIFFERENCE else ""


def _made_frames() -> np.ndarray:
    """A gradient that becomes lighter."""
    ramp_HW = np.add.outer(np.arange(SIDE), np.arange(SIDE))
    return np.stack([np.repeat((ramp_HW + 40 * t)[..., None], 3, -1) for t in range(FRAMES)]).astype(np.uint8)


def _encode(frames_THWC: np.ndarray, encoder: str, container: str, pixel_format: str) -> bytes:
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container) as output:
        stream = output.add_stream(encoder, rate=25, options=QUIET.get(encoder, {}))
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = SIDE, SIDE, pixel_format
        for picture_HWC in frames_THWC:
            output.mux(stream.encode(av.VideoFrame.from_ndarray(picture_HWC, format="rgb24")))
        output.mux(stream.encode(None))
    return buffer.getvalue()
