"""Something-Something V2 as published: labels, train, validation and test JSON, and `<id>.webm` files."""

from pathlib import Path
from typing import Any

from fixformer.data.listing.find_files import locate
from fixformer.data.listing.index import UNLABELLED, Index, IndexOptions, ListingError, Sample
from fixformer.data.listing.label_files import annotations, read_names, read_text, strip_brackets, whole_number
from fixformer.runtime.files import parse_json

ANNOTATION_FOLDERS = ("", "labels", "annotations")
SPLIT_FILES = {"train": "*train.json", "val": "*validation.json", "test": "*test.json"}


def annotation_folder(root: Path) -> Path | None:
    """The folder of `*labels.json` and at least one of the split files."""
    for name in ANNOTATION_FOLDERS:
        folder = root / name
        if folder.is_dir() and annotations(folder, "*labels.json") and _split_files(folder):
            return folder
    return None


def load_ssv2(root: Path, options: IndexOptions) -> Index:
    folder = annotation_folder(root)
    if folder is None:
        raise ListingError(
            f"no Something-Something annotations in {root}; looked for *labels.json with *train.json, "
            f"*validation.json or *test.json there, in labels/ and in annotations/."
        )
    labels = read_names(options.labels) if options.labels else read_labels(annotations(folder, "*labels.json")[0])
    samples = [s for split, path in _split_files(folder).items() for s in read_split(path, split, labels)]
    present, missing = locate(samples, root, options, lambda finder, sample: finder.by_stem(sample.id))
    return Index(root, "ssv2", present, labels, missing)


def read_labels(path: Path) -> list[str]:
    """Label names in the order of their published numbers."""
    table = _read_json(path)
    if not isinstance(table, dict):
        raise ListingError(f"{path} must map label names to numbers.")
    odd = next(((name, number) for name, number in table.items() if whole_number(str(number)) is None), None)
    if odd:
        raise ListingError(f"label {odd[0]!r} in {path} has {odd[1]!r} in place of a number.")
    numbers = sorted((int(number), name) for name, number in table.items())
    if [number for number, _ in numbers] != list(range(len(numbers))):
        raise ListingError(f"the label numbers in {path} are not 0 to {len(numbers) - 1}.")
    return [name for _, name in numbers]


def read_split(path: Path, split: str, labels: list[str]) -> list[Sample]:
    """One sample per row; a row without a template (the test file) is unlabelled."""
    rows = _read_json(path)
    if not isinstance(rows, list):
        raise ListingError(f"{path} must be a list of objects with id and template.")
    number = {name: i for i, name in enumerate(labels)}
    return [_sample(row, path, split, number) for row in rows]


def _sample(row: Any, path: Path, split: str, number: dict[str, int]) -> Sample:
    if not isinstance(row, dict) or "id" not in row:
        raise ListingError(f"a row of {path} has no id: {row!r}.")
    template = row.get("template")
    if template is None:
        return Sample(f"{row['id']}.webm", UNLABELLED, split, str(row["id"]))
    name = strip_brackets(str(template))
    if name not in number:
        raise ListingError(
            f"template {template!r} of video {row['id']} in {path} is not among the {len(number)} labels."
        )
    return Sample(f"{row['id']}.webm", number[name], split, str(row["id"]))


def _split_files(folder: Path) -> dict[str, Path]:
    found = {split: annotations(folder, pattern) for split, pattern in SPLIT_FILES.items()}
    return {split: paths[0] for split, paths in found.items() if paths}


def _read_json(path: Path) -> Any:
    text = read_text(path)
    try:
        return parse_json(text)
    except ValueError as error:
        raise ListingError(f"{path} is not valid JSON: {error}.") from None
