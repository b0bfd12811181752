"""Every foreign file decodes as an independent tool says, and random access equals decoding in order.

`expected_videos.csv` was written by ffprobe 5.1 (frames counted by decoding, size and rotation of the stream), not by
this package. The files are not part of the repository (see tests/conftest.py); `made_videos.py` has a twin for every
rule that they show.
"""

import csv
from pathlib import Path

import av
import numpy as np
import pytest
from colour_formula import CORNER, rgb_by_definition
from sequential import assert_random_access_is_exact

from fixformer.data.video import DecodeError, VideoInfo, open_video, packets
from fixformer.data.video import pyav_decoder as decode_pyav

pytestmark = pytest.mark.slow

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
        assert_random_access_is_exact(path, video, requests=1, seed=path.name)


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
            assert_random_access_is_exact(videos / path, video, seed=path)


@pytest.mark.parametrize("path", VARIED)
def test_threads_do_not_change_the_frames(path: str, videos: Path) -> None:
    with open_video(videos / path, threads=2) as video:
        assert_random_access_is_exact(videos / path, video, seed=path)


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
