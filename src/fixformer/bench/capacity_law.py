"""How the memory of a process grows with its clips: measured on a few, and continued along what is counted.

What training keeps of a clip, and what inference has at a time, is counted on the meta device for any clip
(`models/cost.py`). What a process really takes for it, with its libraries, its temporaries and the passes of
`models/fused.py`, is measured on small clips, and grows with the counted bytes along a straight line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from fixformer.bench.capacity_worker import Mode, PeakJob
from fixformer.bench.process import measure_apart
from fixformer.errors import UserError
from fixformer.models.cost import AttentionAsFused, largest_output, saved_bytes
from fixformer.models.registry import create_model

# Sizes are multiples of this, which all models can take: none of them divides a frame more often.
SIZE_STEP = 16
# Bytes of the largest output of a layer up to which clips are measured. From 4 MB on training, from 32 MB on inference
# runs in chunks (`models/fused.py`); beyond that nothing changes but the length of the loops.
ENOUGH: dict[Mode, int] = {"kept": 32 << 20, "recomputed": 64 << 20, "inference": 256 << 20}
# The fastest growth from a clip to the next one: half of the side.
GROWTH = 4.0
# Weights, gradients (which come when activations go) and the moments of the optimiser, each as large as the weights.
MOMENTS = {"sgd": 1, "adamw": 2}


class Clips(NamedTuple):
    """A batch of clips."""

    batch: int
    frames: int
    size: int

    def __str__(self) -> str:
        clip = f"{self.frames}x{self.size}"
        return clip if self.batch == 1 else f"{self.batch} of {clip}"


@dataclass(frozen=True)
class Count:
    """Of one clip, in bytes: what training keeps, of it in the blocks, and the largest output of a layer; of the model
    for this clip: its weights, and the number of its blocks."""

    kept: int
    in_blocks: int
    largest: int
    weights: int
    blocks: int


class Counts:
    """The counts of a model for clips of any size; None for those that it cannot take."""

    def __init__(self, model: str, settings: dict[str, Any]) -> None:
        self.model, self.settings = model, settings
        self._found: dict[tuple[int, int], Count | None] = {}

    def at(self, frames: int, size: int) -> Count | None:
        if (frames, size) not in self._found:
            try:
                self._found[frames, size] = count(self.model, self.settings, frames, size)
            except UserError:
                self._found[frames, size] = None
        return self._found[frames, size]


def count(name: str, settings: dict[str, Any], frames: int, size: int) -> Count:
    """On the meta device, where nothing is computed."""
    with torch.device("meta"):
        model = create_model(name, **{**settings, "num_frames": frames, "image_size": size}).eval()
    largest = largest_output(model, frames, size)  # first, because it refuses what cannot be counted
    with AttentionAsFused():
        kept = saved_bytes(model, frames, size)
    blocks = len(getattr(model, "blocks", ()))
    return Count(
        kept=kept[""],
        in_blocks=sum(kept.get(f"blocks.{i}", 0) for i in range(blocks)),
        largest=largest,
        weights=sum(parameter.nbytes for parameter in model.parameters()),
        blocks=blocks,
    )


class Law:
    """The peak of a process in one mode.

    Args:
        mode: training with activations kept or recomputed, or inference.
        copies: how often the weights are there, with the optimiser's state and averaged weights.
    """

    def __init__(self, mode: Mode, counts: Counts, copies: int) -> None:
        self.mode, self.counts, self.copies = mode, counts, copies

    def peak(self, clips: Clips) -> float | None:
        """In bytes; None for clips that the model cannot take."""
        found = self.counts.at(clips.frames, clips.size)
        return None if found is None else self.copies * found.weights + self.beside(clips.batch, found)

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
    """Between the measured clips on straight lines, and beyond the largest along the last of them."""

    def __init__(
        self, mode: Mode, counts: Counts, copies: int, measured: Sequence[Measured], averaged: bool = False
    ) -> None:
        super().__init__(mode, counts, copies + averaged)
        self.measured, self.averaged = measured, averaged

    @cached_property
    def points(self) -> list[tuple[float, float]]:
        """Counted bytes of the clips, and the measured peak without weights, which does not fall."""
        points: list[tuple[float, float]] = []
        for one in self.measured:
            found = self.counts.at(one.frames, one.size)
            assert found is not None
            beside = one.peak - (self.copies - self.averaged) * found.weights
            points.append((one.batch * self.unit(found), max([beside, *(y for _, y in points)])))
        return points

    def unit(self, found: Count) -> int:
        """What the memory of a clip is proportional to."""
        return found.largest if self.mode == "inference" else found.kept

    def beside(self, batch: int, found: Count) -> float:
        x, points = batch * self.unit(found), self.points
        if len(points) == 1:
            return points[0][1] * max(1.0, x / points[0][0])
        (left, low), (right, high) = next((pair for pair in pairwise(points) if x <= pair[1][0]), points[-2:])
        return low + (high - low) * max(0.0, x - left) / (right - left)


def measure_law(
    mode: Mode, counts: Counts, own: Clips, *, device: str, threads: int, optimiser: str, averaged: bool = False
) -> MeasuredLaw:
    """Measure a few small clips in a process of their own."""
    clips = clips_to_measure(mode, counts, own)
    job = PeakJob(
        counts.model,
        counts.settings,
        mode,
        [list(one) for one in clips],
        [GROWTH] * len(clips),
        device=device,
        threads=threads,
        optimiser=optimiser,  # type: ignore[arg-type]
    )
    what = f"the memory of {counts.model} for {clips[0]}"
    peaks = measure_apart("fixformer.bench.capacity_worker", job, what)["peaks"]
    measured = [Measured(*one, peak) for one, peak in zip(clips, peaks, strict=False)]
    return MeasuredLaw(mode, counts, copies(mode, optimiser), measured, averaged and mode != "inference")


def copies(mode: Mode, optimiser: str) -> int:
    """How often the weights are there while the most activations are."""
    return 1 if mode == "inference" else 1 + MOMENTS[optimiser]


def clips_to_measure(mode: Mode, counts: Counts, own: Clips) -> list[Clips]:
    """Smaller frames, then more clips, until the passes are those of large clips."""
    sizes = [max(SIZE_STEP, own.size * quarter // 4 // SIZE_STEP * SIZE_STEP) for quarter in (1, 2, 3)]
    planned = [Clips(1, own.frames, size) for size in dict.fromkeys([*sizes, own.size])]
    planned += [Clips(2**i, own.frames, own.size) for i in range(1, 12)]
    chosen: list[Clips] = []
    for clips in planned:
        found = counts.at(clips.frames, clips.size)
        if found is None:
            continue
        chosen.append(clips)
        if len(chosen) > 2 and clips.batch * found.largest >= ENOUGH[mode]:
            break
    if not chosen:
        raise UserError(f"{counts.model} cannot take clips of {own}; expected others, such as its own.")
    return chosen
