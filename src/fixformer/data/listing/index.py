"""A data set as listed: its samples, its label names, and the problems that were found."""

import hashlib
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fixformer.errors import UserError

UNLABELLED = -1


class ListingError(UserError):
    """A data set that cannot be listed; the message says what was looked for and where."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One listed video. `start` and `end` (seconds) select a part of the file; `frames` is what the list claims."""

    path: str
    label: int
    split: str
    id: str
    start: float | None = None
    end: float | None = None
    frames: int | None = None
    group: str | None = None


@dataclass(frozen=True)
class Index:
    """A data set as listed: the samples whose file exists, those whose file is missing, and the label names in order.

    `problems` are sentences that say why one should not train on the set. `ignored` are files among the videos that
    do not have the suffix of a video, `skipped` are directories in the set that this program wrote.
    """

    root: Path
    kind: str
    samples: list[Sample]
    labels: list[str]
    missing: list[Sample] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def split(self, name: str) -> list[Sample]:
        return [s for s in self.samples if s.split == name]

    def missing_in(self, name: str) -> list[Sample]:
        return [s for s in self.missing if s.split == name]

    @property
    def splits(self) -> list[str]:
        present = {s.split for s in self.samples} | {s.split for s in self.missing}
        return [name for name in ("train", "val", "test") if name in present]

    @property
    def eval_split(self) -> str:
        """The split that scores are reported on: val if it has labels, otherwise test."""
        for name in ("val", "test"):
            if any(s.split == name and s.label != UNLABELLED for s in self.samples):
                return name
        raise ListingError(f"no labelled val or test video in {self._place}.")

    @property
    def _place(self) -> str:
        return f"{full_name(self.root)} (splits found: {', '.join(self.splits) or 'none'})"

    def counts(self, split: str) -> dict[str, int]:
        """Videos per label name, zero included."""
        by_label = Counter(s.label for s in self.samples if s.split == split)
        return {name: by_label[i] for i, name in enumerate(self.labels)}

    def require_trainable(self) -> None:
        """Raise for the first thing that makes training on this set meaningless."""
        if self.problems:
            raise ListingError(self.problems[0])
        if not self.split("train"):
            raise ListingError(f"no training video in {self._place}.")
        unlabelled = [s.id for s in self.split("train") if s.label == UNLABELLED]
        if unlabelled:
            raise ListingError(
                f"{len(unlabelled)} training videos in {full_name(self.root)} have no label, first {unlabelled[0]!r}; "
                "label them or remove them."
            )
        empty = [name for name, count in self.counts("train").items() if count == 0]
        if empty:
            raise ListingError(
                f"{len(empty)} of {len(self.labels)} classes have no training video in {full_name(self.root)}, "
                f"first {empty[0]!r}; add videos or remove the class."
            )


def full_name(path: Path) -> str:
    """The absolute path, for messages: that of the current directory is only a dot."""
    return os.path.abspath(path)


def order_digest(samples: Iterable[Sample]) -> str:
    """Identifies samples and their order, by id and not by path, so that a data set may move between two runs."""
    digest = hashlib.blake2b(digest_size=16)
    for sample in samples:
        digest.update(repr((sample.id, sample.label, sample.start, sample.end)).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def index_digest(index: Index) -> str:
    """Identifies the labels, and the videos of each split in their order."""
    splits = [(split, order_digest(index.split(split))) for split in index.splits]
    return hashlib.blake2b(repr((index.labels, splits)).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """How to list a data set; see `load_index`."""

    videos: Path | None = None
    labels: Path | None = None
    seed: int = 0
    val_fraction: float = 0.2
    recording_set: int | None = None
    require_files: bool = True
