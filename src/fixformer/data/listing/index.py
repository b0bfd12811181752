"""What every kind of index is made of: samples, the index itself, and the search for listed files."""

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from fixformer.data.video.suffixes import VIDEO_SUFFIXES
from fixformer.errors import UserError

SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validate": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
}
UNLABELLED = -1


class ListingError(UserError):
    """A data set that cannot be listed; the message says what was looked for and where."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One listed video. `start` and `end` (seconds) select a part of the file; `frames` is what a list claims."""

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
    """A data set as listed: the samples whose file exists, those whose file does not, and the label names in order.

    `problems` holds everything that makes training on the set doubtful, one sentence each. `ignored` are files among
    the videos that are none by their suffix.
    """

    root: Path
    kind: str
    samples: list[Sample]
    labels: list[str]
    missing: list[Sample] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)

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
        """The split a score is reported on: labelled validation videos, otherwise labelled test videos."""
        for name in ("val", "test"):
            if any(s.split == name and s.label != UNLABELLED for s in self.samples):
                return name
        raise ListingError(f"no labelled val or test video in {self.root} (splits found: {', '.join(self.splits)}).")

    def counts(self, split: str) -> dict[str, int]:
        """Videos per label name, zero included."""
        by_label = Counter(s.label for s in self.samples if s.split == split)
        return {name: by_label[i] for i, name in enumerate(self.labels)}

    def require_trainable(self) -> None:
        """Raise for the first thing that makes training on this set meaningless."""
        if self.problems:
            raise ListingError(self.problems[0])
        if not self.split("train"):
            raise ListingError(f"no training video in {self.root} (splits found: {', '.join(self.splits) or 'none'}).")
        unlabelled = [s.id for s in self.split("train") if s.label == UNLABELLED]
        if unlabelled:
            raise ListingError(
                f"{len(unlabelled)} training videos in {self.root} have no label, first {unlabelled[0]!r}; "
                "label them or take them out."
            )
        empty = [name for name, count in self.counts("train").items() if count == 0]
        if empty:
            raise ListingError(
                f"{len(empty)} of {len(self.labels)} classes have no training video in {self.root}, "
                f"first {empty[0]!r}; add videos or remove the class."
            )


