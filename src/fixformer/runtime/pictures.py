"""Pictures as files, without a drawing library.

Legend: H height, W width, C the three colours, T frames.
"""

import struct
import zlib
from fractions import Fraction
from pathlib import Path

import numpy as np

from fixformer.runtime.files import replacing

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def encode_png(picture_HWC: np.ndarray) -> bytes:
    """A picture of bytes as PNG."""
    height, width, _ = picture_HWC.shape
    rows = np.zeros((height, 1 + 3 * width), np.uint8)  # each row begins with the number of its filter: none
    rows[:, 1:] = picture_HWC.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits, RGB
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def write_mp4(path: Path, frames_THWC: np.ndarray, fps: int) -> None:
    """A silent H.264 file."""
    import av

    height, width = (side // 2 * 2 for side in frames_THWC.shape[1:3])  # 4:2:0 stores one colour for 2 x 2 pixels
    with replacing(path) as temporary, av.open(str(temporary), "w", format="mp4") as output:
        stream = output.add_stream("libx264", rate=fps, options={"crf": "18"})
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for number, picture in enumerate(frames_THWC[:, :height, :width]):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, fps)
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
