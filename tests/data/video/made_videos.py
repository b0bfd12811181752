"""Small videos, made on the spot, that show every rule of the decoder: codecs, containers, clocks, headers, damage.

`MADE` names each one, with what a plain sequential decode gives. They are the twins of the foreign files in
`expected_videos.csv`, so that every rule is tested wherever the tests run.
"""

import io
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial

import av
from av.bitstream import BitStreamFilterContext

from videos import encode, jpeg, moving_square, noisy

FRAMES = 30
CLIP = noisy(FRAMES)
ODD = noisy(FRAMES, 49, 65)
QUIET = {"x265-params": "log-level=none"}
NOT_CODED = b"\x00\x00\x01\xb6\x50\x7f"  # an MPEG-4 P frame without content
AV1 = {"preset": "12", "svtav1-params": "keyint=10:lookahead=0"}

Edit = Callable[[int, av.Packet], list[av.Packet]]


@dataclass(frozen=True)
class Made:
    """How a file is made, and what it holds. `lossless` is the pixel format in which the pictures survive exactly."""

    build: Callable[[], bytes]
    frames: int = FRAMES
    size: tuple[int, int] = (64, 48)
    lossless: str | None = None


@cache
def make(name: str) -> bytes:
    return MADE[name].build()


def video(codec: str, container: str, pixel_format: str = "yuv420p", **options: str) -> Callable[[], bytes]:
    return partial(encode, CLIP, codec=codec, container=container, pixel_format=pixel_format, options=options)


def odd(codec: str, container: str, pixel_format: str, **options: str) -> Callable[[], bytes]:
    return partial(encode, ODD, codec=codec, container=container, pixel_format=pixel_format, options=options)


def packets(data: bytes) -> Iterator[av.Packet]:
    with av.open(io.BytesIO(data)) as container:
        yield from (packet for packet in container.demux(video=0) if packet.size)


def remux(data: bytes, container: str, edit: Edit = lambda _, packet: [packet], filter: str | None = None) -> bytes:
    """The same stream in another container, its packets passed through a bitstream filter and then through `edit`.

    The muxer is told to write packets as they are; by itself it would merge hidden VP9 frames into superframes.
    """
    buffer = io.BytesIO()
    as_they_are = {"fflags": "-autobsf"}
    with av.open(io.BytesIO(data)) as source, av.open(buffer, "w", format=container, options=as_they_are) as copy:
        stream = source.streams.video[0]
        target = copy.add_stream_from_template(stream)
        target.time_base = 1 / stream.average_rate
        bitstream = BitStreamFilterContext(filter, stream) if filter else None
        found = [packet for packet in source.demux(stream) if packet.size]
        filtered = [part for packet in found for part in (bitstream.filter(packet) if bitstream else [packet])]
        for number, packet in enumerate(filtered):
            for part in edit(number, packet):
                part.stream = target
                copy.mux(part)
    return buffer.getvalue()


def rewritten(packet: av.Packet, data: bytes) -> av.Packet:
    """A packet with other content at the same time."""
    copy = av.Packet(data)
    copy.pts, copy.dts, copy.time_base = packet.pts, packet.dts, packet.time_base
    copy.duration, copy.is_keyframe = packet.duration, packet.is_keyframe
    return copy


def with_false_keys(data: bytes, container: str) -> bytes:
    """The container lies about which packets are key packets."""

    def lie(number: int, packet: av.Packet) -> list[av.Packet]:
        packet.is_keyframe |= number in (7, 11, 20)
        return [packet]

    return remux(data, container, lie)


def vp8_hidden() -> bytes:
    """Every seventh frame is a hidden reference (`show_frame` cleared), as an alternative reference frame is."""

    def hide(number: int, packet: av.Packet) -> list[av.Packet]:
        data = bytearray(bytes(packet))
        if number % 7 == 3:
            data[0] &= ~0x10
        return [rewritten(packet, bytes(data))]

    return remux(encode(CLIP, codec="libvpx", container="webm", options={"g": "10"}), "webm", hide)


def vp9_alt_ref() -> bytes:
    """Hidden reference frames that share a packet (a superframe) with the next one."""
    options = {"deadline": "realtime", "cpu-used": "6", "lag-in-frames": "25", "auto-alt-ref": "1", "b": "50k"}
    data = encode(moving_square(60, 96, 128), codec="libvpx-vp9", container="webm", options=options)
    assert any(bytes(packet)[-1] & 0xE0 == 0xC0 for packet in packets(data))
    return data


