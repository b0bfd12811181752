"""Differences between the training videos and the videos of another split that a score would suffer from.

A model that has only seen wide videos of one camera may fail on square ones of another, and nothing in a training run
says so. Every quantity is compared by its distribution: two splits differ if a threshold separates more than half of
their videos (Kolmogorov and Smirnov's distance), chance cannot explain it, and the medians differ by enough to matter.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fixformer.data.audit.probe import FileProbe
from fixformer.data.listing import Index

APART = 0.5  # of the videos, by which the distributions must differ
CRITICAL = 1.63  # of the two-sample test of Kolmogorov and Smirnov at the 1 % level, for large numbers


@dataclass(frozen=True)
class Quantity:
    """A number of a video. Medians whose ratio (or difference, if not `is_ratio`) is below `enough` are alike."""

    name: str
    of: Callable[[FileProbe], float | None]
    enough: float
    is_ratio: bool = True
    unit: str = ""


# 1.1: a square crop of 4:3 loses a quarter of the picture, of 11:10 a tenth. 1.5: scaling hides smaller steps in size.
# 1.2: 25 and 30 frames a second show the same movement at other speeds. 0.1 of the range from black to white is the
# `colour` augmentation's usual reach.
QUANTITIES = (
    Quantity("shape, width / height", lambda probe: probe.width / probe.height, 1.1),
    Quantity("size, short side", lambda probe: min(probe.width, probe.height), 1.5, unit=" px"),
    Quantity("frame rate", lambda probe: probe.measured_fps or probe.fps, 1.15, unit=" fps"),
    Quantity("length", lambda probe: probe.duration or None, 1.5, unit=" s"),
    Quantity("brightness", lambda probe: probe.brightness, 0.1, is_ratio=False),
)


def split_differences(index: Index, probes: dict[str, FileProbe]) -> Iterator[str]:
    """A line for every quantity in which a split differs from the training videos."""
    readable = {split: _readable(index, split, probes) for split in index.splits}
    train = readable.pop("train", [])
    for split, others in readable.items():
        if not train or not others:
            continue
        for quantity in QUANTITIES:
            if found := _difference(quantity, train, others):
                yield f"{quantity.name}: train {found[0]}, {split} {found[1]} (medians)"
        if found := _codecs(train, others):
            yield f"codec: train {found[0]}, {split} {found[1]}"


def _readable(index: Index, split: str, probes: dict[str, FileProbe]) -> list[FileProbe]:
    paths = {sample.path for sample in index.split(split)}
    return [probes[path] for path in sorted(paths) if probes[path].readable]


def _difference(quantity: Quantity, train: list[FileProbe], others: list[FileProbe]) -> tuple[str, str] | None:
    first, second = (
        np.sort([value for probe in probes if (value := quantity.of(probe)) is not None]) for probes in (train, others)
    )
    if not len(first) or not len(second) or not _is_apart(first, second):
        return None
    medians = float(np.median(first)), float(np.median(second))
    low, high = sorted(medians)
    step = (high / low if low > 0 else np.inf) if quantity.is_ratio else high - low
    if step < quantity.enough:
        return None
    return f"{medians[0]:.3g}{quantity.unit}", f"{medians[1]:.3g}{quantity.unit}"


def _is_apart(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether the distributions of two sorted lists differ by more than `APART` and more than chance explains."""
    places = np.concatenate([first, second])
    shares = [np.searchsorted(values, places, side="right") / len(values) for values in (first, second)]
    chance = CRITICAL * (1 / len(first) + 1 / len(second)) ** 0.5
    return float(np.abs(shares[0] - shares[1]).max()) > max(APART, chance)


def _codecs(train: Sequence[FileProbe], others: Sequence[FileProbe]) -> tuple[str, str] | None:
    """The commonest codec of each, if more than half of the videos would have to change theirs to be alike."""
    first, second = Counter(probe.codec for probe in train), Counter(probe.codec for probe in others)
    shared = sum(min(first[name] / len(train), second[name] / len(others)) for name in first)
    if 1 - shared <= APART:
        return None
    return first.most_common(1)[0][0], second.most_common(1)[0][0]
