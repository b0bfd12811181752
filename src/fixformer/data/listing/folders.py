"""Class folders: `train/class/*.mp4` and `val/class/*.mp4`, or one folder of classes split by seed and group."""

import os
from dataclasses import replace
from pathlib import Path, PurePosixPath

from fixformer.data.listing.find_files import walk_folders
from fixformer.data.listing.index import UNLABELLED, Index, IndexOptions, ListingError, Sample, full_name
from fixformer.data.listing.label_files import is_annotation, names_file, read_names
from fixformer.data.listing.split import SPLIT_NAMES, split_by_seed
from fixformer.data.listing.tables import GROUP_COLUMNS, read_table
from fixformer.data.video.suffixes import IMAGE_SUFFIXES, VIDEO_SUFFIXES
from fixformer.runtime.files import is_output

NAME_FILES = ("labels.txt", "classes.txt", "category.txt")


def load_folders(root: Path, options: IndexOptions) -> Index:
    """Every class folder is a label; every video in it, or every folder of frames, is a sample."""
    return _load(root, options, "folders", VIDEO_SUFFIXES)


def load_images(root: Path, options: IndexOptions) -> Index:
    """ImageNet-style folders: every image is a video of one frame."""
    return _load(root, options, "images", IMAGE_SUFFIXES)


def _load(root: Path, options: IndexOptions, kind: str, suffixes: frozenset[str]) -> Index:
    if not os.path.isdir(root):
        raise ListingError(f"{root} is a file; kind {kind} needs the directory of the class folders.")
    folders = split_folders(root)
    problems = [problem for folder in [root, *folders.values()] if (problem := _loose_files(folder, suffixes))]
    ignored: list[str] = []
    path = names_file(root, options, NAME_FILES)
    names = read_names(path) if path else []
    if set(folders) - {"train"}:
        per_split = {split: _classes_of(folder) for split, folder in folders.items()}
        labels = _merge_labels(root, names, per_split, problems, may_be_absent=options.labels is not None)
        samples = [
            sample
            for split, folder in folders.items()
            for sample in _of_split(root, folder, split, labels, suffixes, ignored)
        ]
        groups = _groups(root, samples)
        samples = [replace(sample, group=groups.get(sample.id)) for sample in samples]
    else:
        train = folders.get("train", root)
        labels = names or _classes_of(train)
        samples = _of_split(root, train, "train", labels, suffixes, ignored)
        samples = split_by_seed(samples, options.seed, options.val_fraction, _groups(root, samples), problems)
    if not samples:
        what = "image" if kind == "images" else "video"
        raise ListingError(
            f"no {what} found in {full_name(root)}; looked for train/CLASS/*, val/CLASS/* and CLASS/* "
            f"with suffixes {' '.join(sorted(suffixes))}."
        )
    if len(labels) == 1:
        problems.append(f"only one class ({labels[0]!r}) in {full_name(root)}; a classifier needs two or more.")
    if options.labels is None:
        problems += _empty_classes(root, samples, labels, folders)
    return Index(root, kind, samples, labels, [], problems, sorted(set(ignored)))


def split_folders(root: Path) -> dict[str, Path]:
    """The folders that stand for a split, by split name."""
    found: dict[str, Path] = {}
    for folder in data_folders(root):
        split = SPLIT_NAMES.get(folder.name.lower())
        if split in found:
            raise ListingError(f"both {found[split].name!r} and {folder.name!r} in {root} are the {split} split.")
        if split:
            found[split] = folder
    return found


def data_folders(folder: Path) -> list[Path]:
    """The folders in a folder, sorted, without hidden ones, links to a folder above, and those this program wrote."""
    return [path for path in sorted(folder.iterdir()) if _is_visible_folder(path) and not is_output(path)]


def own_outputs(root: Path) -> list[str]:
    """The folders among the splits or classes that `data_folders` leaves out because this program wrote them."""
    tops = [root, *(path for path in data_folders(root) if path.name.lower() in SPLIT_NAMES)]
    return [str(path) for top in tops for path in sorted(top.iterdir()) if _is_visible_folder(path) and is_output(path)]


def _is_visible_folder(path: Path) -> bool:
    # os.path.isdir, because a link that cannot be followed is no folder, and Path.is_dir may raise for it
    if path.name.startswith(".") or not os.path.isdir(path):
        return False
    return not path.is_symlink() or not Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(path))


def _classes_of(folder: Path) -> list[str]:
    return [path.name for path in data_folders(folder)]


