"""Class folders: `train/class/*.mp4` and `val/class/*.mp4`, or one folder of classes split by seed and group."""

import os
from pathlib import Path, PurePosixPath

from fixformer.data.listing.index import (
    SPLIT_NAMES,
    UNLABELLED,
    Index,
    IndexOptions,
    ListingError,
    Sample,
    read_names,
    walk_folders,
)
from fixformer.data.listing.split import split_by_seed
from fixformer.data.listing.tables import GROUP_COLUMNS, read_table
from fixformer.data.video.suffixes import IMAGE_SUFFIXES, VIDEO_SUFFIXES

NAME_FILES = ("labels.txt", "classes.txt", "category.txt")
SAME = "both need the same class folders"


def load_folders(root: Path, options: IndexOptions) -> Index:
    """Every class folder is a label; every video in it, or every folder of frames, is a sample."""
    return _load(root, options, "folders")


def load_images(root: Path, options: IndexOptions) -> Index:
    """ImageNet-style folders: every image is a video of one frame."""
    return _load(root, options, "images")


def _load(root: Path, options: IndexOptions, kind: str) -> Index:
    if not root.is_dir():
        raise ListingError(f"{root} is a file; the kind {kind} needs the directory of the class folders.")
    folders = split_folders(root)
    ignored: list[str] = []
    problems = [problem for folder in [root, *folders.values()] if (problem := _loose(folder, kind))]
    if set(folders) == {"train"}:
        labels = _names_file(root, options) or _classes_of(folders["train"])
        samples = _of_split(root, folders["train"], "train", labels, kind, ignored)
        samples = split_by_seed(samples, options.seed, options.val_fraction, _groups(root, samples), problems)
    elif folders:
        per_split = {split: _classes_of(folder) for split, folder in folders.items()}
        labels = _labels(root, options, per_split, problems)
        samples = [
            s for split, folder in folders.items() for s in _of_split(root, folder, split, labels, kind, ignored)
        ]
    else:
        labels = _names_file(root, options) or _classes_of(root)
        samples = _of_split(root, root, "train", labels, kind, ignored)
        samples = split_by_seed(samples, options.seed, options.val_fraction, _groups(root, samples), problems)
    if not samples:
        what = "image" if kind == "images" else "video"
        raise ListingError(
            f"no {what} found in {root}; looked for train/CLASS/*, val/CLASS/* and CLASS/* "
            f"with suffixes {' '.join(sorted(IMAGE_SUFFIXES if kind == 'images' else VIDEO_SUFFIXES))}."
        )
    problems += _empty_classes(root, samples, labels, folders)
    return Index(root, kind, samples, labels, [], problems, sorted(set(ignored)))


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
            problems.append(
                f"label {extra[0]!r} of {split} is not a label of {first} in {root} ({len(extra)} such); {SAME}."
            )
        if absent:
            problems.append(
                f"label {absent[0]!r} of {first} has no folder in {split} of {root} ({len(absent)} such); {SAME}."
            )
        labels = labels + extra
    return labels


def _names_file(root: Path, options: IndexOptions) -> list[str] | None:
    candidates = [options.labels] if options.labels else [root / name for name in NAME_FILES]
    for path in candidates:
        if path and path.is_file():
            return read_names(path)
    return None


def _of_split(root: Path, folder: Path, split: str, labels: list[str], kind: str, ignored: list[str]) -> list[Sample]:
    number = {name: i for i, name in enumerate(labels)}
    samples: list[Sample] = []
    for name in _classes_of(folder):
        if name not in number:
            raise ListingError(f"folder {folder / name} is not in the list of labels; add {name!r} or remove it.")
        samples += [_sample(root, path, number[name], split) for path in _videos_in(folder / name, kind, ignored)]
    if not samples and split == "test":
        samples = [_sample(root, path, UNLABELLED, split) for path in _videos_in(folder, kind, ignored)]
    return samples


def _sample(root: Path, path: Path, label: int, split: str) -> Sample:
    return Sample(str(path), label, split, path.relative_to(root).as_posix())


def _videos_in(folder: Path, kind: str, ignored: list[str]) -> list[Path]:
    """Videos and folders of frames (or images), sorted; files that are neither are added to `ignored`."""
    wanted = IMAGE_SUFFIXES if kind == "images" else VIDEO_SUFFIXES
    found: list[Path] = []
    for at, names in walk_folders(folder):
        frames = kind == "folders" and at != folder and has_images(names)
        found += [at] if frames else []
        known = wanted | IMAGE_SUFFIXES if frames else wanted
        found += [at / name for name in names if _suffix(name) in wanted]
        ignored += [str(at / name) for name in names if _suffix(name) not in known]
    return sorted(found)


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def _loose(folder: Path, kind: str) -> str | None:
    """What is said of videos beside the class folders, which have no class; only a test folder may be all of them."""
    suffixes = IMAGE_SUFFIXES if kind == "images" else VIDEO_SUFFIXES
    classes = _classes_of(folder)
    if SPLIT_NAMES.get(folder.name.lower()) == "test" and not classes:
        return None
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file() and not entry.name.startswith("."))
    loose = [name for name in names if _suffix(name) in suffixes]
    if not loose:
        return None
    return f"{len(loose)} videos lie in {folder} outside its class folders, first {loose[0]!r}; move or remove them."


def has_images(names: list[str]) -> bool:
    return any(_suffix(name) in IMAGE_SUFFIXES for name in names)


def _groups(root: Path, samples: list[Sample]) -> dict[str, str]:
    """Sample id -> group, from `groups.csv` (columns path and group or subject) beside the class folders."""
    path = root / "groups.csv"
    if not path.is_file():
        return {}
    table = read_table(path)
    column = table.column(GROUP_COLUMNS)
    if column is None or "path" not in table.columns:
        raise ListingError(f"{path} needs the columns path and group, it has {', '.join(table.columns)}.")
    groups = {_relative(row["path"], root): row[column] for row in table.rows if row[column]}
    if not any(sample.id in groups for sample in samples):
        first = samples[0].id if samples else "CLASS/video.mp4"
        raise ListingError(f"{path} gives no video of {root} a group; a path is written like {first!r}.")
    return groups


def _relative(text: str, root: Path) -> str:
    path = PurePosixPath(text.replace("\\", "/"))
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()


def _empty_classes(root: Path, samples: list[Sample], labels: list[str], folders: dict[str, Path]) -> list[str]:
    problems = []
    if len(labels) == 1:
        problems.append(f"only one class ({labels[0]!r}) in {root}; a classifier needs two or more.")
    for split in folders or {"train": root}:
        used = {s.label for s in samples if s.split == split}
        empty = [name for i, name in enumerate(labels) if i not in used]
        if empty and UNLABELLED not in used:
            problems.append(
                f"class {empty[0]!r} has no video in {split} of {root} ({len(empty)} such classes); add some or remove "
                "the folder."
            )
    return problems
