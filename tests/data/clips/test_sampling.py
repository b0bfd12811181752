"""Index arithmetic: equal to the released code, and lawful for any length."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixformer.data.clips import sampling

LENGTHS = st.integers(1, 400)
FRAMES = st.integers(1, 40)
POLICIES = st.sampled_from(["repeat_last", "loop"])


def test_uniform_equals_released(golden_sampling: dict[str, Any]) -> None:
    for case in golden_sampling["tsn"]["cases"]:
        n, frames = case["video_length"], case["frames"]
        assert sampling.uniform_test(n, frames, 3).tolist() == case["views"]
        assert sampling.uniform_test(n, frames)[0].tolist() == case["val"]
        assert sampling.segment_bounds(n, frames).tolist() == case["train_inclusive_bounds"]


def test_uniform_train_reaches_both_bounds(golden_sampling: dict[str, Any]) -> None:
    case = golden_sampling["tsn"]["cases"][-1]
    rng = np.random.default_rng(0)
    draws = np.stack([sampling.uniform_train(case["video_length"], case["frames"], rng) for _ in range(2000)])
    assert draws.min(0).tolist() == [low for low, _ in case["train_inclusive_bounds"]]
    assert draws.max(0).tolist() == [high for _, high in case["train_inclusive_bounds"]]


def test_dense_equals_released(golden_sampling: dict[str, Any]) -> None:
    for case in golden_sampling["dense"]["cases"]:
        n, frames = case["video_length"], case["frames"]
        length = sampling.dense_length(frames, case["rate"], case.get("fps"), 30.0)
        assert sampling.dense_test(n, frames, length, case["views"]).tolist() == case["clips"]
        if "train_start_uniform_in" in case:
            low, high = case["train_start_uniform_in"]
            assert max(n - length, 0) == high
            assert sampling.dense_clip(n, frames, length, low).tolist() == case["train_indices_at_lowest_start"]
            assert sampling.dense_clip(n, frames, length, high).tolist() == case["train_indices_at_highest_start"]


def test_view_fractions_are_nested_and_fill_the_segment() -> None:
    fractions = [sampling.view_fraction(k) for k in range(17)]
    assert fractions[:5] == [0.5, 0.0, 1.0, 0.25, 0.75]
    assert sorted(fractions) == [i / 16 for i in range(17)]


@settings(deadline=None)
@given(LENGTHS, FRAMES, st.integers(1, 6), POLICIES)
def test_uniform_indices_lie_in_the_video_in_order(n: int, frames: int, clips: int, short: str) -> None:
    views = sampling.uniform_test(n, frames, clips, short)
    drawn = sampling.uniform_train(n, frames, np.random.default_rng(n), short)
    assert views.shape == (clips, frames)
    for clip in [*views, drawn]:
        assert len(clip) == frames
        assert clip.min() >= 0
        assert clip.max() < n
        if short == "repeat_last" or n >= frames:
            assert (np.diff(clip) >= 0).all()


@settings(deadline=None)
@given(LENGTHS, FRAMES, st.floats(1, 500), st.integers(1, 5), POLICIES)
def test_dense_indices_lie_in_the_video_in_order(n: int, frames: int, length: float, clips: int, short: str) -> None:
    views = sampling.dense_test(n, frames, length, clips, short)
    drawn = sampling.dense_train(n, frames, length, np.random.default_rng(n), short)
    assert views.shape == (clips, frames)
    for clip in [*views, drawn]:
        assert clip.min() >= 0
        assert clip.max() < n
        if short == "repeat_last":
            assert (np.diff(clip) >= 0).all()


@settings(deadline=None)
@given(LENGTHS, FRAMES, st.integers(0, 2**31))
def test_the_same_generator_draws_the_same_clip(n: int, frames: int, seed: int) -> None:
    first, second = (sampling.uniform_train(n, frames, np.random.default_rng(seed)) for _ in range(2))
    assert (first == second).all()


def test_loop_plays_a_short_video_again() -> None:
    clip = sampling.dense_clip(3, 8, 8, 0, "loop")
    assert clip.tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert (sampling.uniform_test(3, 7, 3, "loop") == sampling.uniform_test(9, 7, 3) % 3).all()


def test_error_policy_refuses_short_videos() -> None:
    with pytest.raises(sampling.ShortVideoError, match=r"16 frames.*video of 9"):
        sampling.uniform_test(9, 16, short="error")
    with pytest.raises(sampling.ShortVideoError, match=r"256 frames.*video of 100"):
        sampling.dense_test(100, 16, 256, short="error")
    with pytest.raises(sampling.ShortVideoError, match="no frames"):
        sampling.uniform_test(0, 16)
    assert sampling.uniform_test(16, 16, short="error").shape == (1, 16)


@settings(deadline=None)
@given(LENGTHS, st.floats(0.05, 1), st.integers(0, 1000))
def test_spanned_part_lies_in_the_video(n: int, share: float, seed: int) -> None:
    first, count = sampling.spanned(n, share, np.random.default_rng(seed))
    assert first >= 0
    assert first + count <= n
    assert count >= max(1, round(n * share) - 1)


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 500) | st.none())
def test_evenly_spaced_keeps_the_ends(n: int, count: int | None) -> None:
    kept = sampling.evenly_spaced(n, count)
    assert len(kept) == min(n, count or n)
    assert kept[0] == 0
    assert (np.diff(kept) > 0).all()
    assert len(kept) == 1 or kept[-1] == n - 1


def test_clock_ticks_resample_by_time() -> None:
    twelve_fps = np.arange(24) / 12
    assert len(sampling.clock_ticks(twelve_fps, 30)) == 60
    assert sampling.clock_ticks(twelve_fps, 30)[:6].tolist() == [0, 0, 0, 1, 1, 2]
    assert (sampling.clock_ticks(twelve_fps, 12) == np.arange(24)).all()
    held = np.array([0.0, 0.1, 0.5, 0.6])
    assert sampling.clock_ticks(held, 10).tolist() == [0, 1, 1, 1, 1, 2, 3]
    assert sampling.clock_ticks(np.array([0.0]), 30).tolist() == [0]


def test_frames_between_seconds() -> None:
    times = np.arange(100) / 10
    assert sampling.frames_between(times, None, None) == (0, 100)
    assert sampling.frames_between(times, 2.0, 4.0) == (20, 20)
    assert sampling.frames_between(times, 2.05, 4.05) == (20, 21)
    assert sampling.frames_between(times, 9.95, 60.0) == (99, 1)
    assert sampling.frames_between(times, 2.01, 2.02) == (20, 1)
    assert sampling.frames_between(times[:1], 0.0, 3.0) == (0, 1)


@pytest.mark.parametrize("part", [(50.0, 60.0), (10.0, None), (3.0, 1.0), (2.0, 2.0), (-5.0, -1.0), (None, 0.0)])
def test_a_part_outside_the_video_is_refused(part: tuple[float | None, float | None]) -> None:
    with pytest.raises(sampling.ShortVideoError, match=r"video of 10 s\b"):
        sampling.frames_between(np.arange(100) / 10, *part)


@pytest.mark.parametrize("part", [(float("nan"), None), (None, float("nan")), (float("nan"), 3.0)])
def test_a_part_without_numbers_is_refused(part: tuple[float | None, float | None]) -> None:
    with pytest.raises(sampling.ShortVideoError, match="nan s"):
        sampling.frames_between(np.arange(100) / 10, *part)
