"""Where the videos are and how they are read."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from fixformer.config.location import Location
from fixformer.config.schema import Expect, Positive, Settings, coerce, int_between
from fixformer.errors import SettingsConflict

Backend = Literal["pyav", "torchcodec"]
DataPath = Annotated[str, Expect("a directory or an annotation file", bool)]
# Each is a process with its own memory; even the largest machines do not decode faster with more.
Workers = Annotated[int, int_between(0, 1024)]
# A worker is asked for all of them at once, and holds them in memory.
Prefetch = Annotated[int, int_between(1, 1024)]
OpenFraction = Annotated[float, Expect("a number between 0 and 1", lambda value: 0 < value < 1)]
FOLD = re.compile(r"([1-9]\d{0,3})/([1-9]\d{0,3})")


def _is_fold(text: str) -> bool:
    found = FOLD.fullmatch(text)
    return found is not None and int(found[1]) <= int(found[2]) and int(found[2]) >= 2


Fold = Annotated[str, Expect("NUMBER/COUNT with a count of 2 or more, such as 1/5", _is_fold)]


def parse_fold(text: str) -> tuple[int, int]:
    """Number, from 1, and count of "1/5"."""
    number, _, count = coerce(text, Fold, "fold").partition("/")
    return int(number), int(count)


@dataclass(frozen=True)
class DataConfig(Settings):
    """Which videos, and how they are read.

    Args:
        path: directory or annotation file.
        kind: "auto", or folders, images, csv, ssv2, kinetics, list, lsa64.
        videos: directory of the files, if not beside the annotations.
        labels: a file of label names, one per line.
        split_seed, val_fraction: how a data set without splits is divided.
        fold: NUMBER/COUNT, such as 1/5: training and validation videos are divided into so many parts, by group where
            groups are known, and this one is the validation split. None keeps the set's own splits.
        recording_set: LSA64 only.
        backend: of the decoder.
        damaged: "strict" counts a video with a damaged part as unreadable, "partial" uses its good frames.
        unreadable_train: "error" stops at an unreadable training video; "replace" uses another one of the same class
            and records it. An unreadable test video is always recorded as a failure.
        balance: "classes" draws every class equally often in a training epoch, which stays as long as the list of
            videos: those of a small class several times, with other augmentations. "none" draws every video once.
        workers: decoding processes; 0 decodes in the training process.
        prefetch: batches each worker prepares ahead.
        cache: directory of the decode-once cache; None decodes every time, "auto" is the user's cache
            (`$FIXFORMER_CACHE` or `~/.cache/fixformer`), shared by all runs.
        cache_gb: largest size of the features that `frozen_epochs` keeps there; with less room they are of fewer draws.
        location: read shards sequentially, from this directory or through a pattern such as
            "https://host/{shard}" or "pipe:ssh host cat {shard}", a command that is run without a shell; `path` then
            only needs to hold the shards' index.json. None reads local files in any order.
    """

    path: DataPath = ""
    kind: str = "auto"
    videos: str | None = None
    labels: str | None = None
    split_seed: int = 0
    val_fraction: OpenFraction = 0.2
    fold: Fold | None = None
    recording_set: int | None = None
    backend: Backend = "pyav"
    damaged: Literal["strict", "partial"] = "strict"
    unreadable_train: Literal["error", "replace"] = "error"
    balance: Literal["none", "classes"] = "none"
    workers: Workers = 2
    prefetch: Prefetch = 2
    cache: str | None = None
    cache_gb: Positive = 20.0
    location: Location | None = None

    def check_together(self) -> None:
        if self.location is not None and self.cache is not None:
            raise SettingsConflict(
                f"location={self.location!r} reads sequentially, which cache={self.cache!r} cannot; set cache=none."
            )
        if self.location is not None and self.unreadable_train == "replace":
            raise SettingsConflict(
                f"location={self.location!r} reads every video once, so there is none left for "
                "unreadable_train='replace'; set unreadable_train=error."
            )
        if self.location is not None and self.balance == "classes":
            raise SettingsConflict(
                f"location={self.location!r} reads every video once, which balance='classes' cannot; set balance=none."
            )
