"""Every file of the shared set decodes as an independent tool says, and random access equals decoding in order.

`expected_videos.csv` was written by ffprobe 5.1 (frames counted by decoding, size and rotation of the stream), not by
this package.
"""

import contextlib
import csv
import io
import os
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest

from fixformer.data.video import DecodeError, Decoder, Limits, Policy, VideoInfo, open_video, packets
from fixformer.data.video import pyav_decoder as decode_pyav
from fixformer.data.video import torchcodec_decoder as decode_torchcodec
from fixformer.errors import InputError, UnknownName, UserError
from videos import encode, jpeg, moving_square

EXPECTED = list(csv.DictReader((Path(__file__).parent / "expected_videos.csv").open()))
BROKEN = "decord/tests__test_data__corrupted.mp4"
# one of each way to reach a frame: by time with many and with few key packets, hidden packets, no times, packed packets
VARIED = [
    "torchvision/test__assets__videos__v_SoccerJuggling_g23_c01.avi",
    "torchvision/test__assets__videos__TrumanShow_wave_f_nm_np1_fr_med_26.avi",
    "torchcodec/test__resources__sine_stereo_mp2.mpg",
    "torchcodec/test__resources__discard_first_keyframe.mp4",
    "torchcodec/test__resources__h265_video.mp4",
    "torchcodec/test__resources__test_non_zero_start.mp4",
    "ssv2_dvd/demos__task5__1.webm",
    "mmaction2/demo__demo_spatiotemporal_det.mp4",
]


@pytest.fixture(scope="session")
def videos(shared: Path) -> Path:
    return shared / "data" / "videos"


def test_the_table_lists_every_file(videos: Path) -> None:
    present = {p.relative_to(videos).as_posix() for p in videos.glob("*/*") if p.parent.name != "licences"}
    assert present == {row["path"] for row in EXPECTED}


def in_order(path: Path, wanted: set[int]) -> dict[int, np.ndarray]:
    """Some frames of a plain sequential decode with PyAV, turned by its own reading of the angle."""
    found = {}
    with av.open(str(path), metadata_errors="replace") as container:
        stream = container.streams.best("video")
        stream.codec_context.thread_count = 1
        for number, frame in enumerate(undamaged(container, stream)):
            if number in wanted:
                found[number] = np.rot90(frame.to_ndarray(format="rgb24"), round(frame.rotation / 90)).copy()
    return found


def undamaged(container: av.container.InputContainer, stream: av.VideoStream) -> Iterator[av.VideoFrame]:
    """What players do with a packet that cannot be decoded: go on with the next."""
    for packet in container.demux(stream):
        with contextlib.suppress(av.error.InvalidDataError):
            yield from packet.decode()


def pick(path: str, count: int) -> list[int]:
    """Scattered frames, a run of neighbours, the ends, out of order and repeated."""
    rng = random.Random(path)
    middle = rng.randrange(count)
    run = [min(count - 1, middle + i) for i in range(4)]
    picks = [rng.randrange(count) for _ in range(6)] + run + [0, count - 1, count - 1]
    rng.shuffle(picks)
    return picks


def assert_random_access_is_exact(path: Path, video: Decoder, requests: int = 2) -> None:
    picks = [pick(f"{path.name}{number}", len(video)) for number in range(requests)]
    expected = in_order(path, {index for request in picks for index in request})
    for request in picks:
        for index, frame_HWC in zip(request, video.get_frames(request), strict=True):
            assert np.array_equal(frame_HWC, expected[index]), f"frame {index}"


@pytest.mark.parametrize("row", EXPECTED, ids=lambda row: row["path"])
def test_file_decodes_as_expected(row: dict[str, str], videos: Path) -> None:
    """The table, and random access equal to sequential decode; a fault is met under "strict", recorded otherwise."""
    path, fault = videos / row["path"], row["fault_frame"]
    with open_video(path, policy="partial" if fault else "strict") as video:
        info = video.info
        assert len(video) == len(video.timestamps) == int(row["frames"])
        assert (info.width, info.height) == (int(row["width"]), int(row["height"]))
        assert (info.rotation, info.mirrored) == (int(row["rotation"]), False)
        assert video.timestamps[0] == 0
        assert (np.diff(video.timestamps) > 0).all()
        assert [found.frame for found in video.faults[:1]] == ([int(fault)] if fault else [])
        assert_random_access_is_exact(path, video, requests=1)


