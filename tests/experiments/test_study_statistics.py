"""Intervals are those of the textbooks, and hold as often as they say."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixformer.experiments.study_statistics import (
    accuracy,
    combined,
    compare,
    judge,
    mean_and_error,
    seed_interval,
    separation,
    video_differences,
    video_interval,
)

LETTERS = st.lists(st.sampled_from("10"), min_size=12, max_size=12).map("".join)
SEEDS = st.lists(LETTERS, min_size=3, max_size=3)


def test_the_interval_over_seeds_is_students() -> None:
    """Of 1, 2, 3: mean 2, standard deviation 1, 2 degrees of freedom."""
    low, high = seed_interval([0.01, 0.02, 0.03]) or (0, 0)
    half = 4.303 * 0.01 / 3**0.5
    assert (low, high) == pytest.approx((0.02 - half, 0.02 + half))
    assert low < 0  # of a difference, which is not cut off at zero
    assert seed_interval([0.5]) is None


def test_mean_and_standard_error() -> None:
    assert mean_and_error([0.5, 0.7]) == {"mean": pytest.approx(0.6), "standard_error": pytest.approx(0.1)}
    assert mean_and_error([0.5]) == {"mean": 0.5, "standard_error": None}


def test_accuracy_is_of_the_videos_that_were_scored() -> None:
    assert accuracy("110-") == pytest.approx(2 / 3)


def test_a_video_that_one_run_could_not_score_is_left_out_of_all() -> None:
    assert video_differences(["11-1", "1011"], ["0011", "001-"]).tolist() == [[1, 1], [1, 0]]


@pytest.mark.parametrize("videos", [60, 230])
def test_the_bootstrap_over_videos_covers(videos: int) -> None:
    """The true difference is inside in 95 % of 400 draws, within what so many draws can tell."""
    rng = np.random.default_rng(0)
    better, worse, draws = 0.15, 0.08, 400
    inside = 0
    for _ in range(draws):
        difference_V = rng.choice([1.0, -1.0, 0.0], size=videos, p=[better, worse, 1 - better - worse])
        low, high = video_interval(difference_V, resamples=600)
        inside += low <= better - worse <= high
    assert 0.91 <= inside / draws <= 0.985


@pytest.mark.parametrize(("seed_error", "video_error"), [(0.05, 0.1), (0.02, 0.5), (0.0, 0.4)])
def test_the_combined_interval_covers(seed_error: float, video_error: float) -> None:
    """Three seeds and 230 videos, with a true difference of 3 points: the errors of either kind dominate in turn."""
    rng = np.random.default_rng(1)
    draws, inside = 400, 0
    for _ in range(draws):
        videos_V, seeds_S = rng.normal(0.03, video_error, 230), rng.normal(0, seed_error, 3)
        difference_SV = videos_V + seeds_S[:, None]
        seeds = seed_interval(difference_SV.mean(1).tolist())
        assert seeds
        mean = float(difference_SV.mean())
        low, high = combined(mean, seeds, video_interval(difference_SV.mean(0), resamples=400))
        inside += low <= 0.03 <= high
    assert inside / draws >= 0.92


@given(SEEDS, SEEDS)
@settings(max_examples=30, deadline=None)
def test_a_comparison_turned_round(one: list[str], other: list[str]) -> None:
    """The difference changes its sign, the interval its sides; both lie around the mean, and the combined is widest."""
    there = compare(one, other, against="x", paper_difference=1.0, minutes=30)
    back = compare(other, one, against="x", paper_difference=-1.0, minutes=30)
    assert there.mean == pytest.approx(-back.mean)
    assert there.over_videos == pytest.approx((-back.over_videos[1], -back.over_videos[0]), abs=1e-9)
    assert there.verdict == back.verdict
    if there.interval is None:
        assert not video_differences(one, other).any()
        return
    for low, high in (there.over_videos, there.over_seeds or (0, 0)):
        assert there.interval[0] <= low + 1e-12 <= there.mean + 1e-9
        assert there.mean - 1e-9 <= high <= there.interval[1] + 1e-12


@given(SEEDS, SEEDS)
@settings(max_examples=10, deadline=None)
def test_the_same_scores_give_the_same_interval(one: list[str], other: list[str]) -> None:
    assert compare(one, other, against="", paper_difference=None, minutes=1) == compare(
        one, other, against="", paper_difference=None, minutes=1
    )


@pytest.mark.parametrize(
    ("paper", "interval", "verdict"),
    [
        (2.5, (0.01, 0.04), "agrees"),
        (2.5, (-0.04, -0.01), "disagrees"),
        (2.5, (-0.01, 0.04), "undecided at this size"),
        (-0.3, (-0.04, -0.01), "agrees"),
        (-0.3, (0.01, 0.04), "disagrees"),
        (0.0, (-0.005, 0.006), "agrees"),
        (0.0, (-0.02, 0.03), "undecided at this size"),
        (0.0, (0.02, 0.03), "disagrees"),
        (2.5, (0.0, 0.0), "undecided at this size"),
        (2.5, None, "undecided at this size"),
    ],
)
def test_verdicts(paper: float, interval: tuple[float, float] | None, verdict: str) -> None:
    assert judge(paper, interval) == verdict


def test_rows_that_are_right_on_the_same_videos_decide_nothing() -> None:
    """Not even that they are equal."""
    same = compare(["1010", "1010"], ["1010", "1010"], against="x", paper_difference=0.0, minutes=5)
    assert (same.mean, same.interval, same.verdict) == (0, None, "undecided at this size")


def test_one_seed_decides_nothing() -> None:
    one = compare(["1" * 200], ["0" * 200], against="x", paper_difference=3.0, minutes=5)
    assert (one.over_seeds, one.interval, one.separation) == (None, None, None)
    assert one.verdict == "undecided at this size"
    assert compare(["1"], ["0"], against="x", paper_difference=None, minutes=5).verdict is None


def test_separation_is_per_root_of_an_hour() -> None:
    rng = np.random.default_rng(0)
    difference_SV = rng.choice([1.0, 0.0, -1.0], size=(3, 100), p=[0.3, 0.6, 0.1])
    quick, slow = separation(difference_SV, 60), separation(difference_SV, 240)
    assert quick
    assert slow == pytest.approx(quick / 2)
