"""Small videos made on the spot, for tests."""

import io
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import count
from pathlib import Path

import av
import numpy as np
from av.stream import Disposition


def moving_square(frames: int, height: int = 48, width: int = 64, seed: int = 0) -> np.ndarray:
    """`frames_THWC`: a bright square that moves over a coloured gradient."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    ground = np.stack([x * 200 // width, y * 200 // height, (x + y) * 200 // (width + height)], -1).astype(np.uint8)
    clip = np.repeat(ground[None], frames, 0)
    top, left = rng.integers(0, height // 2), rng.integers(0, 8)
    for t in range(frames):
        clip[t, top : top + 12, (left + 2 * t) % width : (left + 2 * t) % width + 12] = 255
    return clip


def textured(seed: int, frames: int = 24) -> np.ndarray:
    """A clip with its own background and its own path of a bright blob."""
    rng = np.random.default_rng(seed)
    ground = np.kron(rng.integers(40, 160, (6, 8, 3)), np.ones((16, 16, 1)))
    clip = np.repeat(ground[None], frames, 0)
    start, step = rng.integers(0, 60, 2), rng.integers(-4, 5, 2)
    for t in range(frames):
        y, x = (start + step * t) % (72, 104)
        clip[t, y : y + 24, x : x + 24] = 230
    return clip.astype(np.uint8)


def noisy(frames: int, height: int = 48, width: int = 64) -> np.ndarray:
    """A moving square under noise: pictures that no decoder can guess from their neighbours."""
    noise = np.random.default_rng(0).integers(-20, 20, (frames, height, width, 3))
    return np.clip(moving_square(frames, height, width).astype(int) + noise, 0, 255).astype(np.uint8)


# x264's macroblock tree reads memory that it has not set, so that the same frames give now this file and now that one
REPRODUCIBLE = {"libx264": {"mbtree": "0"}, "libx264rgb": {"mbtree": "0"}}


def encode(
    frames_THWC: np.ndarray | None,
    *,
    codec: str = "libx264",
    container: str = "mp4",
    pixel_format: str | None = None,
    rate: int = 25,
    times: Sequence[int] | None = None,
    rotation: int = 0,
    mirrored: bool = False,
    cover_HWC: np.ndarray | None = None,
    sound: str | bool = False,
    options: dict[str, str] | None = None,
    muxer: dict[str, str] | None = None,
    metadata: dict[str, str] | None = None,
    tags: dict[str, int] | None = None,
) -> bytes:
    """A file with these frames, at times counted in 1/rate seconds; `rotation` is clockwise, after the mirroring.

    `options` go to the encoder, `muxer` to the container; `tags` are attributes of the codec context, such as
    `color_range`. `cover_HWC` becomes an attached picture, `sound` (True, or the name of a codec) a second of silence.
    """
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container, options=muxer or {}) as output:
        output.metadata.update(metadata or {})
        if frames_THWC is not None:
            stream = output.add_stream(codec, rate=rate, options=REPRODUCIBLE.get(codec, {}) | (options or {}))
            stream.height, stream.width = frames_THWC.shape[1:3]
            even = frames_THWC.shape[1] % 2 == frames_THWC.shape[2] % 2 == 0
            stream.pix_fmt = pixel_format or ("yuv420p" if even else "yuv444p")
            for name, value in (tags or {}).items():
                setattr(stream.codec_context, name, value)
            if rotation or mirrored:
                stream.set_display_rotation(-rotation, hflip=mirrored)
        if cover_HWC is not None:
            cover = output.add_stream("mjpeg", rate=rate)
            cover.height, cover.width = cover_HWC.shape[:2]
            cover.pix_fmt = "yuvj444p"
            cover.disposition = Disposition.attached_pic
        if sound:
            tone = output.add_stream("aac" if sound is True else sound, rate=16000, layout="mono")
        if cover_HWC is not None:
            packet = av.Packet(jpeg(cover_HWC))
            packet.stream, packet.pts, packet.dts, packet.is_keyframe = cover, 0, 0, True
            output.mux(packet)
        if frames_THWC is not None:
            for number, picture in enumerate(frames_THWC):
                frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
                frame.time_base = Fraction(1, rate)
                frame.pts = number if times is None else times[number]
                output.mux(stream.encode(frame))
            output.mux(stream.encode(None))
        if sound:
            audio = av.AudioFrame.from_ndarray(np.zeros((1, 16000), np.float32), format="fltp", layout="mono")
            audio.sample_rate = 16000
            audio.pts = 0
            output.mux(tone.encode(audio))
            output.mux(tone.encode(None))
    return buffer.getvalue()


def class_folders(root: Path, counts: dict[str, int], make: Callable[[int], bytes]) -> Path:
    """`root/SPLIT/{clap,wave}/N.mp4`: so many videos of each split and class, made from seeds 1, 2, 3 and so on."""
    seeds = count(1)
    for split, videos in counts.items():
        for name in ("clap", "wave"):
            folder = root / split / name
            folder.mkdir(parents=True)
            for number in range(videos):
                (folder / f"{number}.mp4").write_bytes(make(next(seeds)))
    return root


def jpeg(picture_HWC: np.ndarray) -> bytes:
    """One picture as a JPEG file."""
    codec = av.CodecContext.create("mjpeg", "w")
    codec.height, codec.width = picture_HWC.shape[:2]
    codec.pix_fmt = "yuvj444p"
    codec.time_base = Fraction(1, 25)
    frame = av.VideoFrame.from_ndarray(picture_HWC, format="rgb24").reformat(format="yuvj444p")
    return b"".join(bytes(packet) for packet in [*codec.encode(frame), *codec.encode(None)])
