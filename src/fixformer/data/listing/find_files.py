"""Finding the video files that a list names: one walk of the tree, then lookups by path or by stem."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from fixformer.data.listing.index import IndexOptions, ListingError, Sample
from fixformer.data.video.suffixes import VIDEO_SUFFIXES
from fixformer.runtime.files import is_output


def locate(
    samples: list[Sample], folder: Path, options: IndexOptions, find: Callable[["FileFinder", Sample], str | None]
) -> tuple[list[Sample], list[Sample]]:
    """Samples whose file exists, with its path, and samples whose file does not.

    Files are searched under `options.videos`, otherwise under `folder`. With `require_files=False` nothing is searched:
    every sample gets a path there.
    """
    videos = options.videos or folder
    if not options.require_files:
        return [replace(sample, path=os.path.join(videos, sample.path)) for sample in samples], []
    finder = FileFinder(videos)
    present: list[Sample] = []
    missing: list[Sample] = []
    for sample in samples:
        path = find(finder, sample)
        if path is None:
            missing.append(sample)
        else:
            present.append(replace(sample, path=path))
    return present, missing


class FileFinder:
    """The videos under one directory, by relative path or by stem."""

    def __init__(self, root: Path, suffixes: frozenset[str] = VIDEO_SUFFIXES) -> None:
        self.root = root
        self._paths: set[str] = set()
        self._by_stem: dict[str, list[str]] = {}
        for path in walk_files(root, suffixes):
            self._paths.add(path)
            self._by_stem.setdefault(PurePosixPath(path).stem, []).append(path)

    def by_path(self, name: str) -> str | None:
        """The file at this path, with or without its suffix."""
        if Path(name).is_absolute():
            return name if os.path.exists(name) else None
        relative = PurePosixPath(name.replace("\\", "/"))
        if relative == PurePosixPath("."):
            return None  # an empty path is not a video, though the root exists
        # the walk has seen all videos; a folder of images is found by the file system. `os.path.exists` takes any text,
        # `Path.exists` raises if it is too long.
        if relative.as_posix() in self._paths or os.path.exists(self.root / relative):
            return str(self.root / relative)
        for candidate in self._by_stem.get(relative.name, ()):
            if PurePosixPath(candidate).parent == relative.parent:
                return str(self.root / candidate)
        return None

    def only(self, stem: str) -> str | None:
        """The file with this stem in any sub-directory, if there is exactly one."""
        found = self._by_stem.get(stem, [])
        return str(self.root / found[0]) if len(found) == 1 else None

    def by_stem(self, stem: str, prefer: Sequence[str] = ()) -> str | None:
        """The file with this stem in any sub-directory; of several, the one whose path has most `prefer`red folders."""
        found = self._by_stem.get(stem, [])
        if not found:
            return None
        return str(self.root / max(found, key=lambda path: sum(part in PurePosixPath(path).parts for part in prefer)))


def walk_files(root: Path, suffixes: frozenset[str]) -> Iterator[str]:
    """Relative POSIX paths of all files with one of the suffixes, in sorted order, without hidden ones."""
    for folder, names in walk_folders(root):
        base = folder.relative_to(root)
        for name in names:
            if os.path.splitext(name)[1].lower() in suffixes:
                yield (base / name).as_posix()


def walk_folders(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Every folder from `root` down with the names of its files, in sorted order, without hidden ones.

    A link to a folder is followed, unless that folder contains the link or was entered through a link before: links to
    and fro between many folders would make more paths than can be walked. Folders that this program wrote are left out.
    """
    real = os.path.realpath(root)
    waiting = [(str(root), real, frozenset((real, *map(str, Path(real).parents))))]
    entered: set[str] = set()  # through links
    while waiting:  # a loop, because folders can be nested deeper than functions
        folder, real, above = waiting.pop()
        if os.path.islink(folder) and folder != str(root):
            if real in entered:
                continue
            entered.add(real)
        folders, files = _list(folder)
        yield Path(folder), files
        for path in reversed(folders):
            target = os.path.realpath(path) if os.path.islink(path) else os.path.join(real, os.path.basename(path))
            if target not in above and not is_output(path):
                waiting.append((path, target, above | {target}))


def _list(folder: str) -> tuple[list[str], list[str]]:
    """The paths of the folders and the names of the files in a folder, sorted, without hidden ones."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise ListingError(f"cannot list {folder}: {error.strerror}.") from None
    folders, files = [], []
    for entry in entries:
        if entry.name.startswith("."):
            continue
        # the entry itself knows it without asking the system, but raises for a link that leads in a circle
        is_folder = os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir()
        folders.append(entry.path) if is_folder else files.append(entry.name)
    return folders, files
