"""`fixformer` in a process of its own, and what must be true however it is abused."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HANG = 60.0  # seconds; a command on a tiny set that takes longer hangs


@dataclass(frozen=True)
class Ended:
    """A command that ended by itself."""

    status: int
    stdout: str
    stderr: str

    @property
    def sentence(self) -> str:
        """The error as the user reads it: the line that begins with the program's name."""
        lines = [line for line in self.stderr.splitlines() if line.startswith("fixformer: ")]
        assert len(lines) == 1, f"expected one error, found {len(lines)}: {self.stderr}"
        return lines[0].removeprefix("fixformer: ")


def run(
    words: Sequence[str], cwd: Path, *, env: Mapping[str, str] | None = None, timeout: float = HANG, stdin: bytes = b""
) -> Ended:
    """Run a command, and hold it to its manners: an end within `timeout`, no traceback, no process left over."""
    with subprocess.Popen(
        [sys.executable, "-m", "fixformer", *words],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # all its children are in one group, so that none can hide
    ) as process:
        try:
            stdout, stderr = process.communicate(stdin, timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise AssertionError(f"{words}: no end after {timeout} s") from None
    ended = Ended(process.returncode, stdout.decode(errors="replace"), stderr.decode(errors="replace"))
    assert "Traceback" not in ended.stderr, f"{words}: {ended.stderr}"
    assert ended.status in (0, 1, 2, 130), f"{words}: status {ended.status}: {ended.stderr}"
    assert not group_exists(process.pid), f"{words}: processes are left over"
    return ended


def group_exists(number: int) -> bool:
    """Whether a process of this group is alive."""
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return False
    return True
