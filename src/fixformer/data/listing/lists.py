"""Lists of `path frames label` (or `path label`), one file per split, names in `category.txt` where present."""

from dataclasses import replace
from pathlib import Path, PurePosixPath

from fixformer.data.listing.find_files import FileFinder, locate
from fixformer.data.listing.index import UNLABELLED, Index, IndexOptions, ListingError, Sample
from fixformer.data.listing.label_files import annotations, names_file, read_names, read_text, reading, whole_number
from fixformer.data.listing.split import split_of_name
from fixformer.data.video.suffixes import VIDEO_SUFFIXES
from fixformer.runtime.files import open_file

MOST_LABELS = 100_000  # a set with more classes than any other has by far; a larger number is none of a class
NAME_FILES = ("category.txt", "labels.txt", "label_map.txt", "classes.txt")


def is_list(path: Path) -> bool:
    """Whether the first line is `path frames label` or `path label`."""
    with reading(path), open_file(path, encoding="utf-8", errors="replace") as file:
        parts = next((line for line in file if line.strip()), "").split()
    numbers = parts[-2 if len(parts) > 2 else -1 :]
    return len(parts) >= 2 and all(whole_number(part) is not None for part in numbers)


def list_files(root: Path) -> dict[str, Path]:
    """The list of each split."""
    if root.is_file():
        return {split_of_name(root.stem) or "train": root}
    found: dict[str, Path] = {}
    for path in annotations(root, "*.txt", "*.list"):
        split = split_of_name(path.stem)
        if path.name not in NAME_FILES and split and is_list(path):
            if split in found:
                raise ListingError(
                    f"{found[split].name} and {path.name} both list the {split} split; name one of them."
                )
            found[split] = path
    return found


def load_lists(root: Path, options: IndexOptions) -> Index:
    files = list_files(root)
    if not files:
        raise ListingError(
            f"no list in {root}; looked for *train*.txt, *val*.txt and *test*.txt of `path frames label`."
        )
    folder = root.parent if root.is_file() else root
    per_split = {split: _without_dummy(split, read_list(path, split)) for split, path in files.items()}
    samples = [s for rows in per_split.values() for s in rows]
    if not samples:
        raise ListingError(
            f"nothing is listed in {', '.join(map(str, files.values()))}; expected lines of `path frames label`."
        )
    present, missing = locate(samples, folder, options, _find)
    return Index(folder, "list", present, _label_names(folder, options, samples), missing)


def read_list(path: Path, split: str) -> list[Sample]:
    lines = read_text(path).splitlines()
    return [_sample(line, path, number, split) for number, line in enumerate(lines, 1) if line.strip()]


def _sample(line: str, path: Path, number: int, split: str) -> Sample:
    name, *numbers = line.rsplit(None, 2)
    frames, label = map(whole_number, numbers) if len(numbers) == 2 else (None, None)
    if frames is not None and label is not None:
        return Sample(name, label, split, name, frames=frames)
    name, *numbers = line.rsplit(None, 1)
    if numbers and (label := whole_number(numbers[0])) is not None:
        return Sample(name, label, split, name)
    raise ListingError(f"line {number} of {path} is not `path frames label`: {line[:80]!r}.")


def _without_dummy(split: str, samples: list[Sample]) -> list[Sample]:
    """A published test list has label 0 in every row: such a list is unlabelled, not of one class."""
    if split == "test" and len(samples) > 1 and {s.label for s in samples} == {0}:
        return [replace(s, label=UNLABELLED) for s in samples]
    return samples


def _label_names(folder: Path, options: IndexOptions, samples: list[Sample]) -> list[str]:
    highest = max(s.label for s in samples)
    path = names_file(folder, options, NAME_FILES)
    if path is None:
        if highest >= MOST_LABELS:
            raise ListingError(f"label {highest} is listed in {folder}; expected numbers below {MOST_LABELS:,}.")
        return [str(i) for i in range(highest + 1)]
    names = read_names(path)
    if highest >= len(names):
        raise ListingError(f"label {highest} is listed in {folder}, but {path} names only {len(names)} labels.")
    return names


def _find(finder: FileFinder, sample: Sample) -> str | None:
    """The file at the listed path; a bare name also means the only file of that stem in any folder."""
    found = finder.by_path(sample.path)
    name = PurePosixPath(sample.path.replace("\\", "/"))
    if found or len(name.parts) != 1:
        return found
    return finder.only(name.stem if name.suffix.lower() in VIDEO_SUFFIXES else name.name)
