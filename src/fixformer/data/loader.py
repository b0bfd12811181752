"""Batches from worker processes: the same for any number of workers and processes, resumable at any batch."""

import hashlib
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from fixformer.config import ClipSpec, DataConfig
from fixformer.data.cache import CachedReader, Progress, fill_cache
from fixformer.data.dataset import (
    Reader,
    TestBatch,
    TestVideos,
    TrainBatch,
    TrainClips,
    TrainItem,
    collate_test,
    collate_train,
)
from fixformer.data.frames import FrameReader
from fixformer.data.index import Index, Sample, load_index
from fixformer.data.sampler import Key, TestSampler, TrainSampler
from fixformer.errors import UserError


class _Carried(Dataset[TrainItem | UserError]):
    """Brings a user's error home as a value: raised in a worker, it would arrive wrapped in the worker's traceback."""

    def __init__(self, clips: TrainClips) -> None:
        self.clips = clips

    def __getitem__(self, key: Key) -> TrainItem | UserError:
        try:
            return self.clips[key]
        except UserError as error:
            return error


def _collate(items: list[TrainItem | UserError]) -> TrainBatch | UserError:
    error = next((item for item in items if isinstance(item, UserError)), None)
    return error or collate_train([item for item in items if isinstance(item, TrainItem)])


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
            collate_fn=_collate,
            **_worker_options(workers, prefetch, persistent=True, pin_memory=pin_memory),
        )
        self._position = (0, 0)
        self._order = _digest_of_order(clips)

    @property
    def steps(self) -> int:
        """Batches per epoch, the same on every process."""
        return self.sampler.steps

    def epoch(self, epoch: int, start: int = 0) -> Iterator[TrainBatch]:
        """The batches of one epoch, the first `start` of them left out."""
        self.sampler.epoch, self.sampler.start = epoch, start
        for step, batch in enumerate(self._loader, start):
            if isinstance(batch, UserError):
                try:
                    raise batch
                finally:
                    # an error that knows the frame that knows it would keep the workers alive and stop them badly
                    del batch
            # set before handing the batch out: whoever asks meanwhile has consumed it
            self._position = (epoch, step + 1) if step + 1 < self.steps else (epoch + 1, 0)
            yield batch

    def state_dict(self) -> dict[str, int]:
        """Where the consumer is: what `epoch(epoch, start)` must be called with to go on."""
        epoch, step = self._position
        return {"epoch": epoch, "step": step, **self._identity()}

    def check_state(self, state: dict[str, int]) -> tuple[int, int]:
        """(epoch, step) of a stored state, if it belongs to the same order of the same data."""
        for name, value in self._identity().items():
            if state.get(name) != value:
                raise UserError(f"the stored data position has {name}={state.get(name)}, this run has {name}={value}.")
        return state["epoch"], state["step"]

    def _identity(self) -> dict[str, int]:
        sampler = self.sampler
        counts = {"samples": sampler.samples, "batch_size": sampler.batch_size, "seed": sampler.seed}
        return counts | {"order": self._order}


def _digest_of_order(clips: TrainClips) -> int:
    """Of the listed videos one after another, by id and not by path, so that a set may move between two runs."""
    digest = hashlib.blake2b(digest_size=6)
    for sample in map(clips.table.__getitem__, range(len(clips.table))):
        digest.update(repr((sample.id, sample.label, sample.start, sample.end)).encode("utf-8", "surrogateescape"))
    return int.from_bytes(digest.digest())


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
            **_worker_options(workers, prefetch, persistent=False, pin_memory=pin_memory),
        )

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[TestBatch]:
        return iter(self._loader)


def index_of(data: DataConfig, **options: Any) -> Index:
    """The index a `DataConfig` describes; shards that are read from elsewhere need not lie beside it."""
    options.setdefault("require_files", data.location is None)
    return load_index(
        data.path,
        kind=data.kind,
        videos=data.videos,
        labels=data.labels,
        seed=data.split_seed,
        val_fraction=data.val_fraction,
        recording_set=data.recording_set,
        **options,
    )


def reader_for(samples: list[Sample], spec: ClipSpec, data: DataConfig, progress: Progress | None = None) -> Reader:
    """Decode every time, or fill the cache once and read from it."""
    decoding = FrameReader(spec, backend=data.backend, damaged=data.damaged)
    if data.cache is None:
        return decoding
    table = fill_cache(samples, decoding, data.cache, workers=data.workers, progress=progress)
    if left_out := table.left_out:
        first = samples[left_out[0]].path
        note = f"{len(left_out)} of {len(samples)} videos could not be cached and are decoded each time, first {first}"
        print(f"note: {note}", file=sys.stderr)
    return CachedReader(table, decoding)


def train_loader(
    index: Index,
    spec: ClipSpec,
    data: DataConfig,
    *,
    batch_size: int,
    seed: int,
    rank: int = 0,
    world: int = 1,
    pin_memory: bool = False,
    progress: Progress | None = None,
) -> TrainLoader:
    """The training split as configured. `batch_size` is that of all processes together."""
    samples = index.split("train")
    reader = reader_for(samples, spec, data, progress)
    clips = TrainClips(samples, spec, seed=seed, reader=reader, unreadable=data.unreadable_train)
    options = {"workers": data.workers, "prefetch": data.prefetch, "rank": rank, "world": world}
    return TrainLoader(clips, batch_size=batch_size, pin_memory=pin_memory, **options)


def view_loader(
    index: Index,
    split: str,
    spec: ClipSpec,
    data: DataConfig,
    *,
    clips: int = 1,
    crops: int = 1,
    batch_size: int = 1,
    rank: int = 0,
    world: int = 1,
    pin_memory: bool = False,
    progress: Progress | None = None,
) -> ViewLoader:
    """All views of a split as configured."""
    samples = index.split(split)
    videos = TestVideos(samples, spec, clips=clips, crops=crops, reader=reader_for(samples, spec, data, progress))
    options = {"workers": data.workers, "prefetch": data.prefetch, "rank": rank, "world": world}
    return ViewLoader(videos, batch_size=batch_size, pin_memory=pin_memory, **options)


def _worker_options(workers: int, prefetch: int, *, persistent: bool, pin_memory: bool) -> dict[str, Any]:
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
    torch.set_num_threads(1)


__all__ = [
    "TestBatch",
    "TrainBatch",
    "TrainLoader",
    "ViewLoader",
    "index_of",
    "reader_for",
    "train_loader",
    "view_loader",
]
