"""Maps over processes: no more of them than are of use."""

import os
import sys
import time

import pytest
from rich.console import Console
from rich.file_proxy import FileProxy

from fixformer.runtime import pools
from fixformer.runtime.pools import MIN_WORKERS, affordable_workers, crash_safe_map, processors, unordered_map


def test_more_workers_than_the_machine_can_use(capsys: pytest.CaptureFixture[str]) -> None:
    affordable_workers.cache_clear()
    limit = max(MIN_WORKERS, 4 * processors())
    assert [affordable_workers(wanted) for wanted in (0, 1, limit, 99_999, 99_999)] == [0, 1, limit, limit, limit]
    assert capsys.readouterr().err.count("instead of 99999") == 1


def stream_of(item: int) -> str:
    return type(sys.stderr).__name__


def test_workers_do_not_print_through_a_live_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that draws it may have the lock at the fork."""
    monkeypatch.setattr(sys, "stderr", FileProxy(Console(file=sys.stderr), sys.stderr))
    assert "FileProxy" not in {name for _, name in unordered_map(stream_of, range(2), 2)}


def worker_of(item: int) -> int:
    time.sleep(0.02)
    return os.getpid()


def test_no_more_workers_than_items(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    pool = pools.ProcessPoolExecutor
    monkeypatch.setattr(
        pools, "ProcessPoolExecutor", lambda count, **options: asked.append(count) or pool(count, **options)
    )
    assert len({worker for _, worker in unordered_map(worker_of, range(3), 16)}) <= 3
    assert list(unordered_map(worker_of, [], 16)) == []
    assert asked == [3, 1]


def test_a_single_item_still_gets_a_process_of_its_own() -> None:
    """It may crash, and this process must not."""
    ((_, worker),) = crash_safe_map(worker_of, [1], 2)
    assert worker != os.getpid()
