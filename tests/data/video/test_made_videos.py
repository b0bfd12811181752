"""Every rule of the decoder on a small video made here: random access equals a plain sequential decode."""

import io
from pathlib import Path

import av
import numpy as np
import pytest
from colour_formula import rgb_by_definition
from made_videos import (
    CLIP,
    FRAMES,
    MADE,
    ODD,
    SHIFTED,
    VARIABLE,
    damaged,
    header_first,
    ivf_with_a_false_length,
    make,
    packet_without_picture,
    sizes_change,
    transparent_gif,
    truncated,
    with_exif_orientation,
)
from sequential import assert_random_access_is_exact, in_order

from fixformer.data.video import DecodeError, Limits, NoVideoStream, open_video, packets
from fixformer.data.video import pyav_decoder as decode_pyav
from fixformer.errors import InputError
from videos import encode, jpeg, moving_square, noisy

each_made = pytest.mark.parametrize("name", MADE)


@each_made
def test_file_decodes_as_made(name: str) -> None:
    data, made = make(name), MADE[name]
    expected = in_order(data)
    assert len(expected) == made.frames
    with open_video(data) as video:
        assert len(video) == len(video.timestamps) == made.frames
        assert (video.info.width, video.info.height) == made.size
        assert video.timestamps[0] == 0
        assert (np.diff(video.timestamps) > 0).all()
        assert video.faults == ()
        assert_random_access_is_exact(data, video, seed=name)
        assert np.array_equal(video.get_frames(range(made.frames)), np.stack(list(expected.values())))


@each_made
@pytest.mark.parametrize("policy", ["strict", "partial"])
def test_random_access_without_packets_or_pictures_in_memory(
    name: str, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packets, "KEEP_BYTES", 0)
    monkeypatch.setattr(decode_pyav, "KEEP_PICTURE_BYTES", 0)
    with open_video(make(name), policy=policy) as video:
        assert_random_access_is_exact(make(name), video, seed=name)


@each_made
def test_threads_do_not_change_the_frames(name: str) -> None:
    with open_video(make(name), threads=2) as video:
        assert_random_access_is_exact(make(name), video, seed=name)


@each_made
def test_pictures_over_the_pixel_limit_are_refused(name: str) -> None:
    with pytest.raises(DecodeError), open_video(make(name), limits=Limits(pixels=60 * 40)) as video:
        video.get_frames([0])


@pytest.mark.parametrize("name", [name for name, made in MADE.items() if made.lossless])
def test_lossless_video_gives_back_the_source(name: str) -> None:
    source_THWC = ODD if name.startswith("odd") else CLIP
    with open_video(make(name)) as video:
        for index in (FRAMES - 1, 0, 13):
            source = av.VideoFrame.from_ndarray(source_THWC[index], format="rgb24")
            expected = source.reformat(format=MADE[name].lossless).to_ndarray(format="rgb24")
            assert np.array_equal(video.get_frames([index])[0], expected)


@pytest.mark.parametrize("name", ["variable_rate.mp4", "variable_rate.mkv"])
def test_times_of_a_variable_rate(name: str) -> None:
    with open_video(make(name)) as video:
        assert video.timestamps == pytest.approx(np.array(VARIABLE) / 10)
        assert np.array_equal(video.get_frames_at([0.95, 2.9]), video.get_frames([2, 4]))


@pytest.mark.parametrize("name", [name for name in MADE if name.startswith("late_start")])
def test_the_clock_starts_at_the_first_frame(name: str) -> None:
    """A frame is on show from its own time until the next one's."""
    with av.open(io.BytesIO(make(name))) as container:
        assert next(container.decode(video=0)).time >= SHIFTED[0] / 25
    with open_video(make(name)) as video:
        assert video.timestamps == pytest.approx(np.arange(FRAMES) / 25)
        times = [*video.timestamps, 0.05, 0.41]
        assert np.array_equal(video.get_frames_at(times), video.get_frames([*range(FRAMES), 1, 10]))
        for outside in (-0.1, 1.3):
            with pytest.raises(InputError, match=f"{outside:g} s"):
                video.get_frames_at([outside])


