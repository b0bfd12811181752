"""A worker ends with its parent, where the system helps and where it does not."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

# Starts three workers, which say their numbers and would then sleep for ever.
PARENT = """
import multiprocessing, os, sys, time
from fixformer.runtime import parent

def work():
    if sys.argv[1] == "watched":
        parent.kill_with_parent = None
    parent.end_with_parent()
    os.write(1, b"%d\\n" % os.getpid())  # in one piece: three write to one pipe
    time.sleep(1000)

workers = [multiprocessing.get_context("fork").Process(target=work) for _ in range(3)]
for worker in workers:
    worker.start()
time.sleep(1000)
"""


def is_running(number: int) -> bool:
    """One that was killed may still wait for its parent to take note."""
    status = Path("/proc", str(number), "status")
    return status.exists() and "\nState:\tZ" not in status.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("how", ["killed", "watched"])
def test_workers_end_with_a_killed_parent(how: str) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, how], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            workers = [int(process.stdout.readline()) for _ in range(3)]
            assert all(map(is_running, workers))
        finally:
            process.kill()
        process.wait()
        end = time.monotonic() + 5
        while any(map(is_running, workers)):
            assert time.monotonic() < end, "a worker is left over"
            time.sleep(0.01)
