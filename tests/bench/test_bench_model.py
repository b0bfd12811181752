"""The benchmark runs, measures what it says, and its figure is drawn. Speed itself is never asserted."""

import json
from pathlib import Path

import pytest

from fixformer.bench.model_speed import _slopes, bench_model, plot_bench
from fixformer.bench.model_speed_worker import ModelSpeedJob, measure
from fixformer.cli.print_bench import print_model_speed
from fixformer.errors import UserError
from fixformer.runtime.machine import describe_machine, sgemm_gmacs


@pytest.mark.slow
def test_rows_pair_ours_with_the_twin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = bench_model("fixformer_tiny", frames=[1, 2], sizes=[32], threads=1, rounds=1)
    assert json.loads(json.dumps(result)) == result
    cases = [(row["frames"], row["variant"], row["backward"]) for row in result["rows"]]
    forward = [(frames, variant, False) for frames in (1, 2) for variant in ("ours", "softmax")]
    assert cases == [*forward, (1, "ours", True), (1, "softmax", True)]
    for row in result["rows"]:
        assert row["seconds"] > 0
        assert row["peak_memory_bytes"] >= row["memory_before_bytes"] > 0
        assert (row["share_of_sgemm"] is None) == row["backward"]
    print_model_speed(result)
    assert "softmax / ours" in capsys.readouterr().out
    plot_bench(result, tmp_path / "bench.png")
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_measure_repeats_as_asked() -> None:
    measured = measure(ModelSpeedJob("fixformer_tiny", 1, 32, {"depth": 1}, backward=True, threads=1, repeats=2))
    assert len(measured.seconds) == len(measured.sgemm_gmacs) == 2


def test_slope_of_linear_growth_is_one() -> None:
    rows = [
        {"variant": variant, "backward": False, "frames": frames, "size": 10, "seconds": frames**power}
        for variant, power in (("ours", 1.0), ("softmax", 1.5))
        for frames in (1, 2, 8)
    ]
    assert _slopes(rows) == pytest.approx({"ours": 1.0, "softmax": 1.5})


def test_the_machine_is_described() -> None:
    machine = describe_machine(threads=2)
    assert machine["threads"] == 2
    assert {"cpu", "load_average", "torch", "commit"} <= machine.keys()
    assert sgemm_gmacs(0.01) > 0


def test_impossible_requests_are_refused() -> None:
    with pytest.raises(UserError, match="rounds=0"):
        bench_model(rounds=0)
