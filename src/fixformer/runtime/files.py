"""Atomic writes: a file is written under a temporary name beside its target, flushed, then renamed."""

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fixformer.errors import UserError


def cache_directory() -> Path:
    """For data that can be recomputed: `$FIXFORMER_CACHE`, or `fixformer` in the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("FIXFORMER_CACHE") or Path(base) / "fixformer")


def check_writable(folder: str | Path) -> None:
    """Raise a `UserError` unless a directory is writable or can be created; does not create it."""
    folder = Path(folder)
    nearest = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    try:
        with TemporaryDirectory(prefix=".fixformer-", dir=nearest):
            pass
    except OSError as error:
        reason = f"{nearest}: {error.strerror}"
        raise UserError(f"the output directory {folder} cannot be written ({reason}); choose another.") from None


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path`; renamed to `path` when the block succeeds, deleted when it fails."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write to {path.parent}: {error.strerror}.") from None
    # not the process id: processes on several machines may write to one network folder
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(path)
        _flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def new_directory(target: str | Path) -> Iterator[Path]:
    """A temporary directory; renamed to `target` when the block succeeds, deleted when it fails."""
    target = Path(target)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for path in (*temporary.iterdir(), temporary):
            _flush(path)
        temporary.rename(target)
        _flush(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def replace_symlink(link: str | Path, target: str | Path) -> None:
    """Make `link` a symbolic link to `target`, relative to the link's own directory, atomically."""
    link = Path(link)
    temporary = link.with_name(f".{link.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(os.path.relpath(target, link.parent))
    temporary.replace(link)
    _flush(link.parent)


def remove_temporary_files(folder: str | Path) -> None:
    """Delete temporary files that killed processes left. Only for a folder with one writer."""
    for path in Path(folder).glob(".*.tmp"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: str | Path, text: str) -> None:
    with replacing(path) as temporary:
        # file names need not be valid UTF-8; surrogateescape writes their original bytes
        temporary.write_text(text, encoding="utf-8", errors="surrogateescape")


def write_json(path: str | Path, value: Any, *, indent: int | None = 1) -> None:
    """`indent=None` is for large files, which Python then writes several times faster. NaN is a bug: it is no JSON."""
    write_text(path, json.dumps(value, indent=indent, allow_nan=False) + "\n")


def parse_json(text: str) -> Any:
    """The value of a JSON text that may come from anywhere; a `ValueError` for what is not JSON."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
