"""A linear classifier on the pixels of a few frames: the accuracy that a video model has to beat."""

from dataclasses import dataclass

import numpy as np

from fixformer.config import ClipSpec
from fixformer.data.clips.frames import open_frames
from fixformer.data.clips.sampling import evenly_spaced
from fixformer.data.listing import Index, Sample

RIDGE = 0.3


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
    """Ridge regression to one-hot labels, in its dual form (more features than clips)."""
    mean, spread = x.mean(0), x.std(0) + 1e-6
    x, x_new = (x - mean) / spread, (x_new - mean) / spread
    classes = int(max(y.max(), y_new.max())) + 1
    target = np.eye(classes)[y] - 1 / classes
    gram = x @ x.T
    # regularisation relative to the features' own scale; the reported accuracies are with this value, and it must stay
    ridge = RIDGE * np.trace(gram) / len(gram)
    weights = np.linalg.solve(gram + ridge * np.eye(len(gram)), target)
    guess = (x_new @ x.T @ weights).argmax(1)
    return ProbeScore(float((guess == y_new).mean()), 1 / classes, len(y_new))


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
