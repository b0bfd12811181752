"""A command whose output is read: run without a shell, stopped when nobody reads on, never left over."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

from fixformer.errors import UserError
from fixformer.runtime.parent import kill_with_parent

GRACE = 2.0  # seconds in which a command whose output has ended should end, too
SHOWN = 200  # bytes of what a failed command said last


@dataclass(frozen=True)
class Command:
    """A running command: what it prints, and what it says on its error output."""

    process: subprocess.Popen[bytes]
    output: IO[bytes]
    errors: IO[bytes]

    def failure(self) -> str | None:
        """After its output has ended: how the command failed and what it said last, or None if it did not fail."""
        try:
            status = self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            return None
        if status == 0:
            return None
        self.errors.seek(max(0, self.errors.seek(0, os.SEEK_END) - SHOWN))
        said = self.errors.read().decode(errors="replace").strip().splitlines()
        return f"the command failed with status {status}" + (f" ({said[-1].strip()})" if said else "")


@contextmanager
def running(words: list[str]) -> Iterator[Command]:
    """Run a command; at the end of the block it and whatever it started are stopped."""
    # errors go to a file: a pipe that nobody reads would stop the command when it is full
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                preexec_fn=kill_with_parent,  # noqa: PLW1509 - a single system call, which takes no lock
                # A session of its own: what a shell has started is stopped with it, and ssh, which has no terminal to
                # ask for a password, fails instead of waiting.
                start_new_session=sys.platform != "win32",
            )
        except OSError as error:
            raise UserError(f"cannot run {words[0]!r}: {error.strerror}; is it installed?") from None
        assert process.stdout is not None
        try:
            yield Command(process, process.stdout, errors)
        finally:
            process.stdout.close()
            _stop(process)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    if process.returncode is not None:
        return  # it has been waited for, so that its number may already be that of another process
    if sys.platform == "win32":
        process.kill()
    else:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