@pytest.mark.parametrize(
    ("name", "claimed"),
    [
        ("h264_b_frames.mp4", FRAMES),
        ("vp8.webm", None),
        ("mpeg2.ts", None),
        ("count_too_small.avi", 7),
        ("count_too_large.avi", 1000),
        ("divx_packed.avi", 30),
    ],
)
def test_the_headers_count_is_only_a_claim(name: str, claimed: int | None) -> None:
    with open_video(make(name)) as video:
        assert video.info.header_frames == claimed
        assert len(video) == MADE[name].frames


def test_requests_continue_where_the_last_one_ended() -> None:
    data = encode(noisy(60), options={"x264-params": "keyint=25:bframes=3"})
    with open_video(data) as video:
        frames_THWC = np.concatenate([video.get_frames(range(i, i + 6)) for i in range(0, 60, 6)])
    assert np.array_equal(frames_THWC, np.stack(list(in_order(data).values())))


@pytest.mark.parametrize(
    ("codec", "container", "fill"),
    [
        ("libx264", "mp4", 0xFF),
        ("libx265", "mp4", 0xFF),
        ("libsvtav1", "mp4", 0xFF),
        ("mpeg4", "mp4", 0xFF),
        ("mjpeg", "avi", 0xFF),
        ("mjpeg", "avi", 0),
    ],
)
def test_damage_in_the_middle(codec: str, container: str, fill: int) -> None:
    """Frames before the damage are right; from it on, "strict" raises and "partial" keeps what a player shows."""
    form = "yuvj420p" if codec == "mjpeg" else "yuv420p"
    quiet = {"x265-params": "log-level=none:bframes=0"} if codec == "libx265" else {"bf": "0"}
    whole = encode(CLIP, codec=codec, container=container, pixel_format=form, options={"g": "10", **quiet})
    data = damaged(whole, 14, fill)
    shown = in_order(data)
    with open_video(data) as video:
        before = video.get_frames([3, 13])
        with pytest.raises(DecodeError) as caught:
            video.get_frames([13, 14, 15])
    assert (caught.value.file, caught.value.stream, caught.value.frame) == ("<bytes>", 0, 14)
    with open_video(data, policy="partial") as video:
        assert len(video) == len(shown)
        assert video.faults[0].frame == 14
        assert np.array_equal(video.get_frames([3, 13]), before)
        assert np.array_equal(video.get_frames(range(len(shown))), np.stack(list(shown.values())))


def test_a_picture_damaged_in_part() -> None:
    """The decoder conceals the damage; "strict" does not."""
    data = damaged(encode(CLIP, options={"g": "10", "bf": "0", "crf": "10"}), 14, part=0.5)
    with open_video(data) as video, pytest.raises(DecodeError, match=r"frame 14: .*damaged"):
        video.get_frames([13, 14, 15])
    with open_video(data, policy="partial") as video:
        assert len(video) == FRAMES
        assert [fault.frame for fault in video.faults] == [14]


def test_packets_promise_a_frame_that_is_not_there() -> None:
    data = packet_without_picture(14)
    with open_video(data) as video:
        assert len(video) == FRAMES
        with pytest.raises(DecodeError, match=rf"{FRAMES} frames.* {FRAMES - 1}$"):
            video.get_frames([14, FRAMES - 1])
        assert len(video) == FRAMES - 1
        assert_random_access_is_exact(data, video)


def test_the_first_packet_promises_a_frame_that_is_not_there() -> None:
    data = packet_without_picture(0, group=1)
    with open_video(data) as video:
        assert (video.info.width, video.info.height) == (64, 48)
        assert len(video) == FRAMES - 1
        assert_random_access_is_exact(data, video)


def test_a_container_that_cannot_be_read_to_the_end() -> None:
    data = ivf_with_a_false_length(14)
    with open_video(data) as video, pytest.raises(DecodeError, match="frame 14: "):
        len(video)
    with open_video(data, policy="partial") as video:
        assert len(video) == 14
        assert [fault.frame for fault in video.faults] == [14]


