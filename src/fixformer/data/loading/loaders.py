"""Batches from worker processes: the same for any number of workers and processes, resumable at any batch."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from torch.utils.data import DataLoader, Dataset

from fixformer.data.listing.index import order_digest
from fixformer.data.loading.datasets import (
    TestBatch,
    TestVideos,
    TrainBatch,
    TrainClips,
    TrainItem,
    collate_test,
    collate_train,
)
from fixformer.data.loading.sampler import Key, TestSampler, TrainSampler
from fixformer.data.loading.workers import collating, raising, worker_options
from fixformer.errors import UserError


class _Carried(Dataset[TrainItem | UserError]):
    """Training clips, of which a user's error is one."""

    def __init__(self, clips: TrainClips) -> None:
        self.clips = clips

    def __getitem__(self, key: Key) -> TrainItem | UserError:
        try:
            return self.clips[key]
        except UserError as error:
            return error


class TrainLoader:
    """Training batches of any epoch, from any batch on. Workers live as long as the loader."""

    def __init__(
        self,
        clips: TrainClips,
        *,
        batch_size: int,
        workers: int = 0,
        prefetch: int = 2,
        rank: int = 0,
        world: int = 1,
        pin_memory: bool = False,
    ) -> None:
        self.clips = clips
        self.sampler = TrainSampler(len(clips), batch_size, clips.seed, rank, world)
        self._loader: DataLoader[Any] = DataLoader(
            _Carried(clips),
            batch_sampler=self.sampler,
            collate_fn=collating(collate_train),
            **worker_options(workers, prefetch, persistent=True, pin_memory=pin_memory),
        )
        self._position = (0, 0)

    @property
    def steps(self) -> int:
        """Batches per epoch, the same on every process."""
        return self.sampler.steps

    def epoch(self, epoch: int, start: int = 0) -> Iterator[TrainBatch]:
        """The batches of one epoch, the first `start` of them left out."""
        self.sampler.epoch, self.sampler.start = epoch, start
        for step, batch in enumerate(raising(self._loader), start):
            # set before handing the batch out: whoever asks meanwhile has consumed it
            self._position = (epoch, step + 1) if step + 1 < self.steps else (epoch + 1, 0)
            yield batch

    def state_dict(self) -> dict[str, int | str]:
        """Where the consumer is: what `epoch(epoch, start)` must be called with to go on."""
        epoch, step = self._position
        return {"epoch": epoch, "step": step, **self._identity()}

    def check_state(self, state: dict[str, int | str]) -> tuple[int, int]:
        """(epoch, step) of a stored state, if it belongs to the same order of the same data."""
        for name, value in self._identity().items():
            if state.get(name) != value:
                raise UserError(f"the stored data position has {name}={state.get(name)}, this run has {name}={value}.")
        return int(state["epoch"]), int(state["step"])

    def _identity(self) -> dict[str, int | str]:
        sampler = self.sampler
        counts = {"samples": sampler.samples, "batch_size": sampler.batch_size, "seed": sampler.seed}
        return counts | {"order": self._order}

    @cached_property
    def _order(self) -> str:
        table = self.clips.table
        return order_digest(map(table.__getitem__, range(len(table))))


class ViewLoader:
    """All views of every video, each video exactly once over all processes; `TestBatch` after `TestBatch`."""

    def __init__(
        self,
        videos: TestVideos,
        *,
        batch_size: int = 1,
        workers: int = 0,
        prefetch: int = 2,
        rank: int = 0,
        world: int = 1,
        pin_memory: bool = False,
    ) -> None:
        self.videos = videos
        self._loader: DataLoader[Any] = DataLoader(
            videos,
            batch_sampler=TestSampler(len(videos), batch_size, rank, world),
            collate_fn=collate_test,
            **worker_options(workers, prefetch, persistent=False, pin_memory=pin_memory),
        )

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[TestBatch]:
        return iter(self._loader)
