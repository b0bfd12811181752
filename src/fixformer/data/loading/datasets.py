"""Training clips and test videos with all their views, as bytes.

Everything random follows from (seed, epoch, video id), and the draw if an epoch visits a video again. An unreadable
training video is an error or, if so configured, a recorded replacement; an unreadable test video is a recorded failure
and never replaced.

Legend: B clips or videos, V views, C colours, T frames, H height, W width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor

from fixformer.config import ClipSpec
from fixformer.config.schema import checked
from fixformer.data.clips import transforms
from fixformer.data.clips.augment import Box
from fixformer.data.clips.frames import FrameSource
from fixformer.data.clips.views import make_train_clip, make_view_bytes
from fixformer.data.listing import Sample
from fixformer.data.loading.order import Visit
from fixformer.data.loading.reader import DecodingReader, VideoReader
from fixformer.data.loading.table import SampleTable
from fixformer.data.video import DecodeError
from fixformer.errors import InputError, UserError
from fixformer.runtime.seeds import generator

UNREADABLE = (DecodeError, InputError)
# how many videos of its class are tried in the place of an unreadable one, before the class itself is in doubt
REPLACEMENTS = 10
T = TypeVar("T")


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
    """Clips as bytes; `inputs` is what the model takes. `index_B` are numbers of samples."""

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


class TrainClips:
    """One augmented clip per (epoch, video)."""

    @checked
    def __init__(
        self,
        samples: Sequence[Sample],
        spec: ClipSpec,
        *,
        seed: int,
        reader: VideoReader | None = None,
        unreadable: Literal["error", "replace"] = "error",
    ) -> None:
        self.table = SampleTable(samples)
        self.spec, self.seed, self.unreadable = spec, seed, unreadable
        self.reader = reader or DecodingReader(spec)

    def item(self, epoch: int, visit: Visit) -> TrainItem:
        """The clip of a video, or of another of its class if it is unreadable and may be replaced."""
        try:
            return self._read(epoch, visit)
        except UNREADABLE as error:
            if self.unreadable == "error":
                raise
            message = str(error)
        sample = self.table[visit.index]
        same_class = self.table.with_label(sample.label)
        rng = generator(self.seed, epoch, sample.id, "replace")
        for other in rng.permutation(same_class[same_class != visit.index])[:REPLACEMENTS].tolist():
            try:
                item = self._read(epoch, Visit(other, draw=visit.draw))
            except UNREADABLE:
                continue
            item.problem = Problem(sample.id, sample.path, message, self.table.id(other))
            return item
        raise UserError(f"{sample.path} is unreadable ({message}), and so are the videos tried in its place.")

    def _read(self, epoch: int, visit: Visit) -> TrainItem:
        sample = self.table[visit.index]

        def make(frames: FrameSource) -> tuple[Tensor, Box]:
            again = (visit.draw,) if visit.draw else ()
            return make_train_clip(frames, self.spec, generator(self.seed, epoch, sample.id, *again))

        clip_CTHW, box = _read_video(self.reader, sample, visit, make)
        return TrainItem(clip_CTHW, box, visit.index, sample.label, None)


class TestVideos:
    """All views of one video, or the record of why there are none."""

    __test__ = False  # not a pytest class

    def __init__(
        self,
        samples: Sequence[Sample],
        spec: ClipSpec,
        *,
        clips: int = 1,
        crops: int = 1,
        reader: VideoReader | None = None,
    ) -> None:
        transforms.chosen_crops(crops)
        self.table = SampleTable(samples)
        self.spec, self.clips, self.crops = spec, clips, crops
        self.reader = reader or DecodingReader(spec)

    def item(self, visit: Visit) -> TestItem:
        sample = self.table[visit.index]

        def make(frames: FrameSource) -> Tensor:
            return make_view_bytes(frames, self.spec, self.clips, self.crops)

        try:
            views_VCTHW = _read_video(self.reader, sample, visit, make)
        except UNREADABLE as error:
            return TestItem(None, visit.index, sample.label, Problem(sample.id, sample.path, str(error)))
        return TestItem(views_VCTHW, visit.index, sample.label, None)


def _read_video(reader: VideoReader, sample: Sample, visit: Visit, make: Callable[[FrameSource], T]) -> T:
    """What `make` makes of the open video; errors name the sample.

    A video that cannot be decoded is tried a second time: a process that was stopped for a while, or a slow network
    disk, makes a good file run into the decoder's time limit. A damaged cache is not read the second time.
    """

    def read() -> T:
        with reader.open(visit.index, sample, visit.content) as frames:
            return make(frames)

    try:
        try:
            return read()
        except DecodeError:
            return read()
    except DecodeError as error:
        if sample.path in str(error):
            raise
        # bytes have no name
        place = f"{sample.path} ({sample.id})"
        raise DecodeError(error.problem, file=place, stream=error.stream, frame=error.frame) from None
    except InputError as error:
        # sampling and scaling do not know the file
        raise error if sample.path in str(error) else InputError(f"{sample.path}: {error}") from None


def collate_train(items: list[TrainItem]) -> TrainBatch:
    return TrainBatch(
        torch.stack([item.clip_CTHW for item in items]),
        torch.tensor([item.box for item in items], dtype=torch.int64).view(-1, 4),
        torch.tensor([item.label for item in items]),
        torch.tensor([item.index for item in items]),
        [item.problem for item in items if item.problem],
    )


def collate_test(items: list[TestItem]) -> TestBatch:
    """Unreadable videos are absent from the tensors and listed in `problems`; a batch may be empty."""
    readable = [item for item in items if item.views_VCTHW is not None]
    views = [item.views_VCTHW for item in readable if item.views_VCTHW is not None]
    return TestBatch(
        torch.stack(views) if views else torch.empty(0, 0, 3, 0, 0, 0, dtype=torch.uint8),
        torch.tensor([item.label for item in readable], dtype=torch.int64),
        torch.tensor([item.index for item in readable], dtype=torch.int64),
        [item.problem for item in items if item.problem],
    )
