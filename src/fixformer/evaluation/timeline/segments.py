"""From the scores of overlapping windows to segments, by dynamic programming over their borders.

A window across a border holds the end of one action and the beginning of the next, and the class it gets may be a
third. So a label per moment, smoothed or not, has borders in the wrong places and segments that do not exist. Instead
the video is cut into pieces, each scored by the window that covers it best, of several lengths of windows; windows
across a border then count for nothing. The cut with the best sum of scores wins, and neighbours of one label are
merged.

Legend: N windows, K classes, G steps of a grid of possible borders, D possible lengths of a piece.
"""

from dataclasses import dataclass

import numpy as np

# Lengths of the windows, and of the shortest and longest piece, in windows. Clips of one data set differ in length by
# about as much; on LSA64 windows of a single length find 85 % of the borders with as many false ones as four find 89 %.
LENGTHS = (0.6, 0.8, 1.0, 1.2)
SHORTEST, LONGEST = 0.6, 1.3
STEPS = 20  # possible borders in a window
# Models are too sure of windows that no training video is like; of 1, 2, 4 and 8, dividing logits by 4 or 8 found most.
TEMPERATURE = 4.0


@dataclass(frozen=True)
class WindowScores:
    """Scores of the windows of one length, in seconds."""

    length: float
    times_N: np.ndarray
    logp_NK: np.ndarray


@dataclass(frozen=True)
class Piece:
    """A part of the video, in seconds, with the number of its class and the probability of that."""

    start: float
    end: float
    label: int
    certainty: float


def smoothed(scores: WindowScores, stride: float, sigma: float) -> WindowScores:
    """Log-probabilities averaged over neighbouring windows with a Gaussian of `sigma` seconds."""
    reach = min(int(3 * sigma / stride), len(scores.times_N) - 1)
    if reach < 1:
        return scores
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) * stride / sigma) ** 2)
    padded = np.pad(scores.logp_NK, ((reach, reach), (0, 0)), mode="edge")
    count = len(scores.times_N)
    total = sum(weight * padded[i : i + count] for i, weight in enumerate(weights / weights.sum()))
    return WindowScores(scores.length, scores.times_N, log_softmax(np.asarray(total)))


def log_softmax(x_NK: np.ndarray) -> np.ndarray:
    shifted = x_NK - x_NK.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def find_pieces(lengths: list[WindowScores], window: float, seconds: float) -> list[Piece]:
    """The best cut of a video of `seconds`, neighbours of one label merged. `window` is the main length."""
    steps = max(1, round(seconds / window * STEPS))
    step = seconds / steps
    durations_D = np.arange(round(SHORTEST * STEPS), round(LONGEST * STEPS) + 1)
    durations_D = durations_D[durations_D <= steps] if steps >= durations_D[0] else np.array([steps])
    value_DG, label_DG, certainty_DG = _score_pieces(lengths, durations_D, steps, step)
    pieces = []
    for row, end in _best_cut(value_DG, durations_D):
        start = (end - int(durations_D[row])) * step
        pieces.append(Piece(start, end * step, int(label_DG[row, end]), float(certainty_DG[row, end])))
    return _merged(pieces)


def _score_pieces(
    lengths: list[WindowScores], durations_D: np.ndarray, steps: int, step: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of the piece that ends at step g and has duration d: its score, its label and the label's probability."""
    shape = (len(durations_D), steps + 1)
    value_DG, label_DG, certainty_DG = np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape)
    best = {scores.length: _best_labels(scores) for scores in lengths}
    for row, duration in enumerate(durations_D):
        nearest = min(lengths, key=lambda scores: abs(scores.length - duration * step))
        label_N, value_N, certainty_N = best[nearest.length]
        middle_G = (np.arange(steps + 1) - duration / 2) * step
        window_G = _nearest(nearest.times_N, middle_G)
        value_DG[row] = value_N[window_G] * duration
        label_DG[row], certainty_DG[row] = label_N[window_G], certainty_N[window_G]
    return value_DG, label_DG, certainty_DG


def _best_labels(scores: WindowScores) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For every window the likeliest class, its softened log-probability, and its probability."""
    label_N = scores.logp_NK.argmax(-1)
    soft_NK = log_softmax(scores.logp_NK / TEMPERATURE)
    places = np.arange(len(label_N))
    return label_N, soft_NK[places, label_N], np.exp(scores.logp_NK[places, label_N])


def _nearest(sorted_N: np.ndarray, values_G: np.ndarray) -> np.ndarray:
    """For every value the place of the nearest of the sorted ones."""
    after_G = np.searchsorted(sorted_N, values_G).clip(1, max(len(sorted_N) - 1, 1))
    if len(sorted_N) == 1:
        return np.zeros(len(values_G), np.int64)
    is_before = values_G - sorted_N[after_G - 1] <= sorted_N[after_G] - values_G
    return after_G - is_before


def _best_cut(value_DG: np.ndarray, durations_D: np.ndarray) -> list[tuple[int, int]]:
    """The pieces, as row of their duration and step of their end, whose values have the largest sum."""
    steps = value_DG.shape[1] - 1
    total_G = np.full(steps + 1, -np.inf)
    row_G = np.zeros(steps + 1, np.int64)
    total_G[0] = 0
    for end in range(int(durations_D[0]), steps + 1):
        begins_D = end - durations_D
        totals_D = np.where(begins_D >= 0, total_G[begins_D], -np.inf) + value_DG[:, end]
        row_G[end] = totals_D.argmax()
        total_G[end] = totals_D[row_G[end]]
    cut, end = [], steps
    while end > 0:
        cut.append((int(row_G[end]), end))
        end -= int(durations_D[row_G[end]])
    return cut[::-1]


def _merged(pieces: list[Piece]) -> list[Piece]:
    """Neighbours of one label as one piece, its certainty the mean over time."""
    merged: list[Piece] = []
    for piece in pieces:
        if not merged or merged[-1].label != piece.label:
            merged.append(piece)
            continue
        before = merged.pop()
        seconds = before.end - before.start, piece.end - piece.start
        certainty = (before.certainty * seconds[0] + piece.certainty * seconds[1]) / sum(seconds)
        merged.append(Piece(before.start, piece.end, piece.label, certainty))
    return merged
