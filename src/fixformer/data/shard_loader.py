"""Batches from shards that are read in order: for sets that lie on slow or remote storage.

Shards on a local disk can also be listed like any data set and read at random (`shards.load_shards`); these loaders are
for when random reading is too slow. They give the same batches for any number of workers' speeds, can start at any
batch, and need no process to know what the others do.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from fixformer.config import ClipSpec
from fixformer.data.dataset import (
    UNREADABLE,
    Problem,
    TestItem,
    TrainBatch,
    TrainItem,
    collate_test,
    collate_train,
)
from fixformer.data.frames import open_frames
from fixformer.data.seeds import generator
from fixformer.data.shard_stream import (
    Share,
    epoch_order,
    eval_part,
    read_in_order,
    read_shuffled,
    train_part,
    train_steps,
)
from fixformer.data.shards import ShardSet
from fixformer.data.views import make_train_clip, make_view_bytes
from fixformer.errors import UserError


class StreamClips(IterableDataset[TrainItem | UserError]):
    """The training clips of one worker's part of an epoch."""

    def __init__(
        self, shards: ShardSet, spec: ClipSpec, *, seed: int, batch_size: int, share: Share, location: str | None
    ) -> None:
        self.entries = shards.split("train")
        self.spec, self.seed, self.batch_size, self.share = spec, seed, batch_size, share
        self.location = location or str(shards.root)
        # in shared memory, so that workers which outlive an epoch learn of the next
        self.position = torch.zeros(2, dtype=torch.int64).share_memory_()

    def __iter__(self) -> Iterator[TrainItem | UserError]:
        epoch, start = (int(value) for value in self.position)
        # the loader asks worker 0 first, whichever batch the epoch starts at
        share = self.share.with_worker(turn=start)
        begin, end = train_part(len(self.entries), self.batch_size, share)
        part = epoch_order(self.entries, self.seed, epoch)[begin:end]
        own = self.batch_size // share.world
        skip = len(range(share.worker, start, share.workers)) * own
        number = {entry.key: i for i, entry in enumerate(self.entries)}
        for entry, data in read_shuffled(part, (self.seed, epoch, share.rank, share.worker), skip, self.location):
            try:
                with open_frames(data, self.spec) as frames:
                    clip, box = make_train_clip(frames, self.spec, generator(self.seed, epoch, entry.id))
            except UNREADABLE as error:
                yield UserError(f"{entry.shard}, {entry.id}: {error}")
                return
            yield TrainItem(clip, box, number[entry.key], entry.label, None)


class ShardTrainLoader:
    """Training batches of any epoch, from any batch on, read from shards in order.

    `batch_size` is that of all processes together.
    """

    def __init__(
        self,
        shards: ShardSet,
        spec: ClipSpec,
        *,
        seed: int,
        batch_size: int,
        workers: int = 0,
        prefetch: int = 2,
        rank: int = 0,
        world: int = 1,
        location: str | None = None,
    ) -> None:
        share = Share(rank, world)
        self.clips = StreamClips(shards, spec, seed=seed, batch_size=batch_size, share=share, location=location)
        self.steps = train_steps(len(self.clips.entries), batch_size, world)
        options: dict[str, Any] = {"prefetch_factor": prefetch, "persistent_workers": True} if workers else {}
        self._loader: DataLoader[Any] = DataLoader(
            self.clips,
            batch_size=batch_size // world,
            collate_fn=_collate,
            num_workers=workers,
            worker_init_fn=_start_worker,
            **options,
        )

    def epoch(self, epoch: int, start: int = 0) -> Iterator[TrainBatch]:
        """The batches of one epoch, the first `start` of them left out."""
        self.clips.position[:] = torch.tensor([epoch, start])
        for batch in self._loader:
            if isinstance(batch, UserError):
                raise batch
            yield batch


class StreamVideos(IterableDataset[TestItem]):
    """All views of the test videos of one worker's part."""

    def __init__(
        self,
        shards: ShardSet,
        split: str,
        spec: ClipSpec,
        *,
        clips: int,
        crops: int,
        share: Share,
        location: str | None,
    ) -> None:
        self.entries = shards.split(split)
        self.spec, self.clips, self.crops, self.share = spec, clips, crops, share
        self.location = location or str(shards.root)

    def __iter__(self) -> Iterator[TestItem]:
        begin, end = eval_part(len(self.entries), self.share.with_worker())
        for number, (entry, data) in enumerate(read_in_order(self.entries[begin:end], self.location), begin):
            try:
                with open_frames(data, self.spec) as frames:
                    views = make_view_bytes(frames, self.spec, self.clips, self.crops)
            except UNREADABLE as error:
                yield TestItem(None, number, entry.label, Problem(entry.id, entry.shard, str(error)))
                continue
            yield TestItem(views, number, entry.label, None)


def shard_view_loader(
    shards: ShardSet,
    split: str,
    spec: ClipSpec,
    *,
    clips: int = 1,
    crops: int = 1,
    batch_size: int = 1,
    workers: int = 0,
    prefetch: int = 2,
    rank: int = 0,
    world: int = 1,
    location: str | None = None,
) -> "DataLoader[Any]":
    """A loader of `TestBatch`: every video of the split exactly once over all processes."""
    share = Share(rank, world)
    videos = StreamVideos(shards, split, spec, clips=clips, crops=crops, share=share, location=location)
    options: dict[str, Any] = {"prefetch_factor": prefetch} if workers else {}
    return DataLoader(
        videos,
        batch_size=batch_size,
        collate_fn=collate_test,
        num_workers=workers,
        worker_init_fn=_start_worker,
        **options,
    )


def _collate(items: list[TrainItem | UserError]) -> TrainBatch | UserError:
    """Errors travel as values: raised in a worker, they would arrive wrapped in its traceback."""
    error = next((item for item in items if isinstance(item, UserError)), None)
    return error or collate_train([item for item in items if isinstance(item, TrainItem)])


def _start_worker(worker: int) -> None:
    torch.set_num_threads(1)
