"""Sources, orientation, time, sizes, image folders, limits and errors of `open_video`, on videos made here."""

import io
import os
import pickle
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from made_videos import make

from fixformer.data.video import DecodeError, Limits, Policy, open_video
from fixformer.data.video import torchcodec_decoder as decode_torchcodec
from fixformer.errors import InputError, UnknownName, UserError
from videos import encode, jpeg, moving_square


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


def test_paths_bytes_and_file_objects_are_the_same(tmp_path: Path) -> None:
    data, path = make("vp8_hidden.webm"), tmp_path / "clip.webm"
    path.write_bytes(data)
    frames, looked_into = [], io.BytesIO(data)
    looked_into.read(100)
    for source in (path, str(path), data, io.BytesIO(data), looked_into, Pipe(data)):
        with open_video(source) as video:
            frames.append(video.get_frames([20, 3]))
    assert all(np.array_equal(frames[0], other) for other in frames[1:])


def test_a_colon_in_a_name_is_not_a_protocol(tmp_path: Path) -> None:
    path = tmp_path / "clip:1%03d.mp4"
    path.write_bytes(encode(moving_square(3)))
    with open_video(path) as video:
        assert len(video) == 3


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
    with open_video(tmp_path) as video, pytest.raises(InputError, match="no timestamps"):
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


def test_image_folder_without_a_whole_image(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.jpg").write_bytes(b"no picture")
    with open_video(tmp_path, policy="partial") as video, pytest.raises(DecodeError, match="3 images"):
        len(video)


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


def test_not_a_video(tmp_path: Path) -> None:
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


def test_pixel_limit_names_the_size() -> None:
    with pytest.raises(DecodeError, match="64 x 48 pixels exceeds the limit"):
        open_video(make("h264_b_frames.mp4"), limits=Limits(pixels=60 * 40))


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
