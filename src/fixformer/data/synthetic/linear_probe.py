"""Linear classifiers on features of a few frames: the accuracy that a video model has to beat.

Legend: N training videos, M new videos, K classes.
"""

from dataclasses import dataclass

import numpy as np

from fixformer.config import ClipSpec
from fixformer.data.clips.frames import open_frames
from fixformer.data.clips.sampling import evenly_spaced
from fixformer.data.listing import Index, Sample

# Regularisation, relative to the features' own scale: one value for the accuracies that docs and results report, which
# must stay, and those that are tried where it is chosen on the training videos.
RIDGE = 0.3
RIDGES = tuple(10.0 ** (power / 2) for power in range(-6, 5))


@dataclass(frozen=True)
class ProbeScore:
    """A linear classifier's accuracy on held-out clips, against chance."""

    accuracy: float
    chance: float
    clips: int


def frame_probe(index: Index, *, frames: int = 1, side: int = 24) -> ProbeScore:
    """Fit a linear classifier to `frames` evenly spaced frames (1: the middle one) of every training video.

    With several frames the features are how each differs from the middle one. So a set whose classes are visible only
    in the order of frames scores at chance for one frame and above it for five.
    """
    train, held_out = index.split("train"), index.split(index.eval_split)
    x, x_new = (np.stack([_sample_features(s, frames, side) for s in part]) for part in (train, held_out))
    y, y_new = (np.array([s.label for s in part]) for part in (train, held_out))
    return linear_probe(x, y, x_new, y_new)


def linear_probe(x: np.ndarray, y: np.ndarray, x_new: np.ndarray, y_new: np.ndarray) -> ProbeScore:
    """Ridge regression to one-hot labels on standardised features."""
    classes = int(max(y.max(), y_new.max())) + 1
    guess = ridge_scores(*standardised_products(x, x_new), y, classes, RIDGE).argmax(1)
    return ProbeScore(float((guess == y_new).mean()), 1 / classes, len(y_new))


def standardised_products(x: np.ndarray, x_new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Inner products of standardised features: `gram_NN` of training videos, `cross_MN` of new ones with them."""
    mean, spread = x.mean(0), x.std(0) + 1e-6
    x, x_new = (x - mean) / spread, (x_new - mean) / spread
    return x @ x.T, x_new @ x.T


def ridge_scores(
    gram_NN: np.ndarray, cross_MN: np.ndarray, y: np.ndarray, classes: int, ridge: float | None = None
) -> np.ndarray:
    """`[M, K]`: ridge regression to one-hot labels with an intercept, in its dual form (more features than videos).

    Args:
        ridge: regularisation relative to the mean square of the features; None chooses the one of `RIDGES` with the
            smallest squared error when each training video is left out in turn, which needs no second fit.
    """
    target_NK = np.eye(classes)[y]
    prior_K = target_NK.mean(0)
    gram_NN, cross_MN = gram_NN.astype(np.float64), cross_MN.astype(np.float64)
    # the features less their mean over the training videos, written with inner products
    mean_N, total = gram_NN.mean(0), gram_NN.mean()
    values_N, vectors_NN = np.linalg.eigh(gram_NN - mean_N - mean_N[:, None] + total)
    scale = max(values_N.sum() / len(y), 1e-12)
    rotated_NK = vectors_NN.T @ (target_NK - prior_K)

    def left_out_error(value: float) -> float:
        kept_N = values_N / (values_N + value * scale)
        residual_NK = target_NK - prior_K - vectors_NN @ (kept_N[:, None] * rotated_NK)
        own_N = vectors_NN**2 @ kept_N + 1 / len(y)  # how far each prediction follows its own target
        return float(np.square(residual_NK / np.maximum(1 - own_N, 1e-6)[:, None]).sum())

    chosen = min(RIDGES, key=left_out_error) if ridge is None else ridge
    weights_NK = vectors_NN @ (rotated_NK / (values_N + chosen * scale)[:, None])
    scores: np.ndarray = (cross_MN - cross_MN.mean(1, keepdims=True) - mean_N + total) @ weights_NK + prior_K
    return scores


def picture_features(pictures: np.ndarray, side: int) -> np.ndarray:
    """Features of `[T, H, W, 3]` pictures reduced to about `side` rows.

    One picture gives its pixels and edges, several give how each differs from the middle one.
    """
    count, height, width, _ = pictures.shape
    step = max(1, height // side)
    rows, columns = height // step, width // step
    cut = pictures[:, : rows * step, : columns * step].astype(np.float32)
    small = cut.reshape(count, rows, step, columns, step, 3).mean(axis=(2, 4))
    if len(small) > 1:
        small = np.abs(np.delete(small, len(small) // 2, 0) - small[len(small) // 2])
        return small.ravel()
    edges = np.abs(np.diff(small, axis=1))[:, :, :-1] + np.abs(np.diff(small, axis=2))[:, :-1]
    return np.concatenate([small.ravel(), edges.ravel()])


def _sample_features(sample: Sample, frames: int, side: int) -> np.ndarray:
    with open_frames(sample.path, ClipSpec()) as source:
        n = len(source)
        chosen = evenly_spaced(n, frames) if frames > 1 else [n // 2]
        return picture_features(source.get_frames(chosen), side)
