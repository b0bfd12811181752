"""Batches from worker processes, resumable at any batch; the same code for files, cached videos and streamed shards."""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader, IterableDataset

from fixformer.data.listing.index import order_digest
from fixformer.data.loading.datasets import (
    TestBatch,
    TestItem,
    TestVideos,
    TrainBatch,
    TrainClips,
    TrainItem,
    collate_test,
    collate_train,
)
from fixformer.data.loading.order import RandomAccess, VideoOrder, WorkerSlot, batches_per_epoch
from fixformer.errors import UserError
from fixformer.runtime.pools import affordable_workers, start_worker

Item = TypeVar("Item")
Batch = TypeVar("Batch")


class TrainLoader:
    """Training batches of any epoch, from any batch on. Workers live as long as the loader.

    Args:
        clips: how a video becomes a clip.
        order: in which order the videos are read; `RandomAccess` if not given.
        batch_size: that of all processes together.
        workers: decoding processes; 0 decodes in this process.
        prefetch: batches each worker prepares ahead.
        rank, world: of this process.
        pin_memory: for copies to a GPU.
    """

    def __init__(
        self,
        clips: TrainClips,
        order: VideoOrder | None = None,
        *,
        batch_size: int,
        workers: int = 0,
        prefetch: int = 2,
        rank: int = 0,
        world: int = 1,
        pin_memory: bool = False,
    ) -> None:
        workers = affordable_workers(workers)
        self.steps = batches_per_epoch(len(clips.table), batch_size, world)
        """Batches per epoch, the same on every process."""
        self._items = _TrainItems(clips, order or RandomAccess(len(clips.table)), batch_size, rank, world)
        self._loader: DataLoader[Any] = DataLoader(
            self._items,
            batch_size=batch_size // world,
            collate_fn=_Collate(collate_train),
            **_worker_options(workers, prefetch, persistent=True, pin_memory=pin_memory),
        )
        self._workers = max(1, workers)
        self._position = (0, 0)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[TrainBatch]:
        """The batches of one epoch, without the first `start`."""
        self._items.position[:] = torch.tensor([epoch, start])
        for step, batch in enumerate(_raising(self._loader), start):
            # set before the batch is handed out: a caller who asks for the state has consumed it
            self._position = (epoch, step + 1) if step + 1 < self.steps else (epoch + 1, 0)
            yield batch

    def state_dict(self) -> dict[str, int | str]:
        """Where the consumer is: the arguments of `epoch(epoch, start)` with which to resume."""
        epoch, step = self._position
        return {"epoch": epoch, "step": step, **self._identity}

    def check_state(self, state: dict[str, int | str]) -> tuple[int, int]:
        """(epoch, step) of a stored state, if it belongs to the same order of the same data."""
        for name, value in self._identity.items():
            if state.get(name) != value:
                raise UserError(f"the stored data position has {name}={state.get(name)}, this run has {name}={value}.")
        return int(state["epoch"]), int(state["step"])

    @cached_property
    def _identity(self) -> dict[str, int | str]:
        """What the order of the clips follows from."""
        items, table = self._items, self._items.clips.table
        digest = order_digest(map(table.__getitem__, range(len(table))))
        counts = {"samples": len(table), "batch_size": items.batch_size, "seed": items.clips.seed}
        readers = {"readers": f"{items.world} x {self._workers}"} if items.order.depends_on_workers else {}
        balance = {"balance": items.order.balance} if items.order.balance != "none" else {}
        return {**counts, "order": digest, **readers, **balance}


class ViewLoader:
    """All views of every video, each video exactly once over all processes.

    Arguments are those of `TrainLoader`, except that `batch_size` is in videos and that of this process.
    """

    def __init__(
        self,
        videos: TestVideos,
        order: VideoOrder | None = None,
        *,
        batch_size: int = 1,
        workers: int = 0,
        prefetch: int = 2,
        rank: int = 0,
        world: int = 1,
        pin_memory: bool = False,
    ) -> None:
        order = order or RandomAccess(len(videos.table))
        workers = affordable_workers(workers)
        self._loader: DataLoader[Any] = DataLoader(
            _TestItems(videos, order, batch_size, rank, world),
            batch_size=batch_size,
            collate_fn=_Collate(collate_test),
            **_worker_options(workers, prefetch, persistent=False, pin_memory=pin_memory),
        )

    def __iter__(self) -> Iterator[TestBatch]:
        return _raising(self._loader)


class _TrainItems(IterableDataset[TrainItem | UserError]):
    """The clips of one worker's part of an epoch."""

    def __init__(self, clips: TrainClips, order: VideoOrder, batch_size: int, rank: int, world: int) -> None:
        self.clips, self.order, self.batch_size, self.rank, self.world = clips, order, batch_size, rank, world
        # epoch and first batch, in shared memory, so that workers which outlive an epoch see the next
        self.position = torch.zeros(2, dtype=torch.int64).share_memory_()

    def __iter__(self) -> Iterator[TrainItem | UserError]:
        epoch, start = self.position.tolist()
        slot = WorkerSlot.of_this_process(self.rank, self.world, start)
        visits = self.order.train(self.clips.seed, epoch, start, self.batch_size, slot)
        return _ending_with_error(self.clips.item(epoch, visit) for visit in visits)


class _TestItems(IterableDataset[TestItem | UserError]):
    """The views of one worker's part of the test videos."""

    def __init__(self, videos: TestVideos, order: VideoOrder, batch_size: int, rank: int, world: int) -> None:
        self.videos, self.order, self.batch_size, self.rank, self.world = videos, order, batch_size, rank, world

    def __iter__(self) -> Iterator[TestItem | UserError]:
        visits = self.order.test(self.batch_size, WorkerSlot.of_this_process(self.rank, self.world))
        return _ending_with_error(map(self.videos.item, visits))


# A user's error travels from a worker as an item, then as a batch, and is raised in the main process. Raised in the
# worker, it would arrive wrapped in the worker's traceback.


def _ending_with_error(items: Iterable[Item]) -> Iterator[Item | UserError]:
    try:
        yield from items
    except UserError as error:
        yield error


class _Collate:
    """Collates items; if one of them is an error, that is the batch. A class, because closures cannot be pickled."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self.collate = collate

    def __call__(self, items: list[Any]) -> Any:
        error = next((item for item in items if isinstance(item, UserError)), None)
        return self.collate(items) if error is None else error


def _raising(batches: Iterable[Batch | UserError]) -> Iterator[Batch]:
    for batch in batches:
        if isinstance(batch, UserError):
            try:
                raise batch
            finally:
                # the error's traceback refers to this frame: a reference back would be a cycle, which keeps the
                # workers alive until the garbage collector finds it
                del batch
        yield batch


def _worker_options(workers: int, prefetch: int, *, persistent: bool, pin_memory: bool) -> dict[str, Any]:
    """Of a `DataLoader`."""
    if workers == 0:
        return {"num_workers": 0, "pin_memory": pin_memory}
    return {
        "num_workers": workers,
        "prefetch_factor": prefetch,
        "persistent_workers": persistent,
        "pin_memory": pin_memory,
        "worker_init_fn": _start_worker,
    }


def _start_worker(worker: int) -> None:
    start_worker()
