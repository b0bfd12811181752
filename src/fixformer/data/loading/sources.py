"""From a `DataConfig` to an index, readers and loaders, wherever the videos lie."""

import sys
from collections.abc import Iterable
from typing import Any

from fixformer.config import ClipSpec, DataConfig
from fixformer.data.clips.frames import FrameReader
from fixformer.data.listing import Index, Sample, load_index
from fixformer.data.loading.cache import CachedReader, fill_cache
from fixformer.data.loading.datasets import Reader, TestBatch, TestVideos, TrainClips
from fixformer.data.loading.loaders import TrainLoader, ViewLoader
from fixformer.data.loading.shard_loader import ShardTrainLoader, shard_view_loader, shards_of
from fixformer.runtime.progress import Report


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


def reader_for(samples: list[Sample], spec: ClipSpec, data: DataConfig, progress: Report | None = None) -> Reader:
    """Decode every time, or fill the cache once and read from it."""
    decoding = FrameReader(spec, backend=data.backend, damaged=data.damaged)
    if data.cache is None or data.location is not None:
        return decoding
    table = fill_cache(samples, decoding, data.cache, workers=data.workers, progress=progress)
    if left_out := table.left_out:
        first = samples[left_out[0]].path
        note = f"{len(left_out)} of {len(samples)} videos could not be cached and are decoded each time, first {first}"
        print(f"note: {note}", file=sys.stderr)
    return CachedReader(table, decoding)


def train_loader(
    samples: list[Sample],
    spec: ClipSpec,
    data: DataConfig,
    *,
    batch_size: int,
    seed: int,
    reader: Reader | None = None,
    **place: Any,
) -> TrainLoader | ShardTrainLoader:
    """Training batches as configured: files in any order, or shards in theirs.

    Args:
        samples: of the training split.
        spec: what a clip is.
        data: where the videos lie and how they are read.
        batch_size: that of all processes together.
        seed: of order and augmentation.
        reader: as `reader_for` gives it; made here if absent.
        place: `rank`, `world` and `pin_memory` of the loaders.
    """
    options = {"batch_size": batch_size, "workers": data.workers, "prefetch": data.prefetch, **place}
    if data.location is not None:
        return ShardTrainLoader(shards_of(samples, data), spec, seed=seed, **_way(data), **options)
    reader = reader or reader_for(samples, spec, data)
    return TrainLoader(TrainClips(samples, spec, seed=seed, reader=reader, unreadable=data.unreadable_train), **options)


def view_loader(
    samples: list[Sample],
    spec: ClipSpec,
    data: DataConfig,
    *,
    clips: int = 1,
    crops: int = 1,
    batch_size: int = 1,
    reader: Reader | None = None,
    **place: Any,
) -> Iterable[TestBatch]:
    """All views of every sample, each sample exactly once over all processes; arguments as of `train_loader`."""
    options: dict[str, Any] = {"batch_size": batch_size, "workers": data.workers, "prefetch": data.prefetch, **place}
    views: dict[str, Any] = {"clips": clips, "crops": crops}
    if data.location is not None:
        return shard_view_loader(shards_of(samples, data), None, spec, **_way(data), **views, **options)
    reader = reader or reader_for(samples, spec, data)
    return ViewLoader(TestVideos(samples, spec, **views, reader=reader), **options)


def _way(data: DataConfig) -> dict[str, Any]:
    """How shards are read."""
    return {"location": data.location, "backend": data.backend, "damaged": data.damaged}
