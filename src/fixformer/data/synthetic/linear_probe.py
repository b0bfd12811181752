"""What a linear classifier makes of a few frames: the score that a video model has to beat."""

from dataclasses import dataclass

import numpy as np

from fixformer.config import ClipSpec
from fixformer.data.clips.frames import open_frames
from fixformer.data.clips.sampling import evenly_spaced
from fixformer.data.listing import Index, Sample


@dataclass(frozen=True)
class Probe:
    """A linear classifier's accuracy on held-out clips, against chance."""

    accuracy: float
    chance: float
    clips: int


def frame_probe(index: Index, *, frames: int = 1, side: int = 24) -> Probe:
    """What a linear classifier makes of `frames` evenly spaced frames (1: the middle one), pixels and edges.

    With several frames the features are how each differs from the middle one, so a set whose classes are visible only
    in the order of frames scores at chance for one frame and above it for five.
    """
    train, held_out = index.split("train"), index.split(index.eval_split)
    x, x_new = (np.stack([_features(s, frames, side) for s in part]) for part in (train, held_out))
    y, y_new = (np.array([s.label for s in part]) for part in (train, held_out))
    return linear_probe(x, y, x_new, y_new)


def linear_probe(x: np.ndarray, y: np.ndarray, x_new: np.ndarray, y_new: np.ndarray) -> Probe:
    """Ridge regression to one-hot labels, in its dual form (more features than clips)."""
    mean, spread = x.mean(0), x.std(0) + 1e-6
    x, x_new = (x - mean) / spread, (x_new - mean) / spread
    classes = int(max(y.max(), y_new.max())) + 1
    target = np.eye(classes)[y] - 1 / classes
    gram = x @ x.T
    weights = np.linalg.solve(gram + 0.3 * np.trace(gram) / len(gram) * np.eye(len(gram)), target)
    guess = (x_new @ x.T @ weights).argmax(1)
    return Probe(float((guess == y_new).mean()), 1 / classes, len(y_new))


def picture_features(pictures: np.ndarray, side: int) -> np.ndarray:
    """Features of `[T, H, W, 3]` pictures in about `side` rows: of one itself, of more the change from the middle."""
    step = max(1, pictures.shape[1] // side)
    small = _box_reduce(pictures, step)
    if len(small) > 1:
        small = np.abs(np.delete(small, len(small) // 2, 0) - small[len(small) // 2])
        return small.ravel()
    edges = np.abs(np.diff(small, axis=1))[:, :, :-1] + np.abs(np.diff(small, axis=2))[:, :-1]
    return np.concatenate([small.ravel(), edges.ravel()])


def _box_reduce(pictures: np.ndarray, step: int) -> np.ndarray:
    count, height, width, _ = pictures.shape
    rows, columns = height // step, width // step
    cut = pictures[:, : rows * step, : columns * step].astype(np.float32)
    return cut.reshape(count, rows, step, columns, step, 3).mean(axis=(2, 4))


def _features(sample: Sample, frames: int, side: int) -> np.ndarray:
    with open_frames(sample.path, ClipSpec()) as source:
        n = len(source)
        chosen = evenly_spaced(n, frames) if frames > 1 else [n // 2]
        return picture_features(source.get_frames(chosen), side)
