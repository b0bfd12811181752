"""Reading regular files, atomic writes, and the marks on directories that hold what this program wrote.

A file is written under a temporary name beside its target, flushed, then renamed.
"""

import errno
import json
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from io import BufferedReader, BufferedWriter, TextIOWrapper
from pathlib import Path
from tempfile import SpooledTemporaryFile, TemporaryDirectory
from typing import Any, Literal, TypeVar, overload

from fixformer.config.schema import load
from fixformer.errors import InputError, UserError

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


@contextmanager
def new_file(path: Path) -> Iterator[BufferedWriter]:
    """A new file for bytes that nobody else may read; not atomic: for what is deleted again. Never follows a link."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        yield file


def read_text(path: str | Path, encoding: str = "utf-8", errors: str = "strict") -> str:
    """The text of a regular file."""
    with open_file(path, encoding=encoding, errors=errors) as file:
        return file.read()


def read_bytes(path: str | Path) -> bytes:
    """The content of a regular file."""
    with open_file(path, "rb") as file:
        return file.read()


class Spool(SpooledTemporaryFile[bytes]):
    """Bytes from elsewhere: in memory, and from `IN_MEMORY` on in a temporary file that has no name on the disk.

    Nobody else can open it, and it is gone with this process, however that ends.
    """

    IN_MEMORY = 64 << 20

    def __init__(self, name: str) -> None:
        super().__init__(max_size=self.IN_MEMORY)
        self._shown_name = name

    @property
    def name(self) -> str:
        """What errors call it."""
        return self._shown_name


T = TypeVar("T")


class WriteError(UserError):
    """A place that cannot be written, or not any more."""


MARK = ".fixformer"
# The second line of a mark: of an output, and of a directory that holds outputs or will be one.
_ITSELF, _FOR_OUTPUTS = "wrote this directory (fixformer).", "keeps this directory for outputs (fixformer)."
_LONGEST_MARK = 1000  # characters, more than any has
DATA_WRITERS = frozenset(("prepare",))  # whose output is a data set itself
# What a full disk says. The error of a write does not name the file, unlike that of opening one.
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_LONGEST_NAME = 255  # bytes, on nearly every file system


def cache_directory() -> Path:
    """For data that can be recomputed: `$FIXFORMER_CACHE`, or `fixformer` in the user's cache directory."""
    chosen, base = os.environ.get("FIXFORMER_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if chosen or base:
        return Path(chosen or Path(str(base)) / "fixformer")
    try:
        return Path.home() / ".cache" / "fixformer"
    except RuntimeError:  # a user without a home, as in some containers
        return Path(os.devnull) / "fixformer"  # cannot be written, which is what nobody may rely on anyway


def check_writable(folder: str | Path) -> None:
    """Raise a `UserError` unless a directory is writable or can be created; does not create it."""
    folder = Path(folder)
    nearest = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
    try:
        with suppress(FileNotFoundError):
            os.lstat(folder)  # says what is wrong with the name itself: too long, or a link in a circle
        with TemporaryDirectory(prefix=".fixformer-", dir=nearest):
            pass
    except OSError as error:
        reason = f"{nearest}: {error.strerror}"
        raise WriteError(f"the output directory {folder} cannot be written ({reason}); choose another.") from None


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path`; renamed to `path` when the block succeeds, deleted when it fails."""
    path = Path(path)
    _make_parents(path)
    # not the process id: processes on several machines may write to one network folder; and not the name of the file,
    # which may already be as long as a name can be
    temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(path)
        _flush(path.parent)
    except OSError as error:
        if error.errno not in _FULL and error.filename != str(temporary):
            raise  # of something else that the block does
        raise _write_error(path, error) from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _make_parents(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"cannot write to {path.parent}: {error.strerror}.") from None


def _write_error(path: Path, error: OSError) -> WriteError:
    advice = "free some space and run it again" if error.errno in _FULL else "choose another place"
    return WriteError(f"cannot write {path}: {error.strerror or error}; {advice}.")


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


def shortened(name: str, room: int = 0) -> str:
    """A name that is not too long for a file name, also after `room` bytes are appended to it."""
    data = os.fsencode(name)
    return name if len(data) + room <= _LONGEST_NAME else data[: _LONGEST_NAME - room].decode("utf-8", "ignore")


def make_output(directory: str | Path, writer: str) -> None:
    """Make a directory for the results of a verb, and mark it, so that it is never read as part of a data set.

    So are the directories above it that have to be made. A directory that already holds something is the user's own.
    """
    target = Path(directory)
    new = [path for path in target.parents if not os.path.lexists(path)]
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"cannot make the directory {target}: {error.strerror}; choose another.") from None
    for path in new:
        mark_output(path, writer, _FOR_OUTPUTS)
    if _holds_nothing(target):
        mark_output(target, writer)


def claim_output(directory: str | Path, data: str | Path, writer: str) -> None:
    """Raise an `InputError` if what is written to a directory would be read as part of a data set afterwards.

    Not so if it is new, or marked, or in a marked one. An empty one is marked now, before the data set is listed.
    """
    place, root = Path(os.path.realpath(directory)), Path(os.path.realpath(data))
    below_root = [path for path in (place, *place.parents) if path.is_relative_to(root) and path != root]
    is_apart = place != root and not below_root
    if is_apart or any(os.path.lexists(path / MARK) for path in below_root):
        return
    if place == root or (os.path.isdir(place) and not _holds_nothing(place)):
        raise InputError(
            f"{directory} is not empty and lies in the data {data}, so that what is written there would be read as "
            "data; choose a new directory."
        )
    if os.path.isdir(place):
        mark_output(place, writer, _FOR_OUTPUTS)


def require_outside_runs(directory: str | Path) -> None:
    """Raise a `UserError` if a directory lies in that of a run, whose files belong to `train`."""
    for path in Path(os.path.realpath(directory)).parents:
        if _mark_of(path)[:2] == ["train", _ITSELF]:
            raise UserError(f"the output directory {directory} lies in the run {path}; choose one outside it.")


def _holds_nothing(directory: Path) -> bool:
    """Whether a directory is empty but for hidden files, such as a lock."""
    return all(name.startswith(".") for name in os.listdir(directory))


def mark_output(directory: str | Path, writer: str, what: str = _ITSELF) -> None:
    """Mark a directory as written by a verb."""
    text = f"{writer}\n{what}\nData sets are read without directories that hold this file.\n"
    write_text(Path(directory) / MARK, text)


def _mark_of(directory: Path) -> list[str]:
    """The lines of a directory's mark; none if it has none that can be read."""
    try:
        with open_file(directory / MARK, encoding="utf-8", errors="replace") as file:
            return file.read(_LONGEST_MARK).splitlines()
    except OSError:
        return []


def writer_of(directory: str | Path) -> str | None:
    """The verb that wrote a directory; None for any other directory."""
    if not os.path.isfile(Path(directory) / MARK):
        return None
    return next(iter(_mark_of(Path(directory))), "").strip()[:80] or "fixformer"


def is_output(directory: str | Path) -> bool:
    """Whether a directory holds only what this program wrote: it is marked, or holds marked directories only."""
    if os.path.lexists(os.path.join(directory, MARK)):
        return True
    try:
        names = [name for name in os.listdir(directory) if not name.startswith(".")]
    except OSError:
        return False
    # not recursive, so that a link to a directory above cannot lead in circles
    return bool(names) and all(os.path.lexists(os.path.join(directory, name, MARK)) for name in names)


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
        return parse_json(read_text(path))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.") from None
    except ValueError as error:  # not UTF-8 or not JSON
        raise UserError(f"{path} is damaged ({error}); expected JSON as fixformer writes it.") from None


def write_text(path: str | Path, text: str) -> None:
    with replacing(path) as temporary:
        # file names need not be valid UTF-8; surrogateescape writes their original bytes
        temporary.write_text(text, encoding="utf-8", errors="surrogateescape")


def write_json(path: str | Path, value: Any, *, indent: int | None = 1) -> None:
    """`indent=None` is for large files, which Python then writes several times faster. NaN is a bug: it is no JSON."""
    write_text(path, json.dumps(value, indent=indent, allow_nan=False) + "\n")


@contextmanager
def appending(path: Path) -> Iterator[Callable[[Any], None]]:
    """A function that appends a dataclass to a file, as a line of JSON that survives the end of this process."""
    _make_parents(path)
    try:
        is_torn = os.path.isfile(path) and not _ends_with_a_line(path)
        file = open_file(path, "a", encoding="utf-8")
    except OSError as error:
        raise _write_error(path, error) from None

    def add(row: Any) -> None:
        try:
            file.write(json.dumps(asdict(row)) + "\n")
            file.flush()
        except OSError as error:
            raise _write_error(path, error) from None

    try:
        file.write("\n" if is_torn else "")  # after a line that was cut off
        yield add
    finally:
        with suppress(OSError):  # what could not be written now was reported above
            file.close()


def _ends_with_a_line(path: Path) -> bool:
    with open_file(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        return file.read() in (b"", b"\n")


def read_records(path: Path, kind: type[T]) -> Iterator[T]:
    """The dataclasses that were appended to a file; what is not one, such as a line that was cut off, is left out."""
    lines = read_text(path, errors="replace").split("\n") if os.path.isfile(path) else ()
    for line in lines:
        try:
            yield load(kind, parse_json(line))
        except ValueError:
            continue


def parse_json(text: str) -> Any:
    """The value of a JSON text that may come from anywhere; a `ValueError` for what is not JSON."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
