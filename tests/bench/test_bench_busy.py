"""The benchmark of a busy machine measures with the limit on spinning, without, and in several processes. Speed is
never asserted."""

import subprocess
from typing import Any

import pytest

from fixformer.bench import busy
from fixformer.bench.busy import BusyJob, Way, bench_busy
from fixformer.cli.print_bench import print_busy, print_openmp
from fixformer.errors import UserError


def test_every_way_is_measured_quiet_and_busy(
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
        assert environment["OMP_NUM_THREADS"] == str(job.threads)
        return {"clips_per_second": (40.0 if "GOMP_SPINCOUNT" in environment else 20.0) / (1 + is_busy)}

    monkeypatch.setattr(busy, "BURN", "import time; time.sleep(60)")
    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(busy, "measure_apart", answer)
    result = bench_busy(threads=2, rounds=2)
    rows = [(row["processes"], row["threads"], row["quiet"], row["busy"], row["kept"]) for row in result["rows"]]
    assert rows == [(1, 2, 40, 20, 0.5), (1, 2, 20, 10, 0.5), (2, 1, 80, 40, 0.5)]  # two processes add up
    assert len(burning) == 6
    assert all(one.poll() is not None for one in burning)
    print_busy(result)
    print_openmp(result)
    out = capsys.readouterr().out
    assert "one core busy" in out
    assert "OpenMP" in out


def test_steps_are_measured_after_the_first() -> None:
    assert busy.measure(BusyJob(threads=1, seconds=0.01))["clips_per_second"] > 0


@pytest.mark.slow
def test_processes_train_together() -> None:
    assert busy._measure_apart(Way(2, limited=True), BusyJob(threads=1, seconds=0.01)) > 0


def test_the_environment_is_ours_but_for_what_it_says_about_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    monkeypatch.setenv("FIXFORMER_CACHE", "here")
    assert "OMP_WAIT_POLICY" not in Way(1, limited=True).environment()
    assert Way(1, limited=False).environment()["FIXFORMER_CACHE"] == "here"


def test_impossible_requests_are_refused() -> None:
    with pytest.raises(UserError, match="seconds=0"):
        bench_busy(seconds=0)
