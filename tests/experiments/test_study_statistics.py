"""Intervals are those of the textbooks, and hold as often as they say."""

import tracemalloc
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixformer.data.listing import Sample
from fixformer.experiments import study_statistics
from fixformer.experiments.study_statistics import (
    accuracy,
    cells_of,
    combined,
    judge,
    mean_and_error,
    seed_interval,
    separation,
    video_differences,
    video_interval,
)

compare = partial(study_statistics.compare, against="x", minutes=30)


def difference(one: list[str], other: list[str]) -> np.ndarray:
    return video_differences(one, other, range(len(one[0])))[0]


LETTERS = st.lists(st.sampled_from("10"), min_size=12, max_size=12).map("".join)
CELLS = [0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 4, 5]
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
    assert difference(["11-1", "1011"], ["0011", "001-"]).tolist() == [[1, 1], [1, 0]]
    assert video_differences(["11-1"], ["0011"], [7, 7, 8, 9])[1].tolist() == [7, 7, 9]


@pytest.mark.parametrize("videos", [60, 230])
def test_the_bootstrap_over_videos_covers(videos: int) -> None:
    """The true difference is inside in 95 % of 400 draws, within what so many draws can tell."""
    rng = np.random.default_rng(0)
    better, worse, draws = 0.15, 0.08, 400
    inside = 0
    for _ in range(draws):
        difference_V = rng.choice([1.0, -1.0, 0.0], size=videos, p=[better, worse, 1 - better - worse])
        low, high = video_interval(difference_V, np.arange(videos), resamples=600)
        inside += low <= better - worse <= high
    assert 0.91 <= inside / draws <= 0.985


def test_cells_are_of_one_group_and_label() -> None:
    """A video whose group is not known is a cell of its own, as every video is where no list has groups."""
    given = [("a", 0), ("a", 1), ("a", 0), (None, 0), ("b", 0), (None, 0), ("a", 1)]
    samples = [Sample(f"{i}.mp4", label, "test", str(i), group=group) for i, (group, label) in enumerate(given)]
    assert cells_of(samples) == [0, 1, 0, 2, 3, 4, 1]


def signs(draws: int) -> Iterator[np.ndarray]:
    """Null differences as on LSA64's test split: 46 cells of 5 repetitions, which are right or wrong together."""
    rng = np.random.default_rng(2)
    for _ in range(draws):
        yield np.repeat(rng.choice([1.0, -1.0, 0.0], size=46, p=[0.12, 0.12, 0.76]), 5)


def test_the_bootstrap_over_cells_covers_where_videos_are_not_independent() -> None:
    """Drawn one by one, the videos exclude the truth in a third of the cases."""
    draws, cell_V = 400, np.arange(46).repeat(5)
    missed = {"cells": 0, "videos": 0}
    for difference_V in signs(draws):
        for name, number_V in (("cells", cell_V), ("videos", np.arange(230))):
            low, high = video_interval(difference_V, number_V, resamples=600)
            missed[name] += not low <= 0 <= high
    assert missed["cells"] / draws <= 0.09
    assert missed["videos"] / draws >= 0.25


def test_the_bootstrap_is_that_of_the_textbook() -> None:
    """Cells of different sizes, drawn with replacement, and the mean of all their videos."""
    rng = np.random.default_rng(3)
    cell_V = rng.integers(40, size=200)
    difference_V = rng.normal(0.2, 1, 40)[cell_V]
    cells = [difference_V[cell_V == number] for number in np.unique(cell_V)]
    means = [np.concatenate([cells[i] for i in rng.integers(len(cells), size=len(cells))]).mean() for _ in range(4000)]
    assert video_interval(difference_V, cell_V) == pytest.approx(np.quantile(means, (0.025, 0.975)), abs=0.03)


