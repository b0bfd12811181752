"""Intervals of an accuracy, and the warning of a run that has not left chance."""

import pytest

from fixformer.evaluation.chance import chance_warning
from fixformer.evaluation.intervals import effective_videos, t_interval, wilson_interval


def test_wilson_interval() -> None:
    # 10 of 20, and the ends, as published for the method (Newcombe 1998, Table I: 81/263, 15/148, 0/20)
    assert wilson_interval(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert wilson_interval(15 / 148, 148) == pytest.approx((0.0624, 0.1605), abs=1e-4)
    assert wilson_interval(0.0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)
    assert wilson_interval(1.0, 20)[1] == 1.0


def test_t_interval() -> None:
    assert t_interval([0.5]) is None
    low, high = t_interval([0.6, 0.7, 0.8]) or (0, 0)
    assert (low, high) == pytest.approx((0.7 - 4.303 * 0.1 / 3**0.5, 0.7 + 4.303 * 0.1 / 3**0.5))
    assert t_interval([0.5] * 40) == (0.5, 0.5)


def test_groups_that_are_right_or_wrong_together_count_less() -> None:
    assert effective_videos([(1, 1), (0, 1)] * 50) == pytest.approx(99)  # each video its own group: 100 less a little
    assert effective_videos([(10, 10), (0, 10)] * 5) == pytest.approx(9)  # ten groups of all or nothing
    assert effective_videos([(5, 10)] * 10) == 100  # groups that say nothing new
    assert effective_videos([(10, 10), (10, 10)]) == 20
    assert effective_videos([(3, 10)]) == 10


@pytest.mark.parametrize(
    ("confusion", "is_chance"),
    [
        ([[50, 0], [0, 50]], False),
        ([[25, 25], [25, 25]], True),
        ([[0, 50], [50, 0]], True),  # worse than chance
        ([[90, 0], [10, 0]], True),  # always the largest class
        ([[1, 0], [1, 2]], True),  # too few to tell
        ([[7, 0], [3, 0]], True),
        ([[5, 5], [0, 0]], False),  # one class only: nothing to compare with
    ],
)
def test_chance(confusion: list[list[int]], is_chance: bool) -> None:
    total = sum(map(sum, confusion))
    warning = chance_warning(confusion, (confusion[0][0] + confusion[1][1]) / total)
    assert (warning is not None) == is_chance
    if warning:
        assert all(word in warning for word in ("fixformer check", "epochs", "pretrained", "add videos"))
