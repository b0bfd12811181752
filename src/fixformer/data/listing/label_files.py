"""Reading annotation text and files of label names."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fixformer.data.listing.escapes import unescape
from fixformer.data.listing.index import IndexOptions, ListingError
from fixformer.runtime import files

MOST_DIGITS = 18  # all numbers of 64 bits; Python refuses to read one of thousands of digits


def annotations(folder: Path, *patterns: str) -> list[Path]:
    """The files in a folder with such names, sorted, without hidden ones, which are those of editors and systems."""
    found = (path for pattern in patterns for path in folder.glob(pattern))
    return sorted(path for path in found if is_annotation(path) and not path.name.startswith("."))


def is_annotation(path: Path) -> bool:
    """Whether something is in the place of an annotation file; if that is no regular file, reading it is an error."""
    return os.path.lexists(path) and not os.path.isdir(path)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns what the system says while an annotation file is read into a sentence."""
    try:
        yield
    except OSError as error:
        raise ListingError(f"cannot read {path}: {error.strerror}.") from None


def read_text(path: Path) -> str:
    """The text of an annotation file."""
    try:
        with reading(path):
            return files.read_text(path, encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"byte {error.object[error.start]:#04x} at {error.start}"
        raise ListingError(f"{path} is not UTF-8 text ({where}); save it as UTF-8.") from None


def whole_number(text: str) -> int | None:
    """The number that a text is; None for any other text, and for one of more digits than anything is counted with."""
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else None


def read_lines(path: Path, has_escapes: bool = False) -> list[str]:
    """Label names, one per line, in order and unchanged; `has_escapes` if `prepare` wrote them (see `escapes`)."""
    names = [line.strip() for line in read_text(path).splitlines() if line.strip()]
    if has_escapes:
        try:
            names = [unescape(name) for name in names]
        except ValueError as error:
            raise ListingError(f"{path}: {error}.") from None
    require_distinct(names, path)
    return names


def read_names(path: Path) -> list[str]:
    """Label names, one per line, in order; `[something]` placeholders lose their brackets.

    The category list in circulation for Something-Something is sorted with its brackets, while the lists beside it
    number the labels as published, sorted without: such a file is put in the published order.
    """
    lines = read_lines(path)
    names = [strip_brackets(line) for line in lines]
    if names != lines and lines == sorted(lines):
        names.sort()
    require_distinct(names, path)
    return names


def names_file(folder: Path, options: IndexOptions, usual: Sequence[str]) -> Path | None:
    """The file of label names: the one that the user gave, otherwise the first of the `usual` ones in `folder`."""
    candidates = [options.labels] if options.labels else [folder / name for name in usual]
    return next((path for path in candidates if is_annotation(path)), None)


def strip_brackets(text: str) -> str:
    return text.replace("[", "").replace("]", "")


def require_distinct(names: Sequence[str], place: str | Path) -> None:
    """Raise a `ListingError` unless names of labels are names, each of one label."""
    if "" in names:
        raise ListingError(f"label {names.index('')} in {place} has an empty name; give it a name.")
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ListingError(f"label {repeated[0]!r} appears twice in {place}; label names must differ.")
