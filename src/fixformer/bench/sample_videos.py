"""Videos to measure with, made on the spot: 10 seconds, texture that moves, the settings of the usual sources."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np

SECONDS = 10

# name: (height, width, rate, codec, options)
KINDS: dict[str, tuple[int, int, int, str, dict[str, str]]] = {
    "h264_340x256.mp4": (256, 340, 30, "libx264", {"crf": "23"}),
    "h264_456x256.mp4": (256, 456, 25, "libx264", {"crf": "23", "g": "50"}),
    "h264_keys_340x256.mp4": (256, 340, 30, "libx264", {"crf": "20", "g": "16", "tune": "fastdecode"}),
    "vp9_427x240.webm": (240, 426, 12, "libvpx-vp9", {"crf": "32", "b": "0", "deadline": "realtime", "cpu-used": "6"}),
}


def make_clips(folder: Path) -> list[str]:
    """The videos of `KINDS` as files."""
    return [str(_make(folder / name, *kind)) for name, kind in KINDS.items()]


def _make(
    path: Path, height: int, width: int, rate: int, codec: str, options: dict[str, str], seconds: int = SECONDS
) -> Path:
    rng, count = np.random.default_rng(0), seconds * rate
    size = height // 4
    ground = rng.integers(0, 256, (height // 4 + 64, width // 4 + 64, 3)).astype(np.float32)
    ground = np.kron((ground + np.roll(ground, 1, 0) + np.roll(ground, 1, 1)) / 3, np.ones((4, 4, 1))).astype(np.uint8)
    with av.open(str(path), "w") as output:
        stream = output.add_stream(codec, rate=rate, options=options)
        assert isinstance(stream, av.VideoStream)
        stream.height, stream.width, stream.pix_fmt = height, width, "yuv420p"
        for t in range(count):
            angle = 2 * np.pi * t / count
            y, x = round(60 + 50 * np.sin(3 * angle)), round(60 + 50 * np.cos(2 * angle))
            picture = ground[y : y + height, x : x + width].copy()
            top, left = round((height - size) * t / count), round((width - size) * (1 - np.cos(angle)) / 2)
            picture[top : top + size, left : left + size] = 255 - picture[top : top + size, left : left + size]
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = t, Fraction(1, rate)
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return path


def make_small_clips(folder: Path) -> list[str]:
    """Second-long videos of several codecs, for reading very many times."""
    small = {
        "a.mp4": ("libx264", {}),
        "b.webm": ("libvpx-vp9", {"deadline": "realtime", "cpu-used": "8"}),
        "c.avi": ("mpeg4", {"bf": "2"}),
        "d.webm": ("libvpx", {"deadline": "realtime", "cpu-used": "8"}),
    }
    return [
        str(_make(folder / name, 64, 96, 20, codec, options, seconds=1)) for name, (codec, options) in small.items()
    ]
