"""The rows of a study as processes, one a core; stopping them lets each save, and they go on in the next call."""

import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fixformer.config.schema import dump
from fixformer.experiments.row_worker import JOB_FILE, RowJob
from fixformer.runtime.files import make_output, open_file, read_text, write_json
from fixformer.runtime.parent import kill_with_parent
from fixformer.runtime.signals import StopRequest

LOG_FILE = "log.txt"
POLL_SECONDS = 0.2  # rows take minutes


@dataclass(frozen=True)
class RowProcess:
    """A process that is running, and the directory of its row."""

    home: Path
    process: subprocess.Popen[bytes]

    @staticmethod
    def start(home: Path, job: RowJob) -> "RowProcess":
        make_output(home, "ablate")
        write_json(home / JOB_FILE, dump(job))
        command = [sys.executable, "-m", "fixformer.experiments.row_worker", str(home / JOB_FILE)]
        with open_file(home / LOG_FILE, "a") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=kill_with_parent,  # noqa: PLW1509 (this process starts no threads before)
                process_group=0,  # of its own: Ctrl-C is for this process, which then asks the rows to save
            )
        return RowProcess(home, process)

    def problem(self) -> str | None:
        """Why an ended process failed; None if it did not."""
        if self.process.returncode == 0:
            return None
        if self.process.returncode < 0:
            return "its process was killed, perhaps for want of memory"
        lines = read_text(self.home / LOG_FILE, errors="replace").strip().splitlines()
        return lines[-1].removeprefix("fixformer: ") if lines else f"exit status {self.process.returncode}"


def run_rows(
    jobs: Sequence[tuple[Path, RowJob]], processes: int, ended: Callable[[Path, str | None], None], stop: StopRequest
) -> None:
    """Run jobs, each in its directory, in their order; returns when all have ended, or soon after a signal.

    Args:
        ended: called with the directory of a job, and why it failed if it did.
    """
    waiting, running = deque(jobs), list[RowProcess]()
    try:
        while (waiting and not stop) or running:
            while waiting and len(running) < processes and not stop:
                running.append(RowProcess.start(*waiting.popleft()))
            time.sleep(POLL_SECONDS)
            if stop:
                for row in running:
                    row.process.terminate()
                while running:  # each saves after its step; a second Ctrl-C does not wait for that
                    running.pop().process.wait()
            for row in [row for row in running if row.process.poll() is not None]:
                running.remove(row)
                ended(row.home, row.problem())
    finally:
        for row in running:
            row.process.kill()
            row.process.wait()