def test_only_the_broken_file_is_broken(videos: Path) -> None:
    assert [row["path"] for row in EXPECTED if row["fault_frame"]] == [BROKEN]


@pytest.mark.parametrize("path", VARIED)
def test_random_access_without_packets_or_pictures_in_memory(
    path: str, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packets, "KEEP_BYTES", 0)
    monkeypatch.setattr(decode_pyav, "KEEP_PICTURE_BYTES", 0)
    for policy in ("strict", "partial"):
        with open_video(videos / path, policy=policy) as video:
            assert_random_access_is_exact(videos / path, video)


@pytest.mark.parametrize("path", VARIED)
def test_threads_do_not_change_the_frames(path: str, videos: Path) -> None:
    with open_video(videos / path, threads=2) as video:
        assert_random_access_is_exact(videos / path, video)


def noisy(frames: int) -> np.ndarray:
    """Pictures that no decoder can guess."""
    noise = np.random.default_rng(0).integers(-20, 20, (frames, 48, 64, 3))
    return np.clip(moving_square(frames).astype(int) + noise, 0, 255).astype(np.uint8)


@pytest.mark.parametrize(
    ("codec", "options"),
    [
        ("libx264", {"x264-params": "keyint=20:open-gop=1:bframes=3"}),
        ("libx264", {"x264-params": "keyint=20:intra-refresh=1"}),
        ("libx265", {"x265-params": "log-level=none:keyint=20:open-gop=1:bframes=4"}),
        ("mpeg4", {"g": "12", "bf": "2"}),
        ("libvpx", {"g": "20", "auto-alt-ref": "1", "lag-in-frames": "10", "cpu-used": "8"}),
    ],
    ids=["open groups", "no key frames", "HEVC open groups", "MPEG-4", "hidden VP8 frames"],
)
@pytest.mark.parametrize("keys", ["true", "false"])
def test_random_access_to_made_files(codec: str, options: dict[str, str], keys: str, tmp_path: Path) -> None:
    """Groups that refer to each other, and containers that lie about which packets are key packets."""
    container = "matroska" if codec == "libvpx" else "mp4"
    data = encode(noisy(50), codec=codec, container=container, options=options)
    path = tmp_path / "clip"
    path.write_bytes(data if keys == "true" else with_false_keys(data, container))
    with open_video(path) as video:
        assert_random_access_is_exact(path, video)


def with_false_keys(data: bytes, container: str) -> bytes:
    buffer = io.BytesIO()
    with av.open(io.BytesIO(data)) as source, av.open(buffer, "w", format=container) as copy:
        stream = source.streams.video[0]
        target = copy.add_stream_from_template(stream)
        for number, packet in enumerate(source.demux(stream)):
            if packet.size:
                packet.is_keyframe |= number in (17, 31, 40)
                packet.stream = target
                copy.mux(packet)
    return buffer.getvalue()


def test_requests_go_on_where_the_last_one_ended(videos: Path) -> None:
    path = videos / "mmaction2/demo__demo.mp4"
    with open_video(path) as video:
        frames_THWC = np.concatenate([video.get_frames(range(i, i + 7)) for i in range(0, 140, 7)])
    expected = in_order(path, set(range(140)))
    assert all(np.array_equal(frame, expected[i]) for i, frame in enumerate(frames_THWC))


def test_broken_file_is_an_error_or_its_good_frames(videos: Path) -> None:
    path = videos / BROKEN
    with open_video(path) as video:
        before = video.get_frames([3, 27])
        with pytest.raises(DecodeError, match=r"corrupted\.mp4, stream 0, frame 28: Invalid data") as caught:
            video.get_frames([27, 29])
    assert (caught.value.file, caught.value.stream, caught.value.frame) == (str(path), 0, 28)
    with open_video(path, policy="partial") as video:
        assert len(video) == 49
        assert np.array_equal(video.get_frames([3, 27]), before)
        assert video.get_frames(range(49)).shape == (49, 720, 1280, 3)
        assert [fault.frame for fault in video.faults] == [28, 31]


