"""A server process that a test starts by its command, and what it leaves behind."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx


@dataclass
class Running:
    """A server that was started by its command."""

    process: "subprocess.Popen[bytes]"
    address: str
    log: Path

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.address, timeout=60, trust_env=False)

    def descendants(self) -> list[int]:
        """The processes that it started, and those that these did."""
        children: dict[int, list[int]] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, parent = path.read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state != "Z":  # which has ended
                children.setdefault(int(parent), []).append(int(path.parent.name))
        found, new = [], [self.process.pid]
        while new:
            new = [child for parent in new for child in children.get(parent, [])]
            found += new
        return found


@contextmanager
def running(checkpoint: Path, home: Path, *words: str) -> Iterator[Running]:
    """A server on a free port, whose temporary files are in `home`."""
    home.mkdir(exist_ok=True)
    log = home / "log.txt"
    environment = {**os.environ, "TMPDIR": str(home), "OMP_NUM_THREADS": "1", "FIXFORMER_TOKEN": ""}
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "fixformer", "serve", str(checkpoint), "--port", "0", *words],
            env=environment,
            stdout=sink,
            stderr=sink,
        )
    try:
        wait_until(lambda: re.search(r"http://\S+:\d+", log.read_text()) is not None, "the address")
        address = re.search(r"http://\S+:\d+", log.read_text())
        assert address
        server = Running(process, address[0], log)
        with server.client() as client:
            wait_until(lambda: client.get("/ready").status_code == 200, "the model")
        yield server
    finally:
        process.kill()
        process.wait()


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.05)
