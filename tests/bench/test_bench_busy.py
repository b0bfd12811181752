"""The benchmark of a busy machine measures with the limit on spinning and without. Speed is never asserted."""

import subprocess
from typing import Any

import pytest

from fixformer.bench import busy
from fixformer.bench.busy import BusyJob, _environment, bench_busy
from fixformer.cli.print_bench import print_busy, print_openmp
from fixformer.errors import UserError


def test_rows_are_with_the_limit_and_without(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A core is kept busy during every second measurement."""
    burning: list[subprocess.Popen] = []
    start = subprocess.Popen

    def popen(command: list[str], **options: Any) -> subprocess.Popen:
        started = start(command, **options)
        if command[-1] == busy.BURN:
            burning.append(started)
        return started

    def answer(module: str, job: BusyJob, what: str, environment: dict[str, str]) -> dict[str, float]:
        is_busy = bool(burning) and burning[-1].poll() is None
        return {"clips_per_second": (40.0 if "GOMP_SPINCOUNT" in environment else 20.0) / (1 + is_busy)}

    monkeypatch.setattr(busy, "BURN", "import time; time.sleep(60)")
    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(busy, "measure_apart", answer)
    result = bench_busy(threads=1, rounds=2)
    assert [(row["quiet"], row["busy"], row["kept"]) for row in result["rows"]] == [(40, 20, 0.5), (20, 10, 0.5)]
    assert len(burning) == 4
    assert all(one.poll() is not None for one in burning)
    print_busy(result)
    print_openmp(result)
    out = capsys.readouterr().out
    assert "one core busy" in out
    assert "OpenMP" in out


def test_steps_are_measured_after_the_first() -> None:
    assert busy.measure(BusyJob(threads=1, seconds=0.01))["clips_per_second"] > 0


def test_the_environment_is_ours_but_for_what_it_says_about_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    monkeypatch.setenv("FIXFORMER_CACHE", "here")
    assert "OMP_WAIT_POLICY" not in _environment(limited=True)
    assert _environment(limited=False)["FIXFORMER_CACHE"] == "here"


def test_impossible_requests_are_refused() -> None:
    with pytest.raises(UserError, match="seconds=0"):
        bench_busy(seconds=0)
