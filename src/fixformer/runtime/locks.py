"""One process at a time in an output directory; a process that dies, however it dies, releases its lock.

The lock is a POSIX record lock on the file `.fixformer.lock` in the directory. Of the kinds there are, this one also
works on network file systems, and worker processes, which may outlive the one that started them, do not share it. Two
properties of it need care: a process never excludes itself, so held directories are remembered here, and it loses the
lock when it closes any descriptor of the file, so nothing else opens the file while it is held.
"""

import errno
import os
import shlex
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from fixformer.errors import UserError
from fixformer.runtime.console import note
from fixformer.runtime.files import MARK

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".fixformer.lock"
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)  # of a file system without locks
_ATTEMPTS = 100  # each fails only if another process removes its lock at the same moment
_COMMAND = 160  # characters of the holder's command: it may be long
_BEGIN = b"process "  # of every description
_DESCRIPTION = 1000  # bytes, more than any description has
# If somebody put a link or a pipe in the place of the file, it is not followed, and not waited for.
_CAREFULLY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_held: set[str] = set()
_changing_held = threading.Lock()


@contextmanager
def locked(directory: str | Path) -> Iterator[None]:
    """Hold a directory, which is created if needed; a `UserError` that names the holder if another process has it.

    Directories that were created for this and are still empty at the end are removed.
    """
    directory = Path(directory)
    real = os.path.realpath(directory)
    with _changing_held:
        if real in _held:
            raise UserError(_in_use(directory, "this very process"))
        _held.add(real)
    created: list[Path] = []
    try:
        descriptor = _acquire(directory, created)
        try:
            yield
        finally:
            with suppress(OSError):
                os.unlink(directory / LOCK_FILE)  # first, so that nobody locks a file that is about to vanish
            os.close(descriptor)
    finally:
        _held.discard(real)
        _remove_empty(created)


def is_empty(directory: Path) -> bool:
    """Whether a directory contains nothing but a lock and a mark."""
    return all(entry.name in (LOCK_FILE, MARK) for entry in directory.iterdir())


def _remove_empty(created: list[Path]) -> None:
    for path in created:
        try:
            path.rmdir()
        except OSError:  # something is in it
            return


def _acquire(directory: Path, created: list[Path]) -> int:
    """The open lock file, locked and described; the directories that are made for it are added to `created`."""
    for _ in range(_ATTEMPTS):
        descriptor = _open(directory, created)
        if descriptor is None:
            continue
        try:
            _lock(descriptor, directory)
            # the holder before may have removed the file between our opening it and our locking it
            if _is_current(descriptor, directory):
                with suppress(OSError):  # the description is only for messages; a full disk shows soon enough
                    os.ftruncate(descriptor, 0)
                    os.write(descriptor, _describe_this_process().encode("utf-8", "backslashreplace"))
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise UserError(_in_use(directory, "processes that come and go"))


def _open(directory: Path, created: list[Path]) -> int | None:
    """The lock file; None if its directory vanished, because another process made it, failed and cleaned up."""
    absolute = directory.absolute()
    try:
        created[:] = [path for path in (absolute, *absolute.parents) if path in created or not path.exists()]
        directory.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unwritable(directory, error) from None
    try:
        descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | _CAREFULLY, 0o666)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unwritable(directory, error) from None
    if not _is_lock(descriptor):
        os.close(descriptor)
        raise UserError(f"{directory / LOCK_FILE} is no lock of fixformer; remove it or choose another directory.")
    return descriptor


def _is_lock(descriptor: int) -> bool:
    """Whether an open file may be written to: a new one, or one that a process left when it was killed."""
    state = os.fstat(descriptor)
    is_own = stat.S_ISREG(state.st_mode) and state.st_nlink <= 1  # 0: another process has just removed it
    return is_own and os.pread(descriptor, len(_BEGIN), 0) in (b"", _BEGIN)


def _lock(descriptor: int, directory: Path) -> None:
    try:
        if fcntl is None:
            raise OSError(errno.ENOSYS, "this system has no file locks")
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            holder = os.read(descriptor, _DESCRIPTION).decode(errors="replace").strip()
            raise UserError(_in_use(directory, holder or "another process")) from None
        if error.errno not in _NO_LOCKS:
            raise _unwritable(directory, error) from None
        what = f"{directory} cannot be locked ({error.strerror})"
        note(f"note: {what}; make sure that no other process writes to it")


def _is_current(descriptor: int, directory: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), os.stat(directory / LOCK_FILE, follow_symlinks=False))
    return False


def _describe_this_process() -> str:
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name  # of `python -m fixformer`
    command = shlex.join([name, *sys.argv[1:]])
    command = command if len(command) <= _COMMAND else f"{command[:_COMMAND]}..."
    since = datetime.now().astimezone().isoformat(" ", "seconds")
    return f"process {os.getpid()} on {socket.gethostname()} since {since} ({command})"


def _in_use(directory: Path, holder: str) -> str:
    return f"{directory} is in use by {holder}; wait until it has ended or choose another directory."


def _unwritable(directory: Path, error: OSError) -> UserError:
    return UserError(f"the output directory {directory} cannot be written ({error.strerror}); choose another.")
