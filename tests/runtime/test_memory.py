"""How much memory is free, and the sentence when it is not enough."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fixformer.errors import OutOfMemory
from fixformer.runtime import memory


def test_the_smallest_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, container = tmp_path / "meminfo", tmp_path / "memory.max"
    monkeypatch.setattr(memory, "MACHINE", machine)
    monkeypatch.setattr(memory, "CONTAINER_LIMIT", container)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert memory.free_memory() is None
    machine.write_text("MemTotal: 9000000 kB\nMemAvailable: 8000000 kB\n")
    assert memory.free_memory() == 8_000_000 * 1024
    container.write_text("max\n")
    assert memory.free_memory() == 8_000_000 * 1024
    container.write_text(f"{4 << 30}\n")
    assert 0 < (memory.free_memory() or 0) < 4 << 30
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1, 1))
    assert memory.free_memory() == 0


def test_too_little_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: 2_000_000_000)
    memory.require_memory(2e9, "the clips", "use fewer")
    with pytest.raises(OutOfMemory, match=r"^the clips need 3.0 GB of memory, but 2.0 GB are free; use fewer\.$"):
        memory.require_memory(3e9, "the clips", "use fewer")
    monkeypatch.setattr(memory, "free_memory", lambda: None)
    memory.require_memory(1e30, "the clips", "use fewer")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
def test_more_than_the_limit_is_an_error() -> None:
    program = (
        "from fixformer.runtime.memory import limit_memory\n"
        "limit_memory(50 << 20)\n"
        "fits = bytearray(30 << 20)\n"
        "try: bytearray(30 << 20)\n"
        "except MemoryError: print('refused', open('/proc/self/oom_score_adj').read().strip())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["refused", "1000"]
