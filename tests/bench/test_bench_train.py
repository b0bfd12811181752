"""The benchmark of training measures in a process of its own, and recomputing costs time and saves memory."""

from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from fixformer.bench import training_step
from fixformer.bench.process import measure_apart
from fixformer.bench.training_step import TrainingStep, TrainingStepJob, bench_data_wait, bench_train, measure
from fixformer.cli.print_bench import print_training_step
from fixformer.errors import UserError
from fixformer.models.cost import cost
from tiny_run import TINY, tiny_set


def test_every_row_is_compared_with_ours(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    jobs: list[TrainingStepJob] = []

    def answer(module: str, job: TrainingStepJob, what: str) -> dict[str, Any]:
        jobs.append(job)
        return asdict(TrainingStep([20.0, 10.0 - len(jobs), 15.0], 1, 10 * len(jobs), 50.0))

    monkeypatch.setattr(training_step, "measure_apart", answer)
    result = bench_train("fixformer_tiny", clips=["8x64"], threads=1, rounds=1)
    cases = [(row["variant"], row["checkpointing"]) for row in result["rows"]]
    compared = ["ours", "softmax", "linear"]
    by_autograd = [("ours, autograd", False), ("released", False)]
    assert cases == [*product(compared, [False]), *product(compared, [True]), *by_autograd]
    assert [job.fused for job in jobs] == [True] * 6 + [False] * 2
    assert jobs[-1].settings == {"reading": "released"}
    ratios = [(ratio["variant"], ratio["seconds"], ratio["memory_peak"]) for ratio in result["ratios"]]
    assert ratios == [
        *[("softmax", 8 / 9, 2), ("linear", 7 / 9, 3)],
        *[("softmax", 5 / 6, 5 / 4), ("linear", 4 / 6, 6 / 4)],
        *[("ours, autograd", 3 / 9, 7), ("released", 2 / 9, 8)],
    ]
    ours = result["rows"][0]
    assert (ours["seconds"], ours["seconds_first"]) == (9, 20)
    assert ours["share_of_sgemm"] == pytest.approx((ours["gmacs"] / 50 / 9 + ours["gmacs"] / 50 / 15) / 2)
    assert ours["gmacs"] == 3 * cost("fixformer_tiny", 8, 64).executed_macs / 1e9
    print_training_step(result)
    assert "recomputed" in capsys.readouterr().out


def test_a_step_is_measured_after_a_small_one() -> None:
    job = TrainingStepJob("fixformer_tiny", 3, 32, 2, threads=1, checkpointing=False, repeats=2, fused=False)
    assert len(measure(job).seconds) == 2


@pytest.mark.slow
def test_recomputed_activations_take_less_memory() -> None:
    job = TrainingStepJob("fixformer_tiny", 32, 112, 4, threads=1, checkpointing=False, repeats=1)
    peaks = [
        measure_apart("fixformer.bench.training_step", replace(job, checkpointing=recomputed), "a step")["memory_peak"]
        for recomputed in (False, True)
    ]
    assert peaks[1] < peaks[0]


@pytest.mark.slow
def test_the_wait_for_data_is_a_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIXFORMER_CACHE", str(tmp_path / "cache"))
    waited = bench_data_wait("demo", tiny_set(tmp_path / "motions"), **{**TINY, "epochs": 1, "eval.every": 0})
    assert 0 < waited["data_wait"] < 1
    assert waited["clips_per_second"] > 0


@pytest.mark.slow
def test_impossible_sizes_are_refused_in_one_sentence() -> None:
    with pytest.raises(UserError, match="batch=0"):
        bench_train("fixformer_tiny", batch=0)
    with pytest.raises(UserError, match="FRAMESxSIZE"):
        bench_train("fixformer_tiny", clips=["16"])
    with pytest.raises(UserError, match="slowfast_r50_8x8 has no softmax twin"):
        bench_train("slowfast_r50_8x8")
    with pytest.raises(UserError, match="fixformer_tiny at 2x1"):
        bench_train("fixformer_tiny", clips=["2x1"])
