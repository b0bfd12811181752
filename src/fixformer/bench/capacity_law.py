"""How the memory of a process grows with its clips: measured on a few, and continued along what is counted.

What training keeps of a clip, and what inference has at a time, is counted on the meta device for any clip
(`models/cost.py`). What a process really takes for it, with its libraries, its temporaries and the passes of
`models/fused.py`, is measured on small clips, and grows with the counted bytes along a straight line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import inf
from statistics import linear_regression
from typing import Any, NamedTuple

import torch

from fixformer.bench.capacity_worker import Mode, Optimiser, PeakJob
from fixformer.bench.process import measure_apart
from fixformer.errors import InputError, UserError
from fixformer.models.cost import AttentionAsFused, countable, largest_output, saved_bytes
from fixformer.models.registry import create_model
from fixformer.models.video_transformer import VideoTransformer

# Sizes are multiples of this, which all models can take: none of them divides a frame more often.
SIZE_STEP = 16
# Clips are measured until the largest output of a layer has this many bytes, and the peak has grown by `GROWN`. From
# 4 MB on training, from 32 MB on inference runs in chunks (`models/fused.py`), and from 32 MB on glibc gives a tensor
# memory of its own. Peaks of the same clip differ by up to 5 % from process to process.
ENOUGH: dict[Mode, int] = {"kept": 64 << 20, "recomputed": 64 << 20, "inference": 256 << 20}
GROWN = 800 << 20
# Frames that are so many quarters of the model's own; of several clips the last of them, and then more clips.
QUARTERS = (1, 2, 3, 4)
MORE_QUARTERS = (6, 8, 12, 16, 24, 32, 48, 64)
MORE_CLIPS = tuple(2**i for i in range(2, 14))
# The last of the measured clips, on whose line larger ones lie.
LAST = 3
# How often the weights are there: themselves and the moments of the optimiser. Gradients come when activations go.
COPIES: dict[Optimiser, int] = {"sgd": 2, "adamw": 3}


class Clips(NamedTuple):
    """A batch of clips."""

    batch: int
    frames: int
    size: int

    def __str__(self) -> str:
        clip = f"{self.frames}x{self.size}"
        return clip if self.batch == 1 else f"{self.batch} of {clip}"


class Count:
    """What is counted of a model for one clip, on the meta device, where nothing is computed.

    The blocks of our Transformer are equal: two are counted, which tell as much as all.
    """

    def __init__(self, name: str, settings: dict[str, Any], frames: int, size: int) -> None:
        with torch.device("meta"):
            self._model = create_model(name, **{**settings, "num_frames": frames, "image_size": size}).eval()
        self.weights = sum(parameter.nbytes for parameter in self._model.parameters())
        self.blocks, self._left_out = len(getattr(self._model, "blocks", ())), 0
        self._clip = frames, size
        if isinstance(self._model, VideoTransformer) and self.blocks > 2:
            self._model.blocks, self._left_out = self._model.blocks[:2].eval(), self.blocks - 2

    @cached_property
    def largest(self) -> int:
        """Bytes of the largest output of a layer."""
        return largest_output(self._model, *self._clip)

    @property
    def kept(self) -> int:
        """Bytes that training keeps."""
        return self._saved[""] + self._left_out * self._saved.get("blocks.1", 0)

    @property
    def in_blocks(self) -> int:
        """Of these, in the blocks."""
        return self.kept - self._saved[""] + sum(self._saved.get(f"blocks.{i}", 0) for i in range(self.blocks))

    @cached_property
    def _saved(self) -> dict[str, int]:
        with countable(*self._clip), AttentionAsFused():
            return saved_bytes(self._model, *self._clip)


class Counts:
    """The counts of a model for clips of any size; None for those that it cannot take."""

    def __init__(self, model: str, settings: dict[str, Any]) -> None:
        self.model, self.settings = model, settings
        self._found: dict[tuple[int, int], Count | None] = {}

    def at(self, frames: int, size: int) -> Count | None:
        if (frames, size) not in self._found:
            try:
                self._found[frames, size] = Count(self.model, self.settings, frames, size)
            except UserError:
                self._found[frames, size] = None
        return self._found[frames, size]


class Law:
    """The peak of a process in one mode.

    Args:
        mode: training with activations kept or recomputed, or inference.
        optimiser: whose state is there beside the weights in training.
        averaged: whether there are averaged weights in training, too.
    """

    def __init__(self, mode: Mode, counts: Counts, optimiser: Optimiser = "adamw", averaged: bool = False) -> None:
        self.mode, self.counts, self.optimiser = mode, counts, optimiser
        self.copies = 1 if mode == "inference" else COPIES[optimiser]
        self.averages = int(averaged and mode != "inference")

    def peak(self, clips: Clips) -> float | None:
        """In bytes; None for clips that the model cannot take."""
        found = self.counts.at(clips.frames, clips.size)
        if found is None:
            return None
        try:
            return (self.copies + self.averages) * found.weights + self.beside(clips.batch, found)
        except InputError:  # its bytes are more than a 64-bit number
            return inf

    def beside(self, batch: int, found: Count) -> float:
        """What is there beside the weights."""
        raise NotImplementedError


class CountedLaw(Law):
    """Where nothing can be measured: what is counted, and a few temporaries of the size of the largest output."""

    TEMPORARIES = 3

    def beside(self, batch: int, found: Count) -> float:
        # recomputing stores the input of each block and the activations of one block at a time
        saved = found.in_blocks * (1 - 2 / (found.blocks + 1)) if self.mode == "recomputed" and found.blocks else 0
        stored = 0 if self.mode == "inference" else found.kept - saved
        return batch * (stored + self.TEMPORARIES * found.largest)


@dataclass(frozen=True)
class Measured:
    """The peak of a process, in bytes."""

    batch: int
    frames: int
    size: int
    peak: int

    @property
    def clips(self) -> Clips:
        return Clips(self.batch, self.frames, self.size)


class MeasuredLaw(Law):
    """Between the measured clips on straight lines, beyond the largest on the line nearest to the last of them."""

    def __init__(
        self,
        mode: Mode,
        counts: Counts,
        measured: Sequence[Measured],
        optimiser: Optimiser = "adamw",
        averaged: bool = False,
    ) -> None:
        super().__init__(mode, counts, optimiser, averaged)
        self.measured = measured

    @cached_property
    def single(self) -> list[tuple[float, float]]:
        """The points of single clips, which take less: their parts are views where those of several are copies."""
        return self._points([one for one in self.measured if one.batch == 1])

    @cached_property
    def several(self) -> list[tuple[float, float]]:
        return self._points([one for one in self.measured if one.batch > 1])

    def _points(self, measured: Sequence[Measured]) -> list[tuple[float, float]]:
        """Counted bytes of the clips, and the measured peak without weights, which does not fall."""
        points: list[tuple[float, float]] = []
        for one in measured:
            found = self.counts.at(one.frames, one.size)
            assert found is not None
            beside = one.peak - self.copies * found.weights
            points.append((one.batch * unit(self.mode, found), max([beside, *(y for _, y in points)])))
        return points

    def beside(self, batch: int, found: Count) -> float:
        x, points = batch * unit(self.mode, found), self.single if batch == 1 else self.several
        if len(points) == 1:
            return points[0][1] * max(1.0, x / points[0][0])
        for (left, low), (right, high) in pairwise(points):
            if x <= right:
                return low + (high - low) * max(0.0, x - left) / (right - left)
        slope, intercept = linear_regression(*zip(*points[-LAST:], strict=True))
        return max(points[-1][1], intercept + slope * x)


def unit(mode: Mode, found: Count) -> int:
    """What the memory of a clip is proportional to."""
    return found.largest if mode == "inference" else found.kept


def measure_law(
    mode: Mode,
    counts: Counts,
    own: Clips,
    *,
    device: str = "cpu",
    threads: int = 1,
    optimiser: Optimiser = "adamw",
    averaged: bool = False,
) -> MeasuredLaw:
    """Measure a few small clips, single ones and several at a time, each in a process of their own."""
    measured: list[Measured] = []
    for planned in (single_clips(counts, own), several_clips(counts, own)):
        small = sum(clips.batch * found.largest < ENOUGH[mode] for clips, found in planned)
        job = PeakJob(
            counts.model,
            counts.settings,
            mode,
            [list(clips) for clips, _ in planned],
            enough=max(LAST, small + 1),
            grown=GROWN,
            device=device,
            threads=threads,
            optimiser=optimiser,
        )
        what = f"the memory of {counts.model} for {own}"
        peaks = measure_apart("fixformer.bench.capacity_worker", job, what)["peaks"]
        measured += [Measured(*clips, peak) for (clips, _), peak in zip(planned, peaks, strict=False)]
    return MeasuredLaw(mode, counts, measured, optimiser, averaged)


def single_clips(counts: Counts, own: Clips) -> list[tuple[Clips, Count]]:
    """Of smaller and larger frames."""
    return _possible(counts, [own._replace(size=_part(own, quarters)) for quarters in (*QUARTERS, *MORE_QUARTERS)])


def several_clips(counts: Counts, own: Clips) -> list[tuple[Clips, Count]]:
    """Two of smaller frames, then more and more."""
    pairs = [Clips(2, own.frames, _part(own, quarters)) for quarters in QUARTERS]
    return _possible(counts, [*pairs, *(own._replace(batch=batch) for batch in MORE_CLIPS)])


def _part(own: Clips, quarters: int) -> int:
    """A side of so many quarters of the model's own, rounded to one that it can take."""
    return own.size if quarters == 4 else max(SIZE_STEP, own.size * quarters // 4 // SIZE_STEP * SIZE_STEP)


def _possible(counts: Counts, planned: Sequence[Clips]) -> list[tuple[Clips, Count]]:
    found = [(clips, counts.at(clips.frames, clips.size)) for clips in dict.fromkeys(planned)]
    return [(clips, count) for clips, count in found if count is not None]
