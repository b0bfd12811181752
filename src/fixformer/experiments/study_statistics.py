"""Is one row better than another? Paired differences with 95 % intervals over seeds and over test videos.

Rows are paired: the same seed has the same data order and, where shapes allow, the same initial weights, and the test
videos are the same. Two things are drawn: the seeds, of which there are few, and the videos.

- over seeds: Student's interval of the differences, one for each seed; says how far other seeds would move the mean.
- over videos: a bootstrap of the test videos, the same for both rows and all seeds; how far other videos would. Videos
  of one class and one group (a person, a recording) are right or wrong together, so such a cell is drawn as a whole;
  where no group is known, every video is a cell.
- both together: their distances from the mean, added in squares, as for the sum of two independent errors (Zou and
  Donner's MOVER). It is what the verdict is computed from.

Legend: S seeds, V videos, C cells, K kinds of cells (alike in size and difference), R resamples.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, sqrt
from statistics import fmean, stdev
from typing import Any, Literal

import numpy as np

from fixformer.data.listing import Sample
from fixformer.evaluation.intervals import t_half_width
from fixformer.runtime.seeds import generator

Interval = tuple[float, float]
Verdict = Literal["agrees", "disagrees", "undecided at this size"]

RESAMPLES = 10_000
# Counts that are drawn at a time: 8 MB of them, however many videos there are.
BLOCK = 1 << 20
# Where the paper sees no difference, one of less than a point is none.
SAME = 0.01
# In the text of a row's videos, in the order of the list: right, wrong, not scored.
RIGHT, WRONG, UNSCORED = "1", "0", "-"


@dataclass(frozen=True)
class Comparison:
    """The difference of one row to another, in shares of the videos.

    Args:
        differences: of each seed that both rows have.
        over_seeds: None with a single seed.
        interval: over both; None with a single seed, or if no video differs.
        separation: how many standard errors the difference is away from zero, per root of an hour of training.
        paper_difference: in points; None if the paper says nothing.
        verdict: None if the paper says nothing.
    """

    against: str
    differences: list[float]
    mean: float
    over_seeds: Interval | None
    over_videos: Interval
    interval: Interval | None
    separation: float | None
    paper_difference: float | None
    verdict: Verdict | None


def compare(
    row: Sequence[str],
    other: Sequence[str],
    *,
    cells: Sequence[int],
    against: str,
    paper_difference: float | None,
    minutes: float,
) -> Comparison:
    """Compare two rows, given the text of RIGHT and WRONG of each seed, the same seeds in the same order.

    Args:
        cells: of each video, as `cells_of` numbers them.
        minutes: of training that both took.
    """
    difference_SV, cell_V = video_differences(row, other, cells)
    differences = difference_SV.mean(1).tolist()
    mean, seeds, videos = fmean(differences), seed_interval(differences), video_interval(difference_SV.mean(0), cell_V)
    # rows that are right on the very same videos, as two that have learnt nothing are: no width, and no evidence;
    # nor has a single cell a width
    is_evidence = difference_SV.any() and len(np.unique(cell_V)) > 1
    both = combined(mean, seeds, videos) if seeds is not None and is_evidence else None
    return Comparison(
        against=against,
        differences=differences,
        mean=mean,
        over_seeds=seeds,
        over_videos=videos,
        interval=both,
        separation=separation(difference_SV, cell_V, minutes),
        paper_difference=paper_difference,
        verdict=None if paper_difference is None else judge(paper_difference, both),
    )


def cells_of(samples: Sequence[Sample]) -> list[int]:
    """The number of each sample's cell: its group and label, or itself alone where its group is not known."""
    names = [i if sample.group is None else (sample.group, sample.label) for i, sample in enumerate(samples)]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return [numbers[name] for name in names]


