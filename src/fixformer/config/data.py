"""Where the videos lie and how they are read."""

from dataclasses import dataclass
from typing import Literal

from fixformer.config.schema import require
from fixformer.errors import SettingsConflict

Backend = Literal["pyav", "torchcodec"]


@dataclass(frozen=True)
class DataConfig:
    """Which videos, and how they are read.

    Args:
        path: directory or annotation file.
        kind: "auto", or folders, images, csv, ssv2, kinetics, list, lsa64.
        videos: where the files lie, if not beside the annotations.
        labels: a file of label names, one per line.
        split_seed, val_fraction: how a set without splits is divided.
        recording_set: LSA64 only.
        backend: of the decoder.
        damaged: "strict" counts a video that breaks in the middle as unreadable, "partial" uses its good frames.
        unreadable_train: "error" stops at an unreadable training video; "replace" takes another of the same class
            and records it. An unreadable test video is always a recorded failure.
        workers: decoding processes; 0 decodes in the training process.
        prefetch: batches each worker prepares ahead.
        cache: directory of the decode-once cache; None decodes every time, "auto" is the user's own cache
            (`$FIXFORMER_CACHE` or `~/.cache/fixformer`), which all runs share.
        location: read shards in order, from this directory or through a pattern such as
            "pipe:curl -s https://host/{shard}"; `path` then needs to hold the shards' index.json only. None reads
            local files in any order.
    """

    path: str = ""
    kind: str = "auto"
    videos: str | None = None
    labels: str | None = None
    split_seed: int = 0
    val_fraction: float = 0.2
    recording_set: int | None = None
    backend: Backend = "pyav"
    damaged: Literal["strict", "partial"] = "strict"
    unreadable_train: Literal["error", "replace"] = "error"
    workers: int = 2
    prefetch: int = 2
    cache: str | None = None
    location: str | None = None

    def validate(self) -> None:
        require(self.path != "", "path", self.path, "a directory or an annotation file")
        require(0 < self.val_fraction < 1, "val_fraction", self.val_fraction, "between 0 and 1")
        require(self.workers >= 0, "workers", self.workers, "at least 0")
        require(self.prefetch >= 1, "prefetch", self.prefetch, "at least 1")
        if self.location is not None:
            self._check_location(self.location)

    def _check_location(self, location: str) -> None:
        # what `str.format` would stumble over is found here, not in a worker
        plain = location.replace("{shard}", "")
        is_clean = plain != "" and "{" not in plain and "}" not in plain
        require(is_clean, "location", location, "a directory, or a pattern with no braces but {shard},")
        is_pattern = location.startswith("pipe:") or "://" in location
        require(not is_pattern or "{shard}" in location, "location", location, "the place of the name, {shard},")
        if self.cache is not None:
            raise SettingsConflict(
                f"location={location!r} reads in order, which cache={self.cache!r} cannot; set cache=none."
            )
        if self.unreadable_train == "replace":
            raise SettingsConflict(
                f"location={location!r} reads every video once and has none to spare for unreadable_train='replace'; "
                "set unreadable_train=error."
            )
