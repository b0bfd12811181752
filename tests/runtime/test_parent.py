"""A worker ends with its parent, and not with the thread that started it."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

# Starts three workers, which say their numbers and would then sleep for ever.
PARENT = """
import multiprocessing, os, sys, threading, time
from fixformer.runtime.parent import end_with_parent

def work():
    end_with_parent()
    os.write(1, b"%d\\n" % os.getpid())  # in one piece: three write to one pipe
    time.sleep(1000)

def start():
    for worker in [multiprocessing.get_context(sys.argv[1]).Process(target=work) for _ in range(3)]:
        worker.start()

if __name__ == "__main__":
    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    time.sleep(1000)
"""


def is_running(number: int) -> bool:
    """One that was killed may still wait for its parent to take note."""
    status = Path("/proc", str(number), "status")
    return status.exists() and "\nState:\tZ" not in status.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_end_with_a_killed_parent(method: str, tmp_path: Path) -> None:
    program = tmp_path / "parent.py"
    program.write_text(PARENT)
    with subprocess.Popen([sys.executable, str(program), method], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            workers = [int(process.stdout.readline()) for _ in range(3)]
            time.sleep(0.2)  # the thread that started them has ended
            assert all(map(is_running, workers))
        finally:
            process.kill()
        process.wait()
        end = time.monotonic() + 5
        while any(map(is_running, workers)):
            assert time.monotonic() < end, "a worker is left over"
            time.sleep(0.01)
