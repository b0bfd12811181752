"""From a list of samples to batches. The way of a video, file by file:

1. `from_config.py` makes of a `DataConfig` the index, a reader, an order and a loader.
2. `order.py` says which videos a worker reads, and when: `RandomAccess` for files, cached videos and videos in shards
   on disk, `BalancedClasses` for the same in a balanced order. `shard_stream.py` does so for shards that are read from
   front to back, and brings the bytes along. All give `Visit(index, content)`; `table.py` holds the samples that the
   index refers to.
3. `reader.py` opens the sample's path, or its bytes, as frames; `cache.py` opens frames that were decoded before.
4. `datasets.py` makes an augmented clip of the frames (`TrainClips`), or all views (`TestVideos`), with `data/clips`,
   and decides what happens to an unreadable video.
5. `loaders.py` runs 2 to 4 in worker processes and collates batches of bytes (`TrainLoader`, `ViewLoader`), which the
   consumer normalises on its device with `batch.inputs(spec)`.
"""

from fixformer.data.loading.from_config import check_location, index_of, reader_for, train_loader, view_loader
from fixformer.data.loading.reader import VideoReader

__all__ = ["VideoReader", "check_location", "index_of", "reader_for", "train_loader", "view_loader"]
