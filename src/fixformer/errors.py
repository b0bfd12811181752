"""Errors that a user can fix. The command line prints these as one sentence, without a traceback."""

import errno
import re
from collections.abc import Iterable
from concurrent.futures import BrokenExecutor
from difflib import get_close_matches
from typing import Any

LONGEST = 200  # characters of a value in an error; a file may hold any number of them


class Portable(Exception):
    """An error that can be pickled, hence raised in a worker process, whatever its constructor takes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[Portable], args: tuple[Any, ...], values: dict[str, Any]) -> Portable:
    error = kind.__new__(kind, *args)
    error.__dict__.update(values)
    return error


class UserError(Portable, ValueError):
    """Something the user can fix; the message says what, which value, and what to try."""


class UsageError(UserError):
    """Words of a command line that no command takes."""


class UnknownName(UserError):
    """A name that does not exist; the message offers the nearest valid ones."""

    def __init__(self, kind: str, name: object, valid: Iterable[str]) -> None:
        super().__init__(f"unknown {kind} {shown(name)}; {suggestion(name, valid)}")


def shown(value: object) -> str:
    """A value as an error shows it: its beginning, if it is long."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def suggestion(name: object, valid: Iterable[str]) -> str:
    """The valid names that are nearest to a mistyped one, or all of them."""
    names = sorted(set(valid))
    near = get_close_matches(str(name)[:LONGEST], names, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else f"valid: {', '.join(names)}."


class SettingsConflict(UserError):
    """Two settings that contradict each other; the message names both."""


class InputError(UserError):
    """A setting, tensor or array of the wrong type, shape, range or content."""


class WeightsError(UserError):
    """A weight file that does not fit the model; the message names the first tensor that differs."""


class MissingExtra(UserError):
    """An optional dependency is missing; the message holds the command that installs it."""

    def __init__(self, need: str, extra: str) -> None:
        super().__init__(f'{need} needs an optional package: pip install "fixformer[{extra}]"')


class OutOfMemory(UserError):
    """More memory was needed than there is."""


class NotFinite(UserError):
    """A loss or a weight became NaN or infinite."""


class Interrupted(Portable):
    """The run was stopped by a signal, after saving. `status` is the exit status a shell expects."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.status = 128 + number


# What to try, by the number of an operating system's error.
_REMEDIES = {
    errno.ENOSPC: "free some space on the disk or choose another",
    errno.EDQUOT: "free some space on the disk or choose another",
    errno.EACCES: "check its permissions or choose another place",
    errno.EPERM: "check its permissions or choose another place",
    errno.EROFS: "choose a place that can be written",
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "check the path",
    errno.EISDIR: "give a file",
    errno.EEXIST: "choose another name",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ELOOP: "remove the loop of links",
    errno.EMFILE: "use fewer workers or raise the limit of open files (ulimit -n)",
    errno.ENFILE: "use fewer workers or close other programs",
    errno.EAGAIN: "use fewer workers or raise the limit of processes (ulimit -u)",
    errno.ENOMEM: "use smaller clips, smaller batches or fewer workers",
}
# How torch says that a tensor does not fit this memory, or any, and the loader that a library does not; the last one is
# in the text of a data loader's RuntimeError.
_NO_MEMORY = (
    *("allocate memory", "out of memory", "not enough memory", "calculation overflowed", "integer overflow"),
    *("failed to map segment", "MemoryError"),
)
# How gloo says that another process of the run, which prints its own error, has ended.
_NO_PEER = ("onnection closed by peer", "onnection reset by peer", "onnection refused", "Broken pipe")
_AMOUNT = re.compile(r"\d[\d.]* ?([KMGT]iB|bytes)")


def is_lost_peer(error: BaseException) -> bool:
    """Whether this process has lost its connection to another one of the run, which has an error of its own."""
    return isinstance(error, RuntimeError) and any(
        words in line for line in _first_and_last_line(error) for words in _NO_PEER
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether something did not fit into memory, whoever noticed: this package, Python, torch or the system."""
    return isinstance(error, OutOfMemory | MemoryError) or any(
        words in line for line in _first_and_last_line(error) for words in _NO_MEMORY
    )


def _first_and_last_line(error: BaseException) -> tuple[str, str]:
    """What may say what happened; between them may be code, which speaks of memory or connections, too."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0], lines[-1]


def explain(error: BaseException) -> str | None:
    """One sentence for what a user can do something about: a `UserError`, or a failure of disk, memory or a process.

    None for any other error, which is a bug.
    """
    if isinstance(error, UserError):
        return str(error)
    # an error of a data loader's worker has the worker's traceback in its text: the last line says what it was
    first, last = _first_and_last_line(error)
    if isinstance(error, BrokenExecutor) or first.startswith("DataLoader worker (pid"):
        reason, remedy = "a worker process was killed, perhaps for want of memory", "use fewer workers or smaller clips"
    elif is_out_of_memory(error):
        asked = _AMOUNT.search(str(error))
        reason = f"out of memory ({f'asked for {asked[0]}' if asked else last.strip()})"
        remedy = _REMEDIES[errno.ENOMEM]
    elif is_lost_peer(error):
        reason, remedy = "another process of this run has ended", "see its error"
    elif isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename is not None else ""
        reason = f"{where}{error.strerror or last.strip()}"
        remedy = _REMEDIES.get(error.errno or 0, "check the path and the disk it is on")
    elif isinstance(error, RecursionError):
        reason, remedy = "the input is nested too deeply", "check the files given, or see where with --traceback"
    elif isinstance(error, ImportError) and not (error.name or "").startswith("fixformer"):
        reason, remedy = f"a library cannot be loaded ({last.strip()})", "install fixformer again"
    elif isinstance(error, OverflowError):
        reason = f"a number is too large ({last.strip()})"
        remedy = "use a smaller one, or see where with --traceback"
    else:
        return None
    return f"{reason}; {remedy}."
