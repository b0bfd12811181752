"""From a `DataConfig` to an index, readers and loaders, wherever the videos are."""

from pathlib import Path
from typing import Any

from fixformer.config import ClipSpec, DataConfig
from fixformer.config.data import parse_fold
from fixformer.config.location import PLACE, shard_file
from fixformer.data.listing import Index, Sample, load_index
from fixformer.data.listing.folds import folds
from fixformer.data.listing.shards import is_shard_set
from fixformer.data.loading.cache import CachedReader, CacheUnwritable, fill_cache
from fixformer.data.loading.datasets import TestVideos, TrainClips
from fixformer.data.loading.loaders import TrainLoader, ViewLoader
from fixformer.data.loading.order import BalancedClasses, RandomAccess, VideoOrder
from fixformer.data.loading.reader import DecodingReader, VideoReader
from fixformer.data.loading.shard_stream import ShardStream
from fixformer.errors import SettingsConflict, UserError
from fixformer.runtime.console import note, note_once, printable
from fixformer.runtime.files import cache_directory
from fixformer.runtime.progress import Report


def index_of(data: DataConfig, **options: Any) -> Index:
    """The index a `DataConfig` describes; shards that are read from elsewhere need not be beside it."""
    options.setdefault("require_files", data.location is None)
    index = load_index(
        data.path,
        kind=data.kind,
        videos=data.videos,
        labels=data.labels,
        seed=data.split_seed,
        val_fraction=data.val_fraction,
        recording_set=data.recording_set,
        **options,
    )
    if data.fold is None:
        return index
    number, count = parse_fold(data.fold)
    return folds(index, count, data.split_seed)[number - 1]


def reader_for(samples: list[Sample], spec: ClipSpec, data: DataConfig, progress: Report | None = None) -> VideoReader:
    """Decode every time, or fill the cache once and read from it."""
    data.check_together()  # a cache is refused with `location`
    decoding = DecodingReader(spec, backend=data.backend, damaged=data.damaged)
    if data.cache is None:
        return decoding
    folder = cache_directory() / "clips" if data.cache == "auto" else data.cache
    try:
        table = fill_cache(samples, decoding, folder, workers=data.workers, progress=progress)
    except CacheUnwritable as error:
        note_once(f"without a cache, every video is decoded each time: {printable(str(error))}")
        return decoding
    if left_out := table.left_out:
        first = printable(samples[left_out[0]].path)
        text = f"{len(left_out)} of {len(samples)} videos could not be cached and are decoded each time, first {first}"
        note(f"note: {text}")
    return CachedReader(table, decoding)


def order_for(samples: list[Sample], data: DataConfig) -> VideoOrder:
    """Any order, or that of the shards at `data.location`."""
    check_location(data)
    return RandomAccess(len(samples)) if data.location is None else ShardStream(samples, data.location)


def training_order(samples: list[Sample], data: DataConfig) -> VideoOrder:
    """As `order_for`, with the classes balanced if so configured."""
    if data.balance == "classes":
        return BalancedClasses([sample.label for sample in samples])
    return order_for(samples, data)


def check_location(data: DataConfig) -> None:
    """That `data.location`, if it is set, can be read from."""
    location = data.location
    if location is None:
        return
    if not is_shard_set(Path(data.path)):
        raise SettingsConflict(
            f"location={location!r} is for shards, but {data.path} is not a shard set; make one with "
            "`fixformer prepare --shards`, or leave location out."
        )
    if PLACE not in location and not Path(shard_file(location, "")).is_dir():
        raise UserError(f"location={location!r} is not a directory; give one, or a pattern with {PLACE} in it.")


def train_loader(
    samples: list[Sample],
    spec: ClipSpec,
    data: DataConfig,
    *,
    batch_size: int,
    seed: int,
    reader: VideoReader | None = None,
    **place: Any,
) -> TrainLoader:
    """Training batches as configured.

    Args:
        samples: of the training split.
        spec: what a clip is.
        data: where the videos are and how they are read.
        batch_size: that of all processes together.
        seed: of order and augmentation.
        reader: as `reader_for` gives it; made here if absent.
        place: `rank`, `world` and `pin_memory` of the loader.
    """
    reader = reader or reader_for(samples, spec, data)
    clips = TrainClips(samples, spec, seed=seed, reader=reader, unreadable=data.unreadable_train)
    options = {"batch_size": batch_size, "workers": data.workers, "prefetch": data.prefetch, **place}
    return TrainLoader(clips, training_order(samples, data), **options)


def view_loader(
    samples: list[Sample],
    spec: ClipSpec,
    data: DataConfig,
    *,
    clips: int = 1,
    crops: int = 1,
    batch_size: int = 1,
    reader: VideoReader | None = None,
    **place: Any,
) -> ViewLoader:
    """All views of every sample, each sample exactly once over all processes; arguments as of `train_loader`."""
    reader = reader or reader_for(samples, spec, data)
    videos = TestVideos(samples, spec, clips=clips, crops=crops, reader=reader)
    options = {"batch_size": batch_size, "workers": data.workers, "prefetch": data.prefetch, **place}
    return ViewLoader(videos, order_for(samples, data), **options)