def test_a_picture_of_another_size_is_scaled_to_the_first() -> None:
    with open_video(sizes_change()) as video:
        assert len(video) == FRAMES
        assert video.get_frames([0, FRAMES - 1]).shape == (2, 48, 64, 3)


def test_nothing_to_show() -> None:
    for policy in ("strict", "partial"):
        with open_video(damaged(encode(CLIP[:1]), 0), policy=policy) as video, pytest.raises(DecodeError):
            video.get_frames([0])


def test_no_decoder_for_the_codec() -> None:
    data = encode(CLIP[:3], container="matroska").replace(b"V_MPEG4/ISO/AVC", b"V_UNKNOWN/CODEC")
    with pytest.raises(DecodeError, match="stream 0: no decoder"):
        open_video(data)


def test_truncated_file() -> None:
    data = truncated()
    with open_video(data) as video, pytest.raises(DecodeError, match="frame 20: "):
        len(video)
    with open_video(data, policy="partial") as video:
        assert 15 <= len(video) <= 21
        assert f"21 of {FRAMES}" in video.faults[1].message


def test_file_cut_between_two_packets() -> None:
    data = header_first()
    with open_video(data[: -len(data) // 50]) as video, pytest.raises(DecodeError, match=f"frame {FRAMES - 1}: "):
        len(video)


BLOCKS = np.kron(np.random.default_rng(0).integers(0, 256, (2, 3, 4, 3)), np.ones((1, 32, 32, 1))).astype(np.uint8)


@pytest.mark.parametrize("bits", [8, 10])
@pytest.mark.parametrize(
    ("matrix", "kr", "kb"), [(2, 0.299, 0.114), (6, 0.299, 0.114), (1, 0.2126, 0.0722), (9, 0.2627, 0.0593)]
)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("chroma", ["420", "444"])
def test_colours(bits: int, matrix: int, kr: float, kb: float, full: bool, chroma: str) -> None:
    """By the matrix and range the stream is tagged with (2: untagged, which is BT.601)."""
    data = encode(
        BLOCKS,
        pixel_format=f"yuv{chroma}p" + ("10le" if bits == 10 else ""),
        tags={"colorspace": matrix, "color_range": 2 if full else 1},
        options={"qp": "10"},
    )
    with av.open(io.BytesIO(data)) as container:
        expected, comparable = rgb_by_definition(next(container.decode(video=0)), kr, kb, bits, full)
    with open_video(data) as video:
        difference = np.abs(video.get_frames([0])[0] - expected)
    assert comparable.mean() > 0.05
    assert difference[comparable].max() <= 4
    if chroma == "444":
        assert difference.max() <= 4


def test_sound_or_a_cover_is_not_a_video() -> None:
    cover_HWC = moving_square(1)[0]
    for data in (
        encode(None, sound=True),
        encode(None, sound="mp2", container="mpeg"),
        encode(None, sound="libopus", container="matroska"),
        encode(None, sound=True, cover_HWC=cover_HWC),
    ):
        with pytest.raises(NoVideoStream, match="audio"):
            open_video(data)


def test_gif_transparency_is_white() -> None:
    with open_video(transparent_gif()) as video:
        frame_HWC = video.get_frames([0])[0]
    expected_HWC = np.full((8, 8, 3), 255)
    expected_HWC[3:5, 3] = (255, 0, 0)
    assert np.array_equal(frame_HWC, expected_HWC)


@pytest.mark.parametrize(("orientation", "angle"), [(1, 0), (3, 180), (6, 90), (8, 270)])
def test_orientation_of_a_photo(orientation: int, angle: int, tmp_path: Path) -> None:
    picture = jpeg(moving_square(1)[0])
    (tmp_path / "0.jpg").write_bytes(with_exif_orientation(picture, orientation))
    with open_video(tmp_path) as video, open_video(picture) as plain:
        assert video.info.rotation == angle
        assert np.array_equal(video.get_frames([0])[0], np.rot90(plain.get_frames([0])[0], -angle // 90))