def _merge_labels(
    root: Path, given: list[str], per_split: dict[str, list[str]], problems: list[str], *, may_be_absent: bool
) -> list[str]:
    """The labels of all splits; a label that only some splits have is a problem.

    `may_be_absent`: the user's own list of labels may name more than there are, which matters to training alone.
    """
    first = "train" if "train" in per_split else next(iter(per_split))
    labels = given or per_split[first]
    for split, names in per_split.items():
        extra = [name for name in names if name not in labels]
        absent = [name for name in labels if name not in names and not may_be_absent]
        if split == "test" and not names:
            continue  # an unlabelled test folder
        if extra:
            where = f"label {extra[0]!r} of {split} is not a label of {first} in {full_name(root)} ({len(extra)} such)"
            problems.append(f"{where}; both need the same class folders.")
        if absent:
            where = f"label {absent[0]!r} of {first} has no folder in {split} of {full_name(root)} ({len(absent)} such)"
            problems.append(f"{where}; both need the same class folders.")
        labels = labels + extra
    return labels


def _of_split(
    root: Path, folder: Path, split: str, labels: list[str], suffixes: frozenset[str], ignored: list[str]
) -> list[Sample]:
    """The samples of all class folders; of a test folder without classes, unlabelled ones."""
    number = {name: i for i, name in enumerate(labels)}
    found: list[tuple[Path, int]] = []
    for name in _classes_of(folder):
        if name not in number:
            raise ListingError(f"folder {folder / name} is not in the list of labels; add {name!r} or remove it.")
        found += [(path, number[name]) for path in videos_in(folder / name, suffixes, ignored)]
    if not found and split == "test":
        found = [(path, UNLABELLED) for path in videos_in(folder, suffixes, ignored)]
    return [Sample(str(path), label, split, path.relative_to(root).as_posix()) for path, label in found]


def videos_in(folder: Path, suffixes: frozenset[str], ignored: list[str]) -> list[Path]:
    """Videos and folders of frames (or single images), at any depth, sorted; other files are added to `ignored`."""
    found: list[Path] = []
    for at, names in walk_folders(folder):
        is_frames = suffixes == VIDEO_SUFFIXES and at != folder and has_images(names)
        found += [at] if is_frames else []
        known = suffixes | IMAGE_SUFFIXES if is_frames else suffixes
        found += [at / name for name in names if _suffix(name) in suffixes]
        ignored += [str(at / name) for name in names if _suffix(name) not in known]
    return sorted(found)


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def has_images(names: list[str]) -> bool:
    return any(_suffix(name) in IMAGE_SUFFIXES for name in names)


def _loose_files(folder: Path, suffixes: frozenset[str]) -> str | None:
    """The problem of videos outside the class folders, which have no class; a test folder may hold nothing else."""
    if SPLIT_NAMES.get(folder.name.lower()) == "test" and not _classes_of(folder):
        return None
    files = sorted(path for path in folder.iterdir() if not path.name.startswith(".") and not os.path.isdir(path))
    loose = [path.name for path in files if _suffix(path.name) in suffixes]
    if not loose:
        return None
    where = f"videos outside the class folders of {full_name(folder)} ({len(loose)}, first {loose[0]!r})"
    return f"{where}; move or remove them."


def _groups(root: Path, samples: list[Sample]) -> dict[str, str]:
    """Sample id -> group, from `groups.csv` (columns path and group or subject) beside the class folders."""
    path = root / "groups.csv"
    if not is_annotation(path):
        return {}
    table = read_table(path)
    column = table.column(GROUP_COLUMNS)
    if column is None or "path" not in table.columns:
        raise ListingError(f"{path} needs the columns path and group; it has {', '.join(table.columns)}.")
    groups: dict[str, str] = {}
    for row in table.rows:
        name = PurePosixPath(row["path"].replace("\\", "/"))
        name = name.relative_to(root) if name.is_relative_to(root) else name
        if row[column]:
            groups[name.as_posix()] = row[column]
    if not any(sample.id in groups for sample in samples):
        first = samples[0].id if samples else "CLASS/video.mp4"
        raise ListingError(f"{path} has no group for any video of {full_name(root)}; write paths like {first!r}.")
    return groups


def _empty_classes(root: Path, samples: list[Sample], labels: list[str], folders: dict[str, Path]) -> list[str]:
    problems = []
    for split in folders or {"train": root}:
        used = {s.label for s in samples if s.split == split}
        empty = [name for i, name in enumerate(labels) if i not in used]
        if empty and UNLABELLED not in used:
            others = f", nor have {len(empty) - 1} others" if len(empty) > 1 else ""
            where = f"class {empty[0]!r} has no video in {split} of {full_name(root)}{others}"
            problems.append(f"{where}; add some or remove the folder.")
    return problems
