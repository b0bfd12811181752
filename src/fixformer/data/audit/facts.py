"""What `fixformer train DIR` looks at before it chooses: numbers of videos and classes, shapes, where things move.

Legend: T frames, H rows, W columns.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fixformer.config import ClipSpec, DataConfig
from fixformer.data.clips.frames import open_frames
from fixformer.data.listing import Index, Sample
from fixformer.errors import UserError

# Videos that are looked at, spread over a split: enough to see what is common, in a second or two.
LOOKED_AT = 16
# Of each: eight small frames show where it moves.
LOOK = ClipSpec(frames=8, size=64, keep_frames=8, keep_short_side=64)
# Up to this ratio of the sides a square crop keeps nine tenths of the picture.
SQUARE = 1.1
# Shapes of one camera differ by less than this ratio.
ALIKE = 1.15
# A crop that holds this share of what moves loses next to nothing of the action: the rest is mostly noise.
ENOUGH = 0.95
PLACES = np.linspace(0, 1, 21)


@dataclass(frozen=True)
class Look:
    """One video: width / height, and the share of its movement in each of 64 stripes along its long side."""

    ratio: float
    profile: np.ndarray


@dataclass(frozen=True)
class SetFacts:
    """What is known about a data set before training.

    Args:
        train_videos, eval_videos: how many there are.
        classes: how many there are.
        smallest_class, largest_class: in training videos.
        train_looks, eval_looks: of the videos that were looked at.
        unreadable: of these.
    """

    train_videos: int
    eval_videos: int
    classes: int
    smallest_class: int
    largest_class: int
    train_looks: tuple[Look, ...] = ()
    eval_looks: tuple[Look, ...] = ()
    unreadable: int = 0

    def square_crop(self) -> tuple[float | None, str]:
        """Where a square crop of the frames should be (`ClipSpec.focus`), None if it would lose something; and why."""
        ratios = [look.ratio for look in (*self.train_looks, *self.eval_looks)]
        if not ratios:
            return None, "no video could be looked at"
        if all(1 / SQUARE <= ratio <= SQUARE for ratio in ratios):
            return 0.5, "the videos are square"
        if max(ratios) / min(ratios) > ALIKE:
            return None, f"the videos have different shapes, width / height from {min(ratios):.2f} to {max(ratios):.2f}"
        inside = np.mean([_inside(look) for look in self.train_looks], 0)
        good = np.flatnonzero(inside >= inside.max() - 0.005)  # of places that are as good the one in the middle
        best = int(good[len(good) // 2])
        shape = "wide" if ratios[0] > 1 else "tall"
        if inside[best] < ENOUGH:
            return (
                None,
                f"the videos are {shape} and move everywhere: a square crop would lose {1 - inside[best]:.0%} of it",
            )
        return float(PLACES[best]), f"the videos are {shape}, and {inside[best]:.0%} of what moves is in a square there"


def survey(index: Index, data: DataConfig) -> SetFacts:
    """The facts of a data set; a video that cannot be read is counted."""
    train, test = index.split("train"), index.split(index.eval_split)
    sizes = Counter(sample.label for sample in train)
    looks = [list(_looks(samples, data)) for samples in (train, test)]
    found = [tuple(look for look in of_split if look is not None) for of_split in looks]
    return SetFacts(
        train_videos=len(train),
        eval_videos=len(test),
        classes=len(index.labels),
        smallest_class=min(sizes.values(), default=0),
        largest_class=max(sizes.values(), default=0),
        train_looks=found[0],
        eval_looks=found[1],
        unreadable=sum(look is None for of_split in looks for look in of_split),
    )


def _looks(samples: Sequence[Sample], data: DataConfig) -> Iterator[Look | None]:
    for place in np.unique(np.linspace(0, len(samples) - 1, min(LOOKED_AT, len(samples))).astype(int)):
        try:
            yield look_at(samples[place], data)
        except (UserError, OSError):
            yield None


def look_at(sample: Sample, data: DataConfig) -> Look:
    """The shape of a video, and where it moves."""
    part = {"start": sample.start, "end": sample.end}
    with open_frames(sample.path, LOOK, **part, backend=data.backend, damaged=data.damaged) as source:
        grey_THW = source.get_frames(range(len(source))).mean(-1)
    height, width = grey_THW.shape[1:]
    change_HW = np.square(grey_THW - grey_THW.mean(0)).mean(0)
    change_HW = np.maximum(change_HW - np.median(change_HW), 0)  # what is everywhere is the camera's noise
    stripes = change_HW.sum(0 if width >= height else 1)
    edges = np.linspace(0, len(stripes), len(stripes) + 1) / len(stripes)
    total = np.concatenate([[0], np.cumsum(stripes)])
    at = np.interp(np.linspace(0, 1, 65), edges, total / total[-1] if total[-1] > 0 else edges)
    return Look(width / height, np.diff(at))


def _inside(look: Look) -> np.ndarray:
    """The share of the movement that is inside a square crop at each of `PLACES`."""
    side = min(look.ratio, 1 / look.ratio)
    total = np.concatenate([[0], np.cumsum(look.profile)])
    edges = np.linspace(0, 1, len(total))
    left = PLACES * (1 - side)
    return np.interp(left + side, edges, total) - np.interp(left, edges, total)
