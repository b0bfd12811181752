"""Which videos each worker of each process reads, and in what order. It follows from (seed, epoch) alone.

A training epoch is a list of batches, equal in number on every process. A data loader takes the batches of a process
from its W workers in turn, so batch b is made by worker b mod W.

Videos that can be read in any order (`RandomAccess`) are shuffled as a whole, and each process takes its contiguous
part of every global batch: the global batches are the same for any number of processes and workers. Shards that are
read from front to back divide an epoch differently, see `shard_stream`. A test pass visits every video exactly once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch.utils.data import get_worker_info

from fixformer.errors import SettingsConflict, UserError
from fixformer.runtime.seeds import generator


@dataclass(frozen=True, slots=True)
class Visit:
    """The next video to read: its place in the list of samples and, if it has already been read, its bytes.

    `draw` counts how often the epoch has visited the video before: another draw is another augmentation.
    """

    index: int
    content: bytes | None = None
    draw: int = 0


@dataclass(frozen=True)
class WorkerSlot:
    """Worker `worker` of `workers` on process `rank` of `world`."""

    rank: int = 0
    world: int = 1
    worker: int = 0
    workers: int = 1

    def __post_init__(self) -> None:
        assert 0 <= self.rank < self.world, self
        assert 0 <= self.worker < self.workers, self

    @classmethod
    def of_this_process(cls, rank: int, world: int, start: int = 0) -> "WorkerSlot":
        """The slot of the data loader's worker that runs this, for an epoch from batch `start` on.

        The loader asks worker 0 first, whichever the first batch is, so the slots are rotated by `start`.
        """
        info = get_worker_info()
        if info is None:
            return cls(rank, world)
        return cls(rank, world, (info.id + start) % info.num_workers, info.num_workers)

    def batches(self, start: int, stop: int) -> range:
        """The numbers from `start` to `stop` of the batches that this worker makes."""
        return range(start + (self.worker - start) % self.workers, stop, self.workers)


class VideoOrder(Protocol):
    """The order in which the videos of a list of samples are read."""

    depends_on_workers: bool
    """Whether another number of processes or workers gives other training batches."""
    balance: str
    """As `DataConfig.balance`."""

    def train(self, seed: int, epoch: int, start: int, batch_size: int, slot: WorkerSlot) -> Iterator[Visit]:
        """The training videos of one worker, from batch `start` on; `batch_size` is that of all processes together."""
        ...

    def test(self, batch_size: int, slot: WorkerSlot) -> Iterator[Visit]:
        """The test videos of one worker; `batch_size` is that of one process."""
        ...


def batches_per_epoch(videos: int, batch_size: int, world: int) -> int:
    """Training batches in an epoch. The remainder that fills no batch is another one in every epoch."""
    if batch_size < 1:
        raise UserError(f"batch size {batch_size}: expected at least 1.")
    if batch_size % world:
        raise SettingsConflict(f"batch size {batch_size} cannot be divided between {world} processes.")
    if batch_size > videos:
        raise UserError(f"batch size {batch_size} is larger than the training set of {videos} videos.")
    return videos // batch_size


class RandomAccess:
    """Videos that can be read in any order: files, cached videos, videos in shards on a local disk."""

    depends_on_workers = False
    balance = "none"

    def __init__(self, videos: int) -> None:
        self.videos = videos

    def train(self, seed: int, epoch: int, start: int, batch_size: int, slot: WorkerSlot) -> Iterator[Visit]:
        steps, own = batches_per_epoch(self.videos, batch_size, slot.world), batch_size // slot.world
        index, draw = self.epoch(seed, epoch)
        for step in slot.batches(start, steps):
            begin = step * batch_size + slot.rank * own
            part = slice(begin, begin + own)
            for number, again in zip(index[part].tolist(), draw[part].tolist(), strict=True):
                yield Visit(number, draw=again)

    def epoch(self, seed: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The videos of an epoch in order, and how often each has been visited before in it."""
        order = generator(seed, epoch, "order").permutation(self.videos)
        return order, np.zeros_like(order)

    def test(self, batch_size: int, slot: WorkerSlot) -> Iterator[Visit]:
        """Videos are dealt out to the processes one by one, so their numbers differ by at most one."""
        own = range(slot.rank, self.videos, slot.world)
        for batch in slot.batches(0, -(-len(own) // batch_size)):
            for index in own[batch * batch_size : (batch + 1) * batch_size]:
                yield Visit(index)


class BalancedClasses(RandomAccess):
    """Every class equally often in an epoch, which stays as long as the list of samples.

    A small class is visited several times, each time with another augmentation; a large one in part, another in every
    epoch.
    """

    balance = "classes"

    def __init__(self, labels: Sequence[int]) -> None:
        super().__init__(len(labels))
        label_N = np.array(labels, np.int64)
        self._members = [np.flatnonzero(label_N == label) for label in np.unique(label_N)]

    def epoch(self, seed: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        rng, classes = generator(seed, epoch, "balance"), len(self._members)
        share, rest = divmod(self.videos, classes)
        # what cannot be divided goes to other classes in every epoch
        counts = share + (rng.permutation(classes) < rest)
        index = np.concatenate(
            [np.resize(rng.permutation(own), count) for own, count in zip(self._members, counts, strict=True)]
        )
        draw = np.concatenate([np.arange(count) // len(own) for own, count in zip(self._members, counts, strict=True)])
        order = rng.permutation(self.videos)
        return index[order], draw[order]
