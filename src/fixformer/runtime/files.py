"""Files: only regular ones are opened, and a file is written under a temporary name, flushed, then renamed."""

import errno
import json
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, overload

from fixformer.errors import UserError

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@overload
def open_file(path: str | Path, mode: Literal["r", "a"] = "r", **options: Any) -> TextIOWrapper: ...


@overload
def open_file(path: str | Path, mode: Literal["rb"]) -> BufferedReader: ...


def open_file(path: str | Path, mode: str = "r", **options: Any) -> Any:
    """`open` for regular files, and for new ones if the mode creates them.

    A named pipe would block for ever, a device such as /dev/zero never ends: these are an `OSError` that says so.
    """
    return open(path, mode, opener=_open_regular, **options)


def _open_regular(path: str, flags: int) -> int:
    if os.path.lexists(path):  # before it is opened, which may have an effect on a device
        require_regular(path)
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # of a pipe that takes its place meanwhile
    try:
        _require_regular_mode(os.fstat(descriptor).st_mode, path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def require_regular(path: str | Path) -> None:
    """Raise an `OSError` unless a path is that of a regular file; for libraries that open files by path."""
    _require_regular_mode(os.stat(path).st_mode, path)


def _require_regular_mode(mode: int, path: str | Path) -> None:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(number, f"it is {kind}, not a regular file", str(path))


def read_text(path: str | Path, encoding: str = "utf-8", errors: str = "strict") -> str:
    """The text of a regular file."""
    with open_file(path, encoding=encoding, errors=errors) as file:
        return file.read()


def read_bytes(path: str | Path) -> bytes:
    """The content of a regular file."""
    with open_file(path, "rb") as file:
        return file.read()


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


def read_json(path: str | Path) -> Any:
    """The values of a JSON file; a `UserError` if it cannot be read or is not JSON."""
    try:
        return json.loads(read_text(path))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, or nested a thousand times
        raise UserError(f"{path} is damaged ({error}); expected JSON as fixformer writes it.") from None


def write_text(path: str | Path, text: str) -> None:
    with replacing(path) as temporary:
        # file names need not be valid UTF-8; surrogateescape writes their original bytes
        temporary.write_text(text, encoding="utf-8", errors="surrogateescape")


def write_json(path: str | Path, value: Any, *, indent: int | None = 1) -> None:
    """`indent=None` is for large files, which Python then writes several times faster."""
    write_text(path, json.dumps(value, indent=indent) + "\n")