def vp9_shown_again() -> bytes:
    """A key frame that is hidden at first, and shown later by a packet that only names it (`show_existing_frame`)."""

    def hide(number: int, packet: av.Packet) -> list[av.Packet]:
        data = bytearray(bytes(packet))
        if number == 10:
            data[0] &= ~0x02
        # a key frame fills all eight slots, and inter frames of this encoder leave the last ones alone
        return [rewritten(packet, b"\x8f" if number == 14 else bytes(data))]

    options = {"g": "10", "deadline": "realtime", "cpu-used": "8"}
    return remux(encode(CLIP, codec="libvpx-vp9", container="webm", options=options), "webm", hide)


def divx_packed() -> bytes:
    """MPEG-4 as DivX wrote it into AVI: a P and a B frame in one packet, then a packet that holds no frame.

    The second packet is a single byte of delay, so that the file has 29 frames in 30 packets.
    """
    plain = encode(CLIP[:29], codec="mpeg4", container="mp4", options={"g": "300", "bf": "1", "b_strategy": "0"})
    signature = b"\x00\x00\x01\xb2DivX503b1393p"  # by which decoders know that packets are packed
    first, *rest = (bytes(packet) for packet in packets(plain))
    contents = [signature + first, b"\x7f"]
    for p_frame, b_frame in zip(rest[::2], rest[1::2], strict=True):
        assert (p_frame[4] >> 6, b_frame[4] >> 6) == (1, 2)  # vop_coding_type
        contents += [p_frame + b_frame, NOT_CODED]

    def pack(number: int, packet: av.Packet) -> list[av.Packet]:
        packed = [rewritten(packet, content) for content in (contents if number == 0 else [])]
        for place, part in enumerate(packed):
            part.time_base, part.pts, part.dts, part.duration = Fraction(1, 25), place, place, 1
        return packed

    return remux(plain, "avi", pack)


def avi_count(frames: int) -> bytes:
    """An AVI whose header claims another number of frames."""
    data = bytearray(encode(CLIP, codec="mpeg4", container="avi"))
    for chunk, offset in ((b"avih", 24), (b"strh", 40)):
        place = data.index(chunk) + offset
        assert data[place : place + 4] == struct.pack("<I", FRAMES)
        data[place : place + 4] = struct.pack("<I", frames)
    return bytes(data)


def latin1_title() -> bytes:
    """Metadata that is not UTF-8."""
    data = encode(CLIP, codec="mpeg4", container="avi", metadata={"title": "a title"})
    assert b"a title" in data
    return data.replace(b"a title", b"\xe9t\xe9 \xff\xfe\x80")


def edit_list(skipped: int) -> bytes:
    """An MP4 whose edit list hides the first frames, which are needed to decode the others."""
    data = bytearray(encode(CLIP, options={"x264-params": "keyint=50:bframes=2"}))
    place = data.index(b"elst") + 12  # past type, version and count: duration in milliseconds, start in ticks
    duration, start = struct.unpack(">Ii", data[place : place + 8])
    tick = 12800 // 25
    data[place : place + 8] = struct.pack(">Ii", duration - 40 * skipped, start + tick * skipped)
    return bytes(data)


def header_first(**options: str) -> bytes:
    """An MP4 that keeps its header in front, so that a cut leaves it whole."""
    return encode(CLIP, muxer={"moov_size": "4096"}, options=options)


