"""How much memory is free, and the sentence when it is not enough."""

import resource
from pathlib import Path

import pytest

from fixformer.errors import UserError
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
    with pytest.raises(UserError, match=r"^the clips need 3.0 GB of memory, but 2.0 GB are free; use fewer\.$"):
        memory.require_memory(3e9, "the clips", "use fewer")
    monkeypatch.setattr(memory, "free_memory", lambda: None)
    memory.require_memory(1e30, "the clips", "use fewer")
