"""Batches from shards that are read in order: for sets that lie on slow or remote storage.

Shards on a local disk can also be listed like any data set and read at random (`shards.load_shards`); these loaders are
for when random reading is too slow. They give the same batches for any number of workers' speeds, can start at any
batch, and need no process to know what the others do.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from fixformer.config import ClipSpec, DataConfig
from fixformer.data.clips.frames import FrameSource, open_frames
from fixformer.data.listing import Sample
from fixformer.data.listing.shards import Entry, ShardSet, is_shard_set, read_index
from fixformer.data.loading.datasets import (
    UNREADABLE,
    TestBatch,
    TestItem,
    TestVideos,
    TrainBatch,
    TrainClips,
    TrainItem,
    collate_test,
    collate_train,
)
from fixformer.data.loading.shard_stream import (
    Share,
    epoch_order,
    eval_part,
    read_in_order,
    read_shuffled,
    train_part,
    train_steps,
)
from fixformer.data.loading.workers import collating, raising, worker_options
from fixformer.data.video import Policy
from fixformer.data.video.shard_member import member_path
from fixformer.errors import SettingsConflict, UserError


def shards_of(samples: list[Sample], data: DataConfig) -> ShardSet:
    """The shard set at `data.path` with only the listed videos, in their order."""
    root = Path(data.path)
    if not is_shard_set(root):
        raise SettingsConflict(
            f"location={data.location!r} is for shards, but {root} is no shard set; make one with `fixformer prepare "
            "--shards`, or leave location out."
        )
    location = data.location or data.path
    if "{shard}" not in location and not Path(location).is_dir():
        raise UserError(f"location={location!r} is no directory; give one, or a pattern with {{shard}} in it.")
    shards = read_index(root)
    by_path = {_path(root, entry): entry for entry in shards.entries}
    return replace(shards, entries=[by_path[sample.path] for sample in samples])


class HeldVideo:
    """A reader for bytes that have come by: opens what `data` was set to last, whichever sample is asked for."""

    def __init__(self, spec: ClipSpec, *, backend: str = "pyav", damaged: Policy = "strict") -> None:
        self.spec, self.backend, self.damaged = spec, backend, damaged
        self.data = b""

    @contextmanager
    def open(self, index: int, sample: Sample) -> Iterator[FrameSource]:
        with open_frames(self.data, self.spec, backend=self.backend, damaged=self.damaged) as frames:
            yield frames


class StreamClips(IterableDataset[TrainItem | UserError]):
    """The training clips of one worker's part of an epoch."""

    def __init__(
        self, shards: ShardSet, held: HeldVideo, *, seed: int, batch_size: int, share: Share, location: str | None
    ) -> None:
        self.entries = shards.split("train")
        self.held, self.seed, self.batch_size, self.share = held, seed, batch_size, share
        self.clips = TrainClips(_samples(shards.root, self.entries), held.spec, seed=seed, reader=held)
        self.location = location or str(shards.root)
        # in shared memory, so that workers which outlive an epoch learn of the next
        self.position = torch.zeros(2, dtype=torch.int64).share_memory_()

    def __iter__(self) -> Iterator[TrainItem | UserError]:
        return _carried(self._read())

    def _read(self) -> Iterator[TrainItem]:
        epoch, start = (int(value) for value in self.position)
        # the loader asks worker 0 first, whichever batch the epoch starts at
        share = self.share.with_worker(turn=start)
        begin, end = train_part(len(self.entries), self.batch_size, share)
        part = epoch_order(self.entries, self.seed, epoch)[begin:end]
        own = self.batch_size // share.world
        skip = len(range(share.worker, start, share.workers)) * own
        number = {entry.key: i for i, entry in enumerate(self.entries)}
        key = (self.seed, epoch, share.rank, share.worker)
        for entry, data in read_shuffled(part, key, skip, self.location):
            self.held.data = data
            try:
                item = self.clips[epoch, number[entry.key]]
            except UNREADABLE as error:
                raise UserError(f"{entry.shard}, {entry.id}: {error}") from None
            yield item


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
        backend: str = "pyav",
        damaged: Policy = "strict",
        pin_memory: bool = False,
    ) -> None:
        held = HeldVideo(spec, backend=backend, damaged=damaged)
        share = Share(rank, world)
        self.clips = StreamClips(shards, held, seed=seed, batch_size=batch_size, share=share, location=location)
        self.steps = train_steps(len(self.clips.entries), batch_size, world)
        self._loader: DataLoader[Any] = DataLoader(
            self.clips,
            batch_size=batch_size // world,
            collate_fn=collating(collate_train),
            **worker_options(workers, prefetch, persistent=True, pin_memory=pin_memory),
        )

    def epoch(self, epoch: int, start: int = 0) -> Iterator[TrainBatch]:
        """The batches of one epoch, the first `start` of them left out."""
        self.clips.position[:] = torch.tensor([epoch, start])
        yield from raising(self._loader)


class StreamVideos(IterableDataset[TestItem | UserError]):
    """All views of the test videos of one worker's part."""

    def __init__(
        self, shards: ShardSet, held: HeldVideo, *, clips: int, crops: int, share: Share, location: str | None
    ) -> None:
        self.entries = shards.entries
        self.held, self.share = held, share
        samples = _samples(shards.root, self.entries)
        self.videos = TestVideos(samples, held.spec, clips=clips, crops=crops, reader=held)
        self.location = location or str(shards.root)

    def __iter__(self) -> Iterator[TestItem | UserError]:
        return _carried(self._read())

    def _read(self) -> Iterator[TestItem]:
        begin, end = eval_part(len(self.entries), self.share.with_worker())
        reader = read_in_order(self.entries[begin:end], self.location)
        for number, (_, data) in enumerate(reader, begin):
            self.held.data = data
            yield self.videos[number]


def shard_view_loader(
    shards: ShardSet,
    split: str | None,
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
    backend: str = "pyav",
    damaged: Policy = "strict",
    pin_memory: bool = False,
) -> Iterator[TestBatch]:
    """Every video of the split, or of the whole set if None, exactly once over all processes."""
    chosen = shards if split is None else replace(shards, entries=shards.split(split))
    held = HeldVideo(spec, backend=backend, damaged=damaged)
    videos = StreamVideos(chosen, held, clips=clips, crops=crops, share=Share(rank, world), location=location)
    loader: DataLoader[Any] = DataLoader(
        videos,
        batch_size=batch_size,
        collate_fn=collating(collate_test),
        **worker_options(workers, prefetch, persistent=False, pin_memory=pin_memory),
    )
    return raising(loader)


def _path(root: Path, entry: Entry) -> str:
    return member_path(root / entry.shard, entry.offset, entry.size)


def _samples(root: Path, entries: list[Entry]) -> list[Sample]:
    return [Sample(_path(root, entry), entry.label, entry.split, entry.id) for entry in entries]


def _carried(items: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from items
    except UserError as error:
        yield error