def truncated() -> bytes:
    data = header_first()
    cut = list(packets(data))[20]
    assert cut.pos is not None
    return data[: cut.pos + cut.size // 2]


def damaged(data: bytes, number: int, fill: int = 0xFF, part: float = 1.0) -> bytes:
    """The content of one packet, or the last part of it, overwritten."""
    packet = list(packets(data))[number]
    assert packet.pos is not None
    end = packet.pos + packet.size
    size = round(packet.size * part)
    return data[: end - size] + bytes([fill]) * size + data[end:]


def packet_without_picture(number: int) -> bytes:
    """MPEG-4 in which one packet says that its frame is not coded (`vop_coded` cleared, after ten bits of header)."""

    def empty(n: int, packet: av.Packet) -> list[av.Packet]:
        data = bytes(packet)
        return [rewritten(packet, data[:5] + bytes([data[5] & 0xC0 | 0x1F])) if n == number else packet]

    return remux(encode(CLIP, codec="mpeg4", options={"g": "300"}), "mp4", empty)


def with_exif_orientation(picture: bytes, orientation: int) -> bytes:
    """A JPEG with one EXIF entry, the orientation."""
    entry = struct.pack("<HHIHH", 0x112, 3, 1, orientation, 0)
    content = b"Exif\0\0" + b"II*\0" + struct.pack("<IH", 8, 1) + entry + bytes(4)
    return picture[:2] + b"\xff\xe1" + struct.pack(">H", len(content) + 2) + content + picture[2:]


def sizes_change() -> bytes:
    return b"".join(jpeg(picture) for size in ((48, 64), (96, 128)) for picture in noisy(FRAMES // 2, *size))


def transparent_gif() -> bytes:
    """A screen of 8 by 8, and a picture of 2 by 2 of which two pixels are transparent."""
    palette = bytes([255, 0, 0, 0, 0, 255])
    control = b"\x21\xf9\x04\x01\x00\x00\x01\x00"  # colour 1 is transparent
    picture = b"\x2c" + struct.pack("<4HB", 3, 3, 2, 2, 0) + b"\x02\x02\x44\x5c\x00"  # LZW of 0 1 0 1
    return b"GIF89a" + struct.pack("<2H3B", 8, 8, 0xF0, 0, 0) + palette + control + picture + b"\x3b"


def equal_times() -> bytes:
    """2000 frames a second on a clock of milliseconds."""
    return encode(CLIP, codec="mjpeg", container="matroska", pixel_format="yuvj420p", rate=2000)


VARIABLE = [0, 1, 2, 10, 11, 30, *range(40, 40 + FRAMES - 6)]
SHIFTED = list(range(40, 40 + FRAMES))

MADE = {
    # codecs
    "h264_b_frames.mp4": Made(video("libx264", "mp4", g="10", bf="3")),
    "h264_open_groups.mp4": Made(video("libx264", "mp4", **{"x264-params": "keyint=10:open-gop=1:bframes=3"})),
    "h264_no_key_frames.mp4": Made(video("libx264", "mp4", **{"x264-params": "keyint=10:intra-refresh=1"})),
    "h264_lossless.mp4": Made(video("libx264", "mp4", "yuv444p", qp="0", g="10"), lossless="yuv444p"),
    "h264_rgb_lossless.mkv": Made(video("libx264rgb", "matroska", "rgb24", qp="0", g="10"), lossless="rgb24"),
    "h264_10bit.mp4": Made(video("libx264", "mp4", "yuv420p10le", g="10")),
    "h264_422.mkv": Made(video("libx264", "matroska", "yuv422p", g="10")),
    "h264_interlaced.mp4": Made(video("libx264", "mp4", **{"x264-params": "tff=1:keyint=10"})),
    "hevc_open_groups.mp4": Made(
        video("libx265", "mp4", **{"x265-params": "log-level=none:keyint=10:open-gop=1:bframes=4"})
    ),
    "hevc_10bit.mp4": Made(video("libx265", "mp4", "yuv420p10le", **QUIET)),
    "hevc_12bit_444.mp4": Made(video("libx265", "mp4", "yuv444p12le", **QUIET)),
    "hevc_lossless.mkv": Made(
        video("libx265", "matroska", "yuv444p", **{"x265-params": "log-level=none:lossless=1:keyint=10"}),
        lossless="yuv444p",
    ),
    "av1.mkv": Made(video("libsvtav1", "matroska", **AV1)),
    "av1_10bit.mp4": Made(video("libsvtav1", "mp4", "yuv420p10le", **AV1)),
    "av1.obu": Made(video("libsvtav1", "obu", **AV1)),
    "vp8.webm": Made(video("libvpx", "webm", g="10")),
    "vp8.ivf": Made(video("libvpx", "ivf", g="10")),
    "vp8.ogv": Made(video("libvpx", "ogg", g="10")),
    "vp9.webm": Made(video("libvpx-vp9", "webm", g="10", **{"cpu-used": "8"})),
    "vp9_lossless.webm": Made(
        video("libvpx-vp9", "webm", "yuv444p", lossless="1", g="10", **{"cpu-used": "8"}), lossless="yuv444p"
    ),
    "mpeg4_b_frames.mp4": Made(video("mpeg4", "mp4", g="12", bf="2")),
    "mpeg4.avi": Made(video("mpeg4", "avi", g="12")),
    "mpeg4.nut": Made(video("mpeg4", "nut", g="12")),
    "mpeg4.m4v": Made(video("mpeg4", "m4v", g="12")),
    "mpeg2.ts": Made(video("mpeg2video", "mpegts", g="12", bf="2")),
    "mpeg2.mpg": Made(video("mpeg2video", "mpeg", g="12", bf="2")),
    "mpeg2.mxf": Made(video("mpeg2video", "mxf", g="12", bf="2")),
    "mpeg2_interlaced.ts": Made(video("mpeg2video", "mpegts", flags="+ildct+ilme", g="12")),
    "mpeg1.mpg": Made(video("mpeg1video", "mpeg", g="12")),
    "mjpeg.avi": Made(video("mjpeg", "avi", "yuvj420p")),
    "mjpeg.mjpeg": Made(video("mjpeg", "mjpeg", "yuvj422p")),
    "gif.gif": Made(video("gif", "gif", "rgb8")),
    "ffv1_rgb.mkv": Made(video("ffv1", "matroska", "bgr0"), lossless="rgb24"),
    "ffv1_12bit.mkv": Made(video("ffv1", "matroska", "yuv420p12le"), lossless="yuv420p12le"),
    "prores.mov": Made(video("prores", "mov", "yuv422p10le")),
    "ffvhuff.avi": Made(video("ffvhuff", "avi"), lossless="yuv420p"),
    "raw.y4m": Made(video("rawvideo", "yuv4mpegpipe"), lossless="yuv420p"),
    "apng.apng": Made(video("apng", "apng", "rgb24"), lossless="rgb24"),
    "wmv2.wmv": Made(video("wmv2", "asf", g="12")),
    "flv1.flv": Made(video("flv", "flv", g="12")),
    "msmpeg4.avi": Made(video("msmpeg4", "avi", g="12")),
    "qtrle.mov": Made(video("qtrle", "mov", "rgb24"), lossless="rgb24"),
    # packets that carry no times, or not one frame each
    "h264_no_times.h264": Made(video("libx264", "h264", g="10", bf="2")),
    "hevc_no_times.hevc": Made(video("libx265", "hevc", **QUIET)),
    "mpeg4_b_frames.avi": Made(video("mpeg4", "avi", g="12", bf="2")),
    "divx_packed.avi": Made(divx_packed, frames=29),
    "equal_times.mkv": Made(equal_times),
    "vp8_hidden.webm": Made(vp8_hidden, frames=26),
    "vp9_alt_ref.webm": Made(vp9_alt_ref, frames=60, size=(128, 96)),
    "vp9_alt_ref_split.mkv": Made(
        lambda: remux(vp9_alt_ref(), "matroska", filter="vp9_superframe_split"), frames=60, size=(128, 96)
    ),
    "vp9_shown_again.webm": Made(vp9_shown_again, frames=29),
    "edit_list.mp4": Made(partial(edit_list, 7), frames=23),
    "false_keys_h264.mp4": Made(lambda: with_false_keys(make("h264_open_groups.mp4"), "mp4")),
    "false_keys_no_key_frames.mp4": Made(lambda: with_false_keys(make("h264_no_key_frames.mp4"), "mp4")),
    "false_keys_hevc.mp4": Made(lambda: with_false_keys(make("hevc_open_groups.mp4"), "mp4")),
    "false_keys_mpeg4.mp4": Made(lambda: with_false_keys(make("mpeg4_b_frames.mp4"), "mp4")),
    "false_keys_gif.nut": Made(lambda: with_false_keys(make("gif.gif"), "nut")),
    "false_keys_vp8.mkv": Made(lambda: with_false_keys(make("vp8.webm"), "matroska")),
    # clocks
    "variable_rate.mp4": Made(partial(encode, CLIP, times=VARIABLE, rate=10, options={"g": "10"})),
    "variable_rate.mkv": Made(partial(encode, CLIP, times=VARIABLE, rate=10, container="matroska")),
    "late_start.mp4": Made(partial(encode, CLIP, times=SHIFTED)),
    "late_start.mkv": Made(partial(encode, CLIP, times=SHIFTED, container="matroska")),
    "late_start.ts": Made(partial(encode, CLIP, times=SHIFTED, container="mpegts")),
    # sizes
    "odd_444.mp4": Made(odd("libx264", "mp4", "yuv444p"), size=(65, 49)),
    "odd_444_10bit.mp4": Made(odd("libx264", "mp4", "yuv444p10le"), size=(65, 49)),
    "odd_vp9.webm": Made(odd("libvpx-vp9", "webm", "yuv420p", **{"cpu-used": "8"}), size=(65, 49)),
    "odd_mpeg2.ts": Made(odd("mpeg2video", "mpegts", "yuv420p"), size=(65, 49)),
    "odd_ffv1.mkv": Made(odd("ffv1", "matroska", "yuv420p"), size=(65, 49), lossless="yuv420p"),
    # headers, and what else a file holds
    "count_too_small.avi": Made(partial(avi_count, 7)),
    "count_too_large.avi": Made(partial(avi_count, 1000)),
    "latin1_title.avi": Made(latin1_title),
    "cover.mp4": Made(partial(encode, CLIP, cover_HWC=moving_square(1, 96, 128)[0])),
    "sound.mpg": Made(partial(encode, CLIP, codec="mpeg2video", container="mpeg", sound="mp2")),
    "sound.mkv": Made(partial(encode, CLIP, container="matroska", sound=True)),
    "header_first.mp4": Made(header_first),
    "fragmented.mp4": Made(partial(encode, CLIP, muxer={"movflags": "frag_keyframe+empty_moov"}, options={"g": "10"})),
}
