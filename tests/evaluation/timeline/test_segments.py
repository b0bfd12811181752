"""Segments from scores whose truth is known."""

from itertools import pairwise

import numpy as np
import pytest

from fixformer.evaluation.timeline.segments import LENGTHS, WindowScores, find_pieces, log_softmax, smoothed

WINDOW, STRIDE, SECONDS = 2.0, 0.3, 24.0
# Borders and labels of actions of 1.5 to 2.5 s, the lengths that LSA64 has.
LABELS = [3, 0, 2, 1, 3, 2, 0, 1, 2, 3, 0, 1]
BORDERS = np.cumsum([1.5, 2.5, 2.0, 1.5, 2.0, 2.5, 2.0, 2.0, 1.5, 2.5, 2.0, 2.0])


def scores_of(length: float, confused: bool = True) -> WindowScores:
    """A model that is sure of windows on one action; across a border it is as sure of class 4, which is nowhere."""
    times = np.arange(length / 2, SECONDS - length / 2 + 1e-9, STRIDE)
    logits = np.zeros((len(times), 6))
    edges = np.append(0, BORDERS)
    for row, middle in enumerate(times):
        start, end = middle - length / 2, middle + length / 2
        shares = np.clip(np.minimum(end, edges[1:]) - np.maximum(start, edges[:-1]), 0, None) / length
        for share, label in zip(shares, LABELS, strict=True):
            logits[row, label] += 6 * share
        if confused and shares.max() < 0.7:
            logits[row, 4] += 5
    return WindowScores(length, times, log_softmax(logits))


def test_borders_and_labels_are_found() -> None:
    """A label per moment, by contrast, shows the class of the borders, and more segments than there are."""
    pieces = find_pieces([scores_of(share * WINDOW) for share in LENGTHS], WINDOW, SECONDS)
    assert [piece.label for piece in pieces] == LABELS
    assert np.abs(np.array([piece.end for piece in pieces]) - BORDERS).max() <= 0.35
    best = scores_of(WINDOW).logp_NK.argmax(-1)
    assert 4 in best
    assert np.count_nonzero(np.diff(best)) > len(LABELS)


def test_pieces_join_and_cover_the_video() -> None:
    rng = np.random.default_rng(0)
    for seconds in (0.04, 1.1, 1.2, 1.9, 7.3):
        length = min(WINDOW, seconds)
        times = np.array([length / 2, seconds - length / 2])[: 1 + (seconds > WINDOW)]
        scores = WindowScores(length, times, log_softmax(rng.normal(size=(len(times), 3))))
        pieces = find_pieces([scores], length, seconds)
        assert pieces[0].start == 0
        assert pieces[-1].end == pytest.approx(seconds)
        assert all(a.end == b.start and a.label != b.label for a, b in pairwise(pieces))
        assert all(0 < piece.certainty <= 1 for piece in pieces)


def test_one_long_action_is_one_segment() -> None:
    times = np.arange(1, 59, 0.3)
    scores = WindowScores(WINDOW, times, log_softmax(np.tile([4.0, 0.0, 0.0], (len(times), 1))))
    (piece,) = find_pieces([scores], WINDOW, 60.0)
    assert (piece.start, piece.end, piece.label) == (0, 60, 0)
    assert piece.certainty == pytest.approx(np.exp(4) / (np.exp(4) + 2))


def test_smoothing() -> None:
    rng = np.random.default_rng(0)
    noisy = WindowScores(WINDOW, np.arange(50) * 0.3, log_softmax(rng.normal(size=(50, 4))))
    smooth = smoothed(noisy, 0.3, 1.0)
    assert smooth.logp_NK.shape == noisy.logp_NK.shape
    np.testing.assert_allclose(np.exp(smooth.logp_NK).sum(-1), 1)
    assert np.abs(np.diff(smooth.logp_NK, axis=0)).mean() < 0.5 * np.abs(np.diff(noisy.logp_NK, axis=0)).mean()
    assert smoothed(noisy, 0.3, 0.0) is noisy
