"""Class folders: `train/class/*.mp4` and `val/class/*.mp4`, or one folder of classes split by seed and group."""

import csv
import os
from pathlib import Path

from fixformer.data.index_base import (
    IMAGE_SUFFIXES,
    SPLIT_NAMES,
    UNLABELLED,
    VIDEO_SUFFIXES,
    Index,
    IndexOptions,
    ListingError,
    Sample,
    read_names,
    walk_files,
)
from fixformer.data.index_split import split_by_seed

GROUP_COLUMNS = ("group", "subject", "signer", "person", "actor")
NAME_FILES = ("labels.txt", "classes.txt", "category.txt")


def load_folders(root: Path, options: IndexOptions) -> Index:
    """Every class folder is a label; every video in it, or every folder of frames, is a sample."""
    return _load(root, options, "folders")


def load_images(root: Path, options: IndexOptions) -> Index:
    """ImageNet-style folders: every image is a video of one frame."""
    return _load(root, options, "images")


def _load(root: Path, options: IndexOptions, kind: str) -> Index:
    problems: list[str] = []
    folders = split_folders(root)
    if set(folders) == {"train"}:
        labels = _names_file(root, options) or _classes_of(folders["train"])
        samples = _of_split(root, folders["train"], "train", labels, kind)
        samples = split_by_seed(samples, options.seed, options.val_fraction, _groups(root), problems)
    elif folders:
        per_split = {split: _classes_of(folder) for split, folder in folders.items()}
        labels = _labels(root, options, per_split, problems)
        samples = [s for split, folder in folders.items() for s in _of_split(root, folder, split, labels, kind)]
    else:
        labels = _names_file(root, options) or _classes_of(root)
        samples = _of_split(root, root, "train", labels, kind)
        samples = split_by_seed(samples, options.seed, options.val_fraction, _groups(root), problems)
    if not samples:
        what = "image" if kind == "images" else "video"
        raise ListingError(
            f"no {what} found in {root}; looked for train/CLASS/*, val/CLASS/* and CLASS/* "
            f"with suffixes {' '.join(sorted(IMAGE_SUFFIXES if kind == 'images' else VIDEO_SUFFIXES))}."
        )
    problems += _empty_classes(root, samples, labels, folders)
    return Index(root, kind, samples, labels, [], problems)


def split_folders(root: Path) -> dict[str, Path]:
    """The folders that stand for a split, by split name."""
    found: dict[str, Path] = {}
    for folder in sorted(root.iterdir()):
        split = SPLIT_NAMES.get(folder.name.lower())
        if folder.is_dir() and split:
            if split in found:
                raise ListingError(f"both {found[split].name!r} and {folder.name!r} in {root} mean the {split} split.")
            found[split] = folder
    return found


def _classes_of(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _labels(root: Path, options: IndexOptions, per_split: dict[str, list[str]], problems: list[str]) -> list[str]:
    first = "train" if "train" in per_split else next(iter(per_split))
    labels = _names_file(root, options) or per_split[first]
    for split, names in per_split.items():
        extra = [name for name in names if name not in labels]
        absent = [name for name in labels if name not in names]
        if split == "test" and not names:
            continue
        if extra:
            problems.append(f"label {extra[0]!r} of {split} is not a label of {first} in {root} ({len(extra)} such).")
        if absent:
            problems.append(f"label {absent[0]!r} of {first} has no folder in {split} of {root} ({len(absent)} such).")
        labels = labels + extra
    return labels


def _names_file(root: Path, options: IndexOptions) -> list[str] | None:
    candidates = [options.labels] if options.labels else [root / name for name in NAME_FILES]
    for path in candidates:
        if path and path.is_file():
            return read_names(path)
    return None


def _of_split(root: Path, folder: Path, split: str, labels: list[str], kind: str) -> list[Sample]:
    number = {name: i for i, name in enumerate(labels)}
    samples: list[Sample] = []
    for name in _classes_of(folder):
        if name not in number:
            raise ListingError(f"folder {folder / name} is not in the list of labels; add {name!r} or remove it.")
        samples += [_sample(root, path, number[name], split) for path in _videos_in(folder / name, kind)]
    if not samples and split == "test":
        samples = [_sample(root, path, UNLABELLED, split) for path in _videos_in(folder, kind)]
    return samples


def _sample(root: Path, path: Path, label: int, split: str) -> Sample:
    return Sample(str(path), label, split, path.relative_to(root).as_posix())


def _videos_in(folder: Path, kind: str) -> list[Path]:
    if kind == "images":
        return [folder / name for name in walk_files(folder, IMAGE_SUFFIXES)]
    files = [folder / name for name in walk_files(folder, VIDEO_SUFFIXES)]
    frames = [Path(at) for at, _, names in sorted(os.walk(folder)) if at != str(folder) and has_images(names)]
    return sorted(files + frames)


def has_images(names: list[str]) -> bool:
    return any(os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES for name in names)


def _groups(root: Path) -> dict[str, str]:
    """Path -> group, from `groups.csv` (columns path and group or subject) beside the class folders."""
    path = root / "groups.csv"
    if not path.is_file():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        column = next((name for name in GROUP_COLUMNS if name in (reader.fieldnames or ())), None)
        if column is None or "path" not in (reader.fieldnames or ()):
            raise ListingError(f"{path} needs the columns path and group, it has {', '.join(reader.fieldnames or [])}.")
        return {row["path"]: row[column] for row in reader}


def _empty_classes(root: Path, samples: list[Sample], labels: list[str], folders: dict[str, Path]) -> list[str]:
    problems = []
    if len(labels) == 1:
        problems.append(f"only one class ({labels[0]!r}) in {root}; a classifier needs two or more.")
    for split in folders or {"train": root}:
        used = {s.label for s in samples if s.split == split}
        empty = [name for i, name in enumerate(labels) if i not in used]
        if empty and UNLABELLED not in used:
            problems.append(f"class {empty[0]!r} has no video in {split} of {root} ({len(empty)} such classes).")
    return problems
