"""The benchmark of training measures in a process of its own, and recomputing costs time and saves memory."""

from pathlib import Path

import pytest

from fixformer.bench.training_step import bench_data_wait, bench_train
from fixformer.cli.print_bench import print_training_step
from fixformer.errors import UserError
from tiny_run import TINY, tiny_set

pytestmark = pytest.mark.slow


def test_recomputed_activations_take_less_memory(capsys: pytest.CaptureFixture[str]) -> None:
    result = bench_train("fixformer_tiny", frames=32, size=112, batch=4, threads=1)
    kept, recomputed = result["rows"]
    assert (kept["checkpointing"], recomputed["checkpointing"]) == (False, True)
    assert recomputed["memory_peak"] < kept["memory_peak"]
    print_training_step(result)
    assert "recomputed" in capsys.readouterr().out


def test_the_wait_for_data_is_a_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIXFORMER_CACHE", str(tmp_path / "cache"))
    waited = bench_data_wait("demo", tiny_set(tmp_path / "motions"), **{**TINY, "epochs": 1, "eval.every": 0})
    assert 0 < waited["data_wait"] < 1
    assert waited["clips_per_second"] > 0


def test_impossible_sizes_are_refused_in_one_sentence() -> None:
    with pytest.raises(UserError, match="batch=0"):
        bench_train("fixformer_tiny", batch=0)
    with pytest.raises(UserError, match="fixformer_tiny at 2x1"):
        bench_train("fixformer_tiny", frames=2, size=1)
