"""95 % intervals of an accuracy."""

from collections.abc import Iterable, Sequence
from math import sqrt
from statistics import fmean, stdev

Z = 1.959964  # 97.5 % quantile of the normal distribution
# 97.5 % quantiles of Student's t distribution with 1, 2, ... degrees of freedom; the normal one is near enough beyond
T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


def wilson_interval(accuracy: float, videos: float) -> tuple[float, float]:
    """Wilson's interval of a share of so many independent videos; unlike ±2 standard errors it holds near 0 and 1."""
    centre = (accuracy + Z**2 / (2 * videos)) / (1 + Z**2 / videos)
    half = Z / (1 + Z**2 / videos) * sqrt(accuracy * (1 - accuracy) / videos + Z**2 / (4 * videos**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def t_interval(scores: Sequence[float]) -> tuple[float, float] | None:
    """Student's interval of the mean of some scores, such as those of folds; None of a single one."""
    if len(scores) < 2:
        return None
    half = t_half_width(scores)
    return max(0.0, fmean(scores) - half), min(1.0, fmean(scores) + half)


def t_half_width(values: Sequence[float]) -> float:
    """Half the width of Student's interval of the mean of two values or more."""
    quantile = T[len(values) - 2] if len(values) - 2 < len(T) else Z
    return quantile * stdev(values) / sqrt(len(values))


def effective_videos(groups: Iterable[tuple[int, int]]) -> float:
    """How many independent videos say as much as videos in groups, given (correct, all) of each (Kish's design effect).

    Videos of one person or recording are right or wrong together. The design effect is the variance of the accuracy
    between groups, relative to that of independent videos; it is never taken to be below 1.
    """
    counts = list(groups)
    total = sum(videos for _, videos in counts)
    accuracy = sum(correct for correct, _ in counts) / total
    independent = accuracy * (1 - accuracy) / total
    if len(counts) < 2 or not independent:
        return total
    spread = sum((correct - accuracy * videos) ** 2 for correct, videos in counts) / total**2
    return total / max(1.0, len(counts) / (len(counts) - 1) * spread / independent)