def test_repeated_videos_are_no_evidence() -> None:
    """Five copies of every video separate no better than one, and leave the interval as it is."""
    rng = np.random.default_rng(4)
    difference_SV = rng.choice([1.0, 0.0, -1.0], size=(3, 46), p=[0.3, 0.6, 0.1])
    repeated_SV, cell_V = difference_SV.repeat(5, axis=1), np.arange(46).repeat(5)
    once, apart = separation(repeated_SV, cell_V, 60), separation(repeated_SV, np.arange(230), 60)
    assert once == pytest.approx(separation(difference_SV, np.arange(46), 60))
    assert once
    assert apart
    assert apart > 1.2 * once
    alone = video_interval(difference_SV.mean(0), np.arange(46))
    assert video_interval(repeated_SV.mean(0), cell_V) == pytest.approx(alone)


def test_one_cell_decides_nothing() -> None:
    one = compare(["1110", "1111"], ["0000", "0001"], cells=[0] * 4, paper_difference=1.0)
    assert (one.interval, one.separation, one.verdict) == (None, None, "undecided at this size")


def test_the_bootstrap_in_blocks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """And its memory does not grow with resamples times videos, here 10 million counts, all videos different."""
    difference_V = np.random.default_rng(5).normal(0, 1, 5000)
    tracemalloc.start()
    try:
        whole = video_interval(difference_V, np.arange(5000), resamples=2000)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
    monkeypatch.setattr(study_statistics, "BLOCK", 5000 * 7)
    assert video_interval(difference_V, np.arange(5000), resamples=2000) == pytest.approx(whole, abs=1e-12)


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
        low, high = combined(mean, seeds, video_interval(difference_SV.mean(0), np.arange(230), resamples=400))
        inside += low <= 0.03 <= high
    assert inside / draws >= 0.92


@given(SEEDS, SEEDS)
@settings(max_examples=30, deadline=None)
def test_a_comparison_turned_round(one: list[str], other: list[str]) -> None:
    """The difference changes its sign, the interval its sides; both lie around the mean, and the combined is widest."""
    there = compare(one, other, cells=range(12), paper_difference=1.0)
    back = compare(other, one, cells=range(12), paper_difference=-1.0)
    assert there.mean == pytest.approx(-back.mean)
    assert there.over_videos == pytest.approx((-back.over_videos[1], -back.over_videos[0]), abs=1e-9)
    assert there.verdict == back.verdict
    if there.interval is None:
        assert not difference(one, other).any()
        return
    for low, high in (there.over_videos, there.over_seeds or (0, 0)):
        assert there.interval[0] <= low + 1e-12 <= there.mean + 1e-9
        assert there.mean - 1e-9 <= high <= there.interval[1] + 1e-12


@given(SEEDS, SEEDS)
@settings(max_examples=10, deadline=None)
def test_the_same_scores_give_the_same_interval(one: list[str], other: list[str]) -> None:
    assert compare(one, other, cells=CELLS, paper_difference=None) == compare(
        one, other, cells=CELLS, paper_difference=None
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
    same = compare(["1010", "1010"], ["1010", "1010"], cells=range(4), paper_difference=0.0)
    assert (same.mean, same.interval, same.verdict) == (0, None, "undecided at this size")


def test_one_seed_decides_nothing() -> None:
    one = compare(["1" * 200], ["0" * 200], cells=range(200), paper_difference=3.0)
    assert (one.over_seeds, one.interval, one.separation) == (None, None, None)
    assert one.verdict == "undecided at this size"
    assert compare(["1"], ["0"], cells=[0], paper_difference=None).verdict is None


def test_separation_is_per_root_of_an_hour() -> None:
    rng = np.random.default_rng(0)
    difference_SV = rng.choice([1.0, 0.0, -1.0], size=(3, 100), p=[0.3, 0.6, 0.1])
    quick, slow = (separation(difference_SV, np.arange(100), minutes) for minutes in (60, 240))
    assert quick
    assert slow == pytest.approx(quick / 2)
