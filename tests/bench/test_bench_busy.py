"""The benchmark of a busy machine measures with the limit on spinning and without. Speed is never asserted."""

import pytest

from fixformer.bench.busy import _environment, bench_busy
from fixformer.cli.print_bench import print_busy, print_openmp
from fixformer.errors import UserError


@pytest.mark.slow
def test_rows_are_with_the_limit_and_without(capsys: pytest.CaptureFixture[str]) -> None:
    result = bench_busy(threads=1, seconds=0.01, rounds=1)
    limited, own = result["rows"]
    assert own["spin_count"] is None
    assert limited["kept"] == limited["busy"] / limited["quiet"]
    print_busy(result)
    print_openmp(result)
    out = capsys.readouterr().out
    assert "one core busy" in out
    assert "OpenMP" in out


def test_the_environment_is_ours_but_for_what_it_says_about_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    monkeypatch.setenv("FIXFORMER_CACHE", "here")
    assert "OMP_WAIT_POLICY" not in _environment(limited=True)
    assert _environment(limited=False)["FIXFORMER_CACHE"] == "here"


def test_impossible_requests_are_refused() -> None:
    with pytest.raises(UserError, match="seconds=0"):
        bench_busy(seconds=0)
