"""The benchmark of training measures in a process of its own, and recomputing costs time and saves memory."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from fixformer.bench.process import measure_apart
from fixformer.bench.training_step import TrainingStepJob, bench_data_wait, bench_train
from fixformer.cli.print_bench import print_training_step
from fixformer.errors import UserError
from tiny_run import TINY, tiny_set

pytestmark = pytest.mark.slow


def test_every_row_is_compared_with_ours(capsys: pytest.CaptureFixture[str]) -> None:
    result = bench_train("fixformer_tiny", clips=["8x64"], threads=1, rounds=1)
    cases = [(row["variant"], row["checkpointing"]) for row in result["rows"]]
    compared = ["ours", "softmax", "linear"]
    assert cases == [*product(compared, [False]), *product(compared, [True]), ("released", False)]
    kept, softmax = result["rows"][:2]
    ratio = result["ratios"][0]
    assert (ratio["variant"], ratio["seconds"]) == ("softmax", softmax["seconds"] / kept["seconds"])
    assert ratio["memory_peak"] == softmax["memory_peak"] / kept["memory_peak"]
    print_training_step(result)
    assert "recomputed" in capsys.readouterr().out


def test_recomputed_activations_take_less_memory() -> None:
    job = TrainingStepJob("fixformer_tiny", 32, 112, 4, threads=1, checkpointing=False, repeats=1)
    peaks = [
        measure_apart("fixformer.bench.training_step", replace(job, checkpointing=recomputed), "a step")["memory_peak"]
        for recomputed in (False, True)
    ]
    assert peaks[1] < peaks[0]


def test_the_wait_for_data_is_a_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIXFORMER_CACHE", str(tmp_path / "cache"))
    waited = bench_data_wait("demo", tiny_set(tmp_path / "motions"), **{**TINY, "epochs": 1, "eval.every": 0})
    assert 0 < waited["data_wait"] < 1
    assert waited["clips_per_second"] > 0


def test_impossible_sizes_are_refused_in_one_sentence() -> None:
    with pytest.raises(UserError, match="batch=0"):
        bench_train("fixformer_tiny", batch=0)
    with pytest.raises(UserError, match="FRAMESxSIZE"):
        bench_train("fixformer_tiny", clips=["16"])
    with pytest.raises(UserError, match="slowfast_r50 has no softmax twin"):
        bench_train("slowfast_r50")
    with pytest.raises(UserError, match="fixformer_tiny at 2x1"):
        bench_train("fixformer_tiny", clips=["2x1"])