def video_differences(row: Sequence[str], other: Sequence[str], cells: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """`difference_SV`, -1 to 1, and `cell_V`, over the videos that are scored everywhere."""
    row_SV, other_SV = (np.array([list(text) for text in texts]) for texts in (row, other))
    scored_V = ((row_SV != UNSCORED) & (other_SV != UNSCORED)).all(0)
    difference_SV = (row_SV[:, scored_V] == RIGHT).astype(float) - (other_SV[:, scored_V] == RIGHT)
    return difference_SV, np.asarray(cells)[scored_V]


def seed_interval(differences: Sequence[float]) -> Interval | None:
    """Student's interval of the mean difference; None of a single one."""
    if len(differences) < 2:
        return None
    mean, half = fmean(differences), t_half_width(differences)
    return mean - half, mean + half


def video_interval(difference_V: np.ndarray, cell_V: np.ndarray, resamples: int = RESAMPLES) -> Interval:
    """The bootstrap's interval of the mean over videos, each with the mean difference of its seeds.

    As many cells as there are, are drawn with replacement; of cells that are alike, it matters only how many.
    """
    sum_C, size_C = _per_cell(difference_V, cell_V)
    cells = len(sum_C)
    counts = Counter(zip(sum_C.tolist(), size_C.tolist(), strict=True))
    sum_K, size_K = np.array(list(counts)).T
    share_K = np.array(list(counts.values())) / cells
    rng = generator("paired bootstrap", cells)
    block = max(1, BLOCK // len(counts))
    means = []
    for start in range(0, resamples, block):
        drawn_RK = rng.multinomial(cells, share_K, size=min(block, resamples - start))
        means.append((drawn_RK @ sum_K) / (drawn_RK @ size_K))
    low, high = np.quantile(np.concatenate(means), (0.025, 0.975))
    return float(low), float(high)


def _per_cell(difference_V: np.ndarray, cell_V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sum of the differences, and the number of videos, of each cell that has any."""
    number_V = np.unique(cell_V, return_inverse=True)[1]
    return np.bincount(number_V, difference_V), np.bincount(number_V)


def combined(mean: float, one: Interval, other: Interval) -> Interval:
    """The interval of a mean with two independent errors, from the interval of each."""
    return mean - hypot(mean - one[0], mean - other[0]), mean + hypot(one[1] - mean, other[1] - mean)


def separation(difference_SV: np.ndarray, cell_V: np.ndarray, minutes: float) -> float | None:
    """Standard errors between the difference and zero, per root of an hour: what the choice of a base goes by."""
    seeds, videos = difference_SV.shape
    mean = float(difference_SV.mean())
    sum_C, size_C = _per_cell(difference_SV.mean(0), cell_V)
    cells = len(sum_C)
    if seeds < 2 or cells < 2 or minutes <= 0:
        return None
    # of a mean over cells of different sizes; of cells of one video, the usual one
    video_error = sqrt(cells / (cells - 1) * float(np.square(sum_C - mean * size_C).sum())) / videos
    error = hypot(difference_SV.mean(1).std(ddof=1) / sqrt(seeds), video_error)
    return abs(mean) / error / sqrt(minutes / 60) if error else None


def judge(paper_difference: float, interval: Interval | None) -> Verdict:
    """Whether the sign of the difference is the paper's; without an interval nothing is decided."""
    if interval is None:
        return "undecided at this size"
    low, high = interval
    if paper_difference == 0:
        if -SAME < low and high < SAME:
            return "agrees"
        return "disagrees" if low > 0 or high < 0 else "undecided at this size"
    if low <= 0 <= high:
        return "undecided at this size"
    return "agrees" if (low > 0) == (paper_difference > 0) else "disagrees"


def accuracy(text: str) -> float:
    """Top-1 of the videos that were scored."""
    scored = len(text) - text.count(UNSCORED)
    return text.count(RIGHT) / scored


def mean_and_error(scores: Sequence[float]) -> dict[str, Any]:
    """The mean over seeds and its standard error, which a single seed has not."""
    error = stdev(scores) / sqrt(len(scores)) if len(scores) > 1 else None
    return {"mean": fmean(scores), "standard_error": error}
