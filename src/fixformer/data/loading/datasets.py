"""Map-style data sets: training clips and test videos with all their views, as bytes.

Everything random follows from (seed, epoch, video id). An unreadable training video is an error or, if so configured,
a recorded replacement; an unreadable test video is a recorded failure and never replaced.

Legend: B clips or videos, V views, C colours, T frames, H height, W width.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

import torch
from torch import Tensor
from torch.utils.data import Dataset

from fixformer.config import ClipSpec
from fixformer.data.clips import transforms
from fixformer.data.clips.augment import Box, boxes_tensor
from fixformer.data.clips.frames import FrameReader, FrameSource
from fixformer.data.clips.views import make_train_clip, make_view_bytes
from fixformer.data.listing import Sample
from fixformer.data.loading.sampler import Key
from fixformer.data.loading.table import SampleTable
from fixformer.data.video import DecodeError
from fixformer.errors import InputError, UserError
from fixformer.runtime.seeds import generator

UNREADABLE = (DecodeError, InputError, FileNotFoundError)
REPLACEMENTS = 10
T = TypeVar("T")


class Reader(Protocol):
    """Opens the video of a sample: by decoding, or from the cache."""

    def open(self, index: int, sample: Sample) -> AbstractContextManager[FrameSource]: ...


@dataclass(frozen=True)
class Problem:
    """A video that could not be read, and the one taken instead (training only)."""

    id: str
    path: str
    message: str
    replaced_by: str | None = None


@dataclass
class TrainItem:
    clip_CTHW: Tensor
    box: Box
    index: int
    label: int
    problem: Problem | None


@dataclass
class TestItem:
    views_VCTHW: Tensor | None
    index: int
    label: int
    problem: Problem | None

    __test__ = False  # not a pytest class


@dataclass
class TrainBatch:
    """Clips as bytes; `inputs` is what the model takes. `index_B` are places in the data set's table."""

    video_BCTHW: Tensor
    boxes_B4: Tensor
    labels_B: Tensor
    index_B: Tensor
    problems: list[Problem]

    def inputs(self, spec: ClipSpec, device: torch.device | str = "cpu") -> Tensor:
        """Normalised clips on the device, boxes erased."""
        video = transforms.normalise(self.video_BCTHW.to(device, non_blocking=True), spec.mean, spec.std)
        return transforms.erase_boxes(video, self.boxes_B4)

    def pin_memory(self) -> "TrainBatch":
        self.video_BCTHW = self.video_BCTHW.pin_memory()
        return self


@dataclass
class TestBatch:
    """All views of some videos, as bytes; `problems` lists those of this batch that have none."""

    views_BVCTHW: Tensor
    labels_B: Tensor
    index_B: Tensor
    problems: list[Problem]

    __test__ = False  # not a pytest class

    def inputs(self, spec: ClipSpec, device: torch.device | str = "cpu") -> Tensor:
        """Normalised views on the device."""
        return transforms.normalise(self.views_BVCTHW.to(device, non_blocking=True), spec.mean, spec.std)

    def pin_memory(self) -> "TestBatch":
        self.views_BVCTHW = self.views_BVCTHW.pin_memory()
        return self


class TrainClips(Dataset[TrainItem]):
    """One augmented clip per (epoch, index)."""

    def __init__(
        self,
        samples: Sequence[Sample],
        spec: ClipSpec,
        *,
        seed: int,
        reader: Reader | None = None,
        unreadable: Literal["error", "replace"] = "error",
    ) -> None:
        self.table = SampleTable(samples)
        self.spec, self.seed, self.unreadable = spec, seed, unreadable
        self.reader = reader or FrameReader(spec)

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, key: Key) -> TrainItem:
        epoch, index = key
        try:
            return self._read(epoch, index)
        except UNREADABLE as error:
            if self.unreadable == "error":
                raise _naming(self.table[index].path, error) from None
            return self._replace(epoch, index, str(error))

    def _read(self, epoch: int, index: int) -> TrainItem:
        return _twice(lambda: self._read_once(epoch, index))

    def _read_once(self, epoch: int, index: int) -> TrainItem:
        sample = self.table[index]
        with self.reader.open(index, sample) as frames:
            clip, box = make_train_clip(frames, self.spec, generator(self.seed, epoch, sample.id))
        return TrainItem(clip, box, index, sample.label, None)

    def _replace(self, epoch: int, index: int, message: str) -> TrainItem:
        """Another video of the same class, drawn for this (seed, epoch, video)."""
        sample = self.table[index]
        same_class = self.table.with_label(sample.label)
        rng = generator(self.seed, epoch, sample.id, "replace")
        for other in rng.permutation(same_class[same_class != index])[:REPLACEMENTS]:
            try:
                item = self._read(epoch, int(other))
            except UNREADABLE:
                continue
            item.problem = Problem(sample.id, sample.path, message, self.table.id(int(other)))
            return item
        raise UserError(f"{sample.path} is unreadable ({message}) and so is what was tried in its place.")


def _naming(path: str, error: Exception) -> Exception:
    """The error, with the file in its message where sampling or scaling raised it, which know no file."""
    return InputError(f"{path}: {error}") if isinstance(error, InputError) and path not in str(error) else error


class TestVideos(Dataset[TestItem]):
    """All views of one video, or the record of why there are none."""

    __test__ = False  # not a pytest class

    def __init__(
        self, samples: Sequence[Sample], spec: ClipSpec, *, clips: int = 1, crops: int = 1, reader: Reader | None = None
    ) -> None:
        transforms.chosen_crops(crops)
        self.table = SampleTable(samples)
        self.spec, self.clips, self.crops = spec, clips, crops
        self.reader = reader or FrameReader(spec)

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> TestItem:
        sample = self.table[index]
        try:
            views = _twice(lambda: self._read_once(index, sample))
        except UNREADABLE as error:
            return TestItem(None, index, sample.label, Problem(sample.id, sample.path, str(error)))
        return TestItem(views, index, sample.label, None)

    def _read_once(self, index: int, sample: Sample) -> Tensor:
        with self.reader.open(index, sample) as frames:
            return make_view_bytes(frames, self.spec, self.clips, self.crops)


def _twice(read: Callable[[], T]) -> T:
    """Try again once: a stopped process or a slow network disk runs into the decoder's time limit with a good file."""
    try:
        return read()
    except DecodeError:
        return read()


def collate_train(items: list[TrainItem]) -> TrainBatch:
    return TrainBatch(
        torch.stack([item.clip_CTHW for item in items]),
        boxes_tensor([item.box for item in items]),
        torch.tensor([item.label for item in items]),
        torch.tensor([item.index for item in items]),
        [item.problem for item in items if item.problem],
    )


def collate_test(items: list[TestItem]) -> TestBatch:
    """Unreadable videos leave the tensors and stay in `problems`; a batch may be empty."""
    readable = [item for item in items if item.views_VCTHW is not None]
    views = [item.views_VCTHW for item in readable if item.views_VCTHW is not None]
    return TestBatch(
        torch.stack(views) if views else torch.empty(0, 0, 3, 0, 0, 0, dtype=torch.uint8),
        torch.tensor([item.label for item in readable], dtype=torch.int64),
        torch.tensor([item.index for item in readable], dtype=torch.int64),
        [item.problem for item in items if item.problem],
    )