def order_digest(samples: Iterable[Sample]) -> str:
    """Of listed videos one after another, by id and not by path, so that a set may move between two runs."""
    digest = hashlib.blake2b(digest_size=16)
    for sample in samples:
        digest.update(repr((sample.id, sample.label, sample.start, sample.end)).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """How a data set is to be listed; see `load_index`."""

    videos: Path | None = None
    labels: Path | None = None
    seed: int = 0
    val_fraction: float = 0.2
    recording_set: int | None = None
    require_files: bool = True


class FileFinder:
    """Finds listed videos under one directory by relative path or by stem, from a single walk of the tree."""

    def __init__(self, root: Path, suffixes: frozenset[str] = VIDEO_SUFFIXES) -> None:
        self.root = root
        self._paths: set[str] = set()
        self._by_stem: dict[str, list[str]] = {}
        for path in walk_files(root, suffixes):
            self._paths.add(path)
            self._by_stem.setdefault(PurePosixPath(path).stem, []).append(path)

    def __len__(self) -> int:
        return len(self._paths)

    def by_path(self, name: str) -> str | None:
        """The file at this path, with or without its suffix."""
        path = Path(name)
        if path.is_absolute():
            return name if path.exists() else None
        relative = PurePosixPath(name.replace("\\", "/")).as_posix()
        if relative == ".":
            return None  # an empty path is no video, though the root exists
        if relative in self._paths:
            return str(self.root / relative)
        if (self.root / relative).exists():
            return str(self.root / relative)
        parent = PurePosixPath(relative).parent.as_posix()
        for candidate in self._by_stem.get(PurePosixPath(relative).name, ()):
            if PurePosixPath(candidate).parent.as_posix() == parent:
                return str(self.root / candidate)
        return None

    def only(self, stem: str) -> str | None:
        """The file of this stem in any sub-directory, if there is exactly one."""
        found = self._by_stem.get(stem, [])
        return str(self.root / found[0]) if len(found) == 1 else None

    def by_stem(self, stem: str, prefer: Sequence[str] = ()) -> str | None:
        """The file of this stem in any sub-directory, one whose path has the `prefer`red directories first."""
        found = self._by_stem.get(stem, [])
        if not found:
            return None
        return str(self.root / max(found, key=lambda path: sum(part in PurePosixPath(path).parts for part in prefer)))


def walk_files(root: Path, suffixes: frozenset[str]) -> Iterator[str]:
    """Relative POSIX paths of all files with one of the suffixes, in sorted order, hidden ones left out."""
    for folder, names in walk_folders(root):
        base = folder.relative_to(root)
        for name in names:
            if os.path.splitext(name)[1].lower() in suffixes:
                yield (base / name).as_posix()


def walk_folders(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Every folder from `root` down with the names of its files, all in sorted order, hidden ones left out.

    Links to folders are followed, except to one that the link itself lies in.
    """
    real = os.path.realpath(root)
    yield from _walk(str(root), real, frozenset((real, *map(str, Path(real).parents))))


def _walk(folder: str, real: str, above: frozenset[str]) -> Iterator[tuple[Path, list[str]]]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise ListingError(f"cannot list {folder}: {error.strerror}.") from None
    shown = [entry for entry in entries if not entry.name.startswith(".")]
    yield Path(folder), [entry.name for entry in shown if not entry.is_dir()]
    for entry in shown:
        if entry.is_dir():
            target = os.path.realpath(entry.path) if entry.is_symlink() else os.path.join(real, entry.name)
            if target not in above:
                yield from _walk(entry.path, target, above | {target})


def located(samples: Iterable[tuple[Sample, str | None]]) -> tuple[list[Sample], list[Sample]]:
    """Split (sample, found path) pairs into samples with their file and samples without."""
    present: list[Sample] = []
    missing: list[Sample] = []
    for sample, path in samples:
        if path is None:
            missing.append(sample)
        else:
            present.append(replace(sample, path=path))
    return present, missing


def placed(samples: Iterable[Sample], folder: Path) -> list[Sample]:
    """Samples with their path under a folder, whether it exists or not."""
    return [replace(sample, path=os.path.join(folder, sample.path)) for sample in samples]


def stable_order(names: Iterable[str], seed: int) -> list[str]:
    """A shuffle in which adding a name does not move the others relative to each other."""
    return sorted(names, key=lambda name: stable_key(name, seed))


def stable_key(name: str, seed: int) -> bytes:
    """What `stable_order` sorts by."""
    return hashlib.blake2b(f"{seed}/{name}".encode("utf-8", "surrogateescape")).digest()


def split_of_name(name: str) -> str | None:
    """The split a file or directory name stands for: `train`, `kinetics-400_val`, `my.validation`."""
    words = name.lower().replace("-", "_").replace(".", "_").replace(" ", "_").split("_")
    found = {SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES}
    return found.pop() if len(found) == 1 else None


def read_text(path: Path) -> str:
    """The text of an annotation file."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        odd = f"byte {error.object[error.start]:#04x} at {error.start}"
        raise ListingError(f"{path} is not UTF-8 text ({odd}); save it as UTF-8.") from None
    except OSError as error:
        raise ListingError(f"cannot read {path}: {error.strerror}.") from None


def read_lines(path: Path) -> list[str]:
    """Label names as they stand, one per line, in order."""
    names = [line.strip() for line in read_text(path).splitlines() if line.strip()]
    _require_distinct(names, path)
    return names


def read_names(path: Path) -> list[str]:
    """Label names, one per line, in order; `[something]` placeholders lose their brackets.

    The category list that circulates for Something-Something is sorted with its brackets, while the lists beside it
    number the labels as published, sorted without: such a file is put in the published order.
    """
    lines = read_lines(path)
    names = [strip_brackets(line) for line in lines]
    if names != lines and lines == sorted(lines):
        names.sort()
    _require_distinct(names, path)
    return names


def _require_distinct(names: list[str], path: Path) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ListingError(f"label {repeated[0]!r} appears twice in {path}; label names must differ.")


def strip_brackets(text: str) -> str:
    return text.replace("[", "").replace("]", "")