def test_truncated_file(videos: Path) -> None:
    whole = (videos / "intel_sample_videos/car-detection.mp4").read_bytes()
    data = whole[: len(whole) * 6 // 10]
    with open_video(data) as video, pytest.raises(DecodeError, match="ends early: 220 of 377"):
        len(video)
    with open_video(data, policy="partial") as video:
        assert 215 <= len(video) <= 220
        assert "ends early" in video.faults[0].message


@pytest.mark.parametrize("angle", [0, 90, 180, 270])
@pytest.mark.parametrize("mirrored", [False, True])
def test_upright(angle: int, mirrored: bool) -> None:
    """FFmpeg's muxer writes a turn, then a mirroring; the decoder tells of a mirroring, then a turn."""
    data = encode(moving_square(3, 48, 80), rotation=angle, mirrored=mirrored)
    with open_video(encode(moving_square(3, 48, 80))) as plain, open_video(data) as video:
        turned, actual = np.rot90(plain.get_frames([0])[0], -angle // 90), video.get_frames([0])[0]
        assert np.array_equal(actual, turned[:, ::-1] if mirrored else turned)
        assert (video.info.rotation, video.info.mirrored) == (-angle % 360 if mirrored else angle, mirrored)
        assert (video.info.height, video.info.width) == actual.shape[:2]


class Pipe(io.RawIOBase):
    """A file object that can only be read forward."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def read(self, size: int = -1) -> bytes:
        return self._data.read(size)


def test_paths_bytes_and_file_objects_are_the_same(videos: Path) -> None:
    path = videos / "ssv2_dvd/demos__task5__0.webm"
    data = path.read_bytes()
    frames, looked_into = [], io.BytesIO(data)
    looked_into.read(100)
    for source in (path, str(path), data, io.BytesIO(data), looked_into, Pipe(data)):
        with open_video(source) as video:
            frames.append(video.get_frames([50, 3]))
    assert all(np.array_equal(frames[0], other) for other in frames[1:])


def test_a_colon_in_a_name_is_not_a_protocol(tmp_path: Path) -> None:
    path = tmp_path / "clip:1%03d.mp4"
    path.write_bytes(encode(moving_square(3)))
    with open_video(path) as video:
        assert len(video) == 3


def test_frames_by_time(videos: Path) -> None:
    """A frame is on show from its own time until the next one's; the clock starts at the first frame."""
    with open_video(videos / "torchcodec/test__resources__test_non_zero_start.mp4") as video:
        assert video.timestamps[0] == 0
        times = [*video.timestamps, 0.05, 0.36]
        by_number = [*range(12), 1, 10]
        assert np.array_equal(video.get_frames_at(times), video.get_frames(by_number))
        for outside in (-0.1, 0.5):
            with pytest.raises(InputError, match=f"{outside:g} s "):
                video.get_frames_at([outside])


def test_variable_frame_rate() -> None:
    times = [0, 1, 5, 6, 7, 30]
    with open_video(encode(moving_square(6), times=times, rate=10)) as video:
        assert video.timestamps == pytest.approx([0, 0.1, 0.5, 0.6, 0.7, 3.0])
        assert np.array_equal(video.get_frames_at([0.49, 2.9]), video.get_frames([1, 4]))


@pytest.mark.parametrize(("size", "short"), [((40, 72), 20), ((72, 40), 20), ((41, 73), 33), ((40, 72), 80)])
def test_short_side(size: tuple[int, int], short: int) -> None:
    height, width = size
    for rotation in (0, 90):
        upright = (height, width) if rotation == 0 else (width, height)
        long_side = max(size) * short // min(size)
        expected = (short, long_side) if upright[0] < upright[1] else (long_side, short)
        with open_video(encode(moving_square(2, height, width), rotation=rotation), short_side=short) as video:
            assert video.get_frames([1]).shape[1:3] == expected == (video.info.height, video.info.width)


def test_a_picture_of_another_size_is_scaled_to_the_first(tmp_path: Path) -> None:
    for number, size in enumerate([(32, 48), (64, 96)]):
        (tmp_path / f"{number}.jpg").write_bytes(jpeg(moving_square(1, *size)[0]))
    with open_video(tmp_path) as video:
        assert video.get_frames([0, 1]).shape == (2, 32, 48, 3)


CORNER = np.s_[-241:, -321:]  # enough of the picture, with the last line and column

# Kr and Kb of the colour matrices the files are tagged with; untagged is BT.601
MATRICES = {
    "torchcodec/test__resources__bt601_limited_range.mp4": (0.299, 0.114, 8, False),
    "torchcodec/test__resources__bt601_full_range.mp4": (0.299, 0.114, 8, True),
    "torchcodec/test__resources__bt709_full_range.mp4": (0.2126, 0.0722, 8, True),
    "torchcodec/test__resources__bt2020_10bit.mp4": (0.2627, 0.0593, 10, False),
    "torchcodec/test__resources__testsrc2_12bit_hdr.mp4": (0.2627, 0.0593, 12, False),
    "torchcodec/test__resources__testsrc2_444_10bit_hevc.mp4": (0.299, 0.114, 10, False),
    "torchcodec/test__resources__testsrc2_odd_height_and_width_444.mp4": (0.299, 0.114, 8, False),
    "torchcodec/test__resources__testsrc2_odd_height_and_width_vp9.mp4": (0.299, 0.114, 8, False),
    "torchcodec/test__resources__testsrc2_odd_height_and_width_vp9_10bit.mp4": (0.299, 0.114, 10, False),
    "torchcodec/test__resources__testsrc2_odd_height_and_width_mpeg2.mp4": (0.299, 0.114, 8, False),
}


def rgb_by_definition(
    frame: av.VideoFrame, kr: float, kb: float, bits: int, full: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The standard's formula in floating point, chroma repeated to the size of luma; and where chroma is flat."""
    dtype, scale = (np.uint8, 1) if bits == 8 else (np.dtype("<u2"), 1 << (bits - 8))
    y, u, v = (np.frombuffer(p, dtype).reshape(p.height, -1)[:, : p.width] / scale for p in frame.planes)
    if u.shape != y.shape:
        u, v = (c.repeat(2, 0).repeat(2, 1)[: y.shape[0], : y.shape[1]] for c in (u, v))
    y, u, v = (plane[CORNER] for plane in (y, u, v))
    black, luma, chroma = (0, 255, 255) if full else (16, 219, 224)
    light, cb, cr = (y - black) / luma, (u - 128) / chroma, (v - 128) / chroma
    r, b = light + 2 * (1 - kr) * cr, light + 2 * (1 - kb) * cb
    g = (light - kr * r - kb * b) / (1 - kr - kb)
    return np.clip(np.stack([r, g, b], -1) * 255, 0, 255), flat(u) & flat(v)


def flat(plane_HW: np.ndarray) -> np.ndarray:
    """Where a plane does not change, so that its interpolation cannot matter."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(plane_HW, 3, mode="edge"), (7, 7))
    return np.ptp(windows, axis=(2, 3)) <= 1


@pytest.mark.parametrize("path", MATRICES)
def test_colours(path: str, videos: Path) -> None:
    with av.open(str(videos / path)) as container:
        expected, comparable = rgb_by_definition(next(container.decode(video=0)), *MATRICES[path])
    with open_video(videos / path) as video:
        difference = np.abs(video.get_frames([0])[0][CORNER] - expected)
    assert comparable.mean() > 0.05
    assert difference[comparable].max() <= 4
    if "444" in path:
        assert difference.max() <= 4


def test_gif_transparency_is_white(videos: Path) -> None:
    with open_video(videos / "torchcodec/test__resources__transparent.gif") as video:
        frame_HWC = video.get_frames([0])[0]
    assert frame_HWC.dtype == np.uint8
    assert (frame_HWC == 255).all(axis=-1).any()


def test_image_folder(tmp_path: Path) -> None:
    pictures = moving_square(11)
    for number, picture in enumerate(pictures):
        (tmp_path / f"frame{number}.jpg").write_bytes(jpeg(picture))
    (tmp_path / "notes.txt").write_text("not a picture")
    with open_video(tmp_path, fps=5) as video:
        assert len(video) == 11  # frame10 after frame9
        assert np.abs(video.get_frames([10, 2]).astype(int) - pictures[[10, 2]]).mean() < 8
        assert np.array_equal(video.get_frames_at([2.0]), video.get_frames([10]))
        assert (video.info.fps, video.info.width, video.info.codec) == (5, 64, "jpg")
    with open_video(tmp_path) as video, pytest.raises(InputError, match="no clock"):
        video.get_frames_at([0.0])


def test_image_folder_with_a_damaged_image(tmp_path: Path) -> None:
    for number, picture in enumerate(moving_square(4)):
        data = jpeg(picture)
        (tmp_path / f"{number}.jpg").write_bytes(data[: len(data) // 2] if number == 1 else data)
    with open_video(tmp_path) as video:
        assert len(video.get_frames([0, 3])) == 2
        with pytest.raises(DecodeError, match=r"1\.jpg"):
            video.get_frames([1])
    with open_video(tmp_path, policy="partial") as video:
        assert len(video) == 3
        assert [fault.frame for fault in video.faults] == [1]


def test_image_folder_with_odd_names(tmp_path: Path) -> None:
    for name in ("²5.jpg", "x².jpg", "10.jpg", "9.jpg"):
        (tmp_path / name).write_bytes(jpeg(moving_square(1)[0]))
    (tmp_path / "._9.jpg").write_bytes(b"macOS writes such files beside the real ones")
    with open_video(tmp_path) as video:
        assert len(video.get_frames(range(len(video)))) == 4


@pytest.mark.parametrize("policy", ["strict", "partial"])
def test_image_folder_within_limits(tmp_path: Path, policy: Policy) -> None:
    for number, picture in enumerate(moving_square(5)):
        (tmp_path / f"{number}.jpg").write_bytes(jpeg(picture))
    with pytest.raises(DecodeError, match="more than 4 frames"):
        open_video(tmp_path, policy=policy, limits=Limits(frames=4))
    with (
        open_video(tmp_path, policy=policy, limits=Limits(seconds=1e-4)) as video,
        pytest.raises(DecodeError, match=r"gave up after 0\.0001 s"),
    ):
        video.get_frames(range(5))


def test_not_a_video(tmp_path: Path, videos: Path) -> None:
    text = tmp_path / "words.mp4"
    text.write_text("not a video " * 100)
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo.mp4")
    for name, words in {
        "words.mp4": "cannot be opened as a video",
        "empty.mp4": "cannot be opened as a video",
        "missing.mp4": "no such file",
        "folder": "without images",
        "fifo.mp4": "not a regular file",
    }.items():
        with pytest.raises(DecodeError, match=words) as caught:
            open_video(tmp_path / name)
        assert name in str(caught.value)
    with pytest.raises(DecodeError, match=r"no video stream \(it holds audio\)"):
        open_video(encode(None, sound=True))


def test_playlists_do_not_open_other_files(tmp_path: Path) -> None:
    (tmp_path / "clip.mp4").write_bytes(encode(moving_square(3)))
    playlist = tmp_path / "list.mp4"
    playlist.write_text("ffconcat version 1.0\nfile clip.mp4\n")
    with pytest.raises(DecodeError, match="cannot be opened"):
        open_video(playlist)


@pytest.mark.parametrize("indices", [[-1], [3], [0, 99]])
def test_frames_outside_the_video(indices: list[int]) -> None:
    with open_video(encode(moving_square(3))) as video:
        with pytest.raises(InputError, match=rf"frame {indices[-1]} .*0 to 2"):
            video.get_frames(indices)
        assert video.get_frames([]).shape == (0, 48, 64, 3)


def test_unknown_backend() -> None:
    with pytest.raises(UnknownName, match="pyav"):
        open_video(b"", backend="pyva")


def gif_bomb(width: int, height: int) -> bytes:
    """A logical screen of any size, and one picture of one pixel."""
    data = b"GIF89a" + width.to_bytes(2, "little") + height.to_bytes(2, "little") + b"\xf0\x00\x00"
    data += bytes(6) + b"\x2c" + bytes(4) + b"\x01\x00\x01\x00\x00" + b"\x02\x02\x44\x01\x00" + b"\x3b"
    return data


def jpeg_bomb(width: int, height: int) -> bytes:
    data = bytearray(jpeg(moving_square(1)[0]))
    start = data.index(b"\xff\xc0") + 5
    data[start : start + 4] = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    return bytes(data)


@pytest.mark.parametrize("bomb", [gif_bomb, jpeg_bomb])
@pytest.mark.parametrize("size", [(16384, 16384), (16000, 16000), (65535, 4000)])
def test_a_bomb_is_refused(bomb: object, size: tuple[int, int]) -> None:
    assert callable(bomb)
    with pytest.raises(DecodeError), open_video(bomb(*size), policy="partial") as video:
        len(video)


def test_pixel_limit_names_the_size(videos: Path) -> None:
    with pytest.raises(DecodeError, match="1280 x 720 pixels exceeds the limit"):
        open_video(videos / BROKEN, limits=Limits(pixels=640 * 480))


class Endless(io.RawIOBase):
    """A stream that never ends: one picture after another."""

    def __init__(self, part: bytes) -> None:
        self._part, self._at = part, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def read(self, size: int = -1) -> bytes:
        begin = self._at % len(self._part)
        data = self._part[begin : begin + size]
        self._at += len(data)
        return data


@pytest.mark.parametrize("limits", [Limits(seconds=0.5), Limits(frames=500)])
@pytest.mark.parametrize("policy", ["strict", "partial"])
def test_an_endless_stream_ends(limits: Limits, policy: str) -> None:
    stream = Endless(jpeg(moving_square(1)[0]))
    with (
        pytest.raises(DecodeError, match=r"gave up after 0\.5 s|more than 500 frames"),
        open_video(stream, policy=policy, limits=limits) as video,
    ):
        len(video)


def test_request_larger_than_the_limit() -> None:
    data = encode(moving_square(3))
    with open_video(data, limits=Limits(bytes=10_000)) as video, pytest.raises(InputError, match="short_side"):
        video.get_frames([0, 1])


def test_errors_survive_the_way_home_from_a_worker() -> None:
    error = DecodeError("torn", file="a.mp4", stream=0, frame=3)
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error) == "a.mp4, stream 0, frame 3: torn"
    assert (copy.problem, copy.file, copy.stream, copy.frame) == ("torn", "a.mp4", 0, 3)
    assert isinstance(copy, UserError)


def test_torchcodec_backend_agrees(videos: Path) -> None:
    pytest.importorskip("torchcodec.decoders", exc_type=(ImportError, RuntimeError))
    for path in ("decord/tests__test_data__video_90.mov", "mmaction2/demo__demo.mp4", "ssv2_dvd/demos__task5__1.webm"):
        with open_video(videos / path) as ours, open_video(videos / path, backend="torchcodec") as theirs:
            assert len(ours) == len(theirs)
            picks = [0, len(ours) - 1, 1]
            assert np.abs(ours.get_frames(picks).astype(int) - theirs.get_frames(picks)).mean() < 1
            assert ours.timestamps == pytest.approx(theirs.timestamps, abs=1e-3)
            mine, other = ours.info, theirs.info
            assert isinstance(other, VideoInfo)
            assert (mine.width, mine.height, mine.rotation) == (other.width, other.height, other.rotation)
        with (
            open_video(videos / path, short_side=64) as ours,
            open_video(videos / path, backend="torchcodec", short_side=64) as theirs,
        ):
            assert ours.get_frames([1]).shape == theirs.get_frames([1]).shape


def test_torchcodec_missing_or_conflicting() -> None:
    try:
        import torchcodec.decoders  # noqa: F401
    except (ImportError, RuntimeError):
        with pytest.raises(UserError, match="torchcodec"):
            open_video(encode(moving_square(3)), backend="torchcodec")
    with pytest.raises(UserError, match="partial"):
        open_video(encode(moving_square(3)), backend="torchcodec", policy="partial")


class Torn:
    """Stands for torchcodec's decoder of a file that breaks off."""

    metadata = SimpleNamespace(width=8, height=8, stream_index=1)

    def __len__(self) -> int:
        return 3

    def get_frames_at(self, _: list[int]) -> object:
        raise RuntimeError("could not push packet")

    def get_frames_in_range(self, *_: int) -> object:
        raise RuntimeError("could not push packet")


def test_torchcodec_errors_are_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_torchcodec, "_open", lambda *_: Torn())
    video = open_video("a.mp4", backend="torchcodec")
    with pytest.raises(DecodeError, match=r"^a\.mp4, stream 1: could not push"):
        _ = video.timestamps
    with pytest.raises(DecodeError, match=r"^a\.mp4, stream 1: could not push"):
        video.get_frames([0])
