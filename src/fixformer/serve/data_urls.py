"""Pictures as `data:` addresses, which a page shows without another request."""

import base64
from fractions import Fraction

import av
import numpy as np

from fixformer.errors import InputError


def jpeg_url(picture_HWC: np.ndarray) -> str:
    return _url("jpeg", jpeg(picture_HWC))


def jpeg(picture_HWC: np.ndarray) -> bytes:
    """A file of one picture."""
    height, width = picture_HWC.shape[:2]
    codec = av.CodecContext.create("mjpeg", "w")
    codec.width, codec.height, codec.pix_fmt, codec.time_base = width, height, "yuvj444p", Fraction(1, 25)
    codec.options = {"qscale": "3", "flags": "+qscale", "global_quality": str(3 * 118)}  # FFmpeg counts 118ths
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture_HWC), format="rgb24").reformat(format="yuvj444p")
    return b"".join(bytes(packet) for packet in [*codec.encode(frame), *codec.encode(None)])


def png_url(data: bytes) -> str:
    if not data.startswith(b"\x89PNG"):
        raise InputError(f"{data[:8]!r}: expected a PNG.")
    return _url("png", data)


def _url(kind: str, data: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
