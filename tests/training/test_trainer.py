"""A run as a whole: what it leaves behind, and what must not change its numbers."""

import json
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from fixformer.config.own import with_own
from fixformer.errors import NotFinite
from fixformer.models.checkpoint import load_model, read_info
from fixformer.training.log import read_log
from fixformer.training.trainer import Trainer
from tiny_run import Run, loss_trace

PLAIN: dict[str, Any] = {"dropout": 0.0, "drop_path": 0.0, "mixup": 0.0, "ema": None, "epochs": 1}


def test_a_run_leaves_a_checkpoint_a_log_and_a_report(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fixformer.evaluation.report.can_draw", lambda: True)
    result = run()
    rows = read_log(result.output / "log.jsonl")
    assert [row["step"] for row in rows if row["kind"] == "step"] == list(range(1, 19))
    assert [row["epoch"] for row in rows if row["kind"] == "eval"] == [1, 2, 3]
    assert result.steps == 18
    info = read_info(result.output)
    assert (info.step, info.epoch, with_own(info.config, result.config)) == (18, 3.0, result.config)
    assert info.commit or info.versions["fixformer"]
    html = (result.output / "evaluation" / "report.html").read_text()
    assert html.count("data:image/png;base64,") == 3
    assert "http" not in html.replace("http-equiv", "")
    stored = json.loads((result.output / "evaluation" / "evaluation.json").read_text())
    assert stored["metrics"]["video_top1"] == result.evaluation.metrics.video_top1
    assert "12/12 videos scored" in stored["protocol_line"]
    assert len((result.output / "evaluation" / "predictions.jsonl").read_text().splitlines()) == 12


def test_the_saved_model_is_the_average(run: Run) -> None:
    result = run(epochs=1)
    saved = load_file(result.output / "last" / "model.safetensors")
    trained = load_file(result.output / "last" / "train.safetensors")
    assert not torch.equal(saved["head.fc.weight"], trained["model.head.fc.weight"])
    model, _ = load_model(result.output)
    assert torch.equal(model.state_dict()["head.fc.weight"], saved["head.fc.weight"])


def test_gradients_of_parts_of_a_batch_add_up(run: Run) -> None:
    """Dropout and mixing included."""
    whole = loss_trace(run("whole", epochs=1).output)
    parts = loss_trace(run("parts", epochs=1, micro_batch=3).output)  # 3 + 1 clips
    assert parts == pytest.approx(whole, rel=1e-5)
    assert len(whole) == 6


def test_recomputing_activations_changes_nothing(run: Run) -> None:
    assert loss_trace(run("again", checkpointing=True, epochs=1).output) == loss_trace(run("once", epochs=1).output)


def test_mixed_precision_follows_float32(run: Run) -> None:
    exact = loss_trace(run("float32", **PLAIN).output)
    assert loss_trace(run("bf16", precision="bf16", **PLAIN).output) == pytest.approx(exact, rel=0.02)


def test_the_seed_decides(run: Run) -> None:
    first = loss_trace(run("first", epochs=1).output)
    assert loss_trace(run("same", epochs=1).output) == first
    assert loss_trace(run("other", epochs=1, seed=1).output) != first


def test_stages_grow_the_clip(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []
    step = Trainer.train_step

    def watched(self: Trainer, batch: Any) -> torch.Tensor:
        seen.append(tuple(batch.video_BCTHW.shape))
        return step(self, batch)

    monkeypatch.setattr(Trainer, "train_step", watched)
    result = run(epochs=2, stages="2x8:1@6,4x16:1")
    assert seen == [(6, 3, 2, 8, 8)] * 4 + [(4, 3, 4, 16, 16)] * 6
    assert result.steps == 10
    assert read_info(result.output).config.clip.frames == 4


def test_a_loss_that_is_not_finite_names_the_files(run: Run, tmp_path: Path) -> None:
    with pytest.raises(NotFinite, match=r"step \d+.*\.webm.*lr") as error:
        run(lr=1e30, optimiser="sgd", clip_norm=None, warmup_epochs=0, log_steps=5, epochs=2)
    assert str(error.value).count(".webm") == 4
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_data_workers_change_nothing(run: Run) -> None:
    alone = loss_trace(run("alone", epochs=1).output)
    assert loss_trace(run("workers", epochs=1, workers=2).output) == alone


def test_weights_that_are_not_finite_are_not_saved(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss of the step that spoilt them was still finite."""
    step = Trainer.train_step

    def spoiling(self: Trainer, batch: Any) -> torch.Tensor:
        loss = step(self, batch)
        if self.position.step == 11:
            next(self.learner.model.parameters()).data.fill_(float("nan"))
        return loss

    monkeypatch.setattr(Trainer, "train_step", spoiling)
    with pytest.raises(NotFinite, match=r"NaN.*step 12 is not saved"):
        run(ema=None, epochs=2)
    assert (tmp_path / "run" / "last").resolve().name == "step-00000006"


@pytest.mark.slow
def test_a_compiled_run_follows_the_plain_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a graph with its own backward pass; making code of it takes minutes and is torch's business."""
    monkeypatch.setattr(nn.Module, "compile", partialmethod(nn.Module.compile, backend="aot_eager"))
    plain = run("plain", **PLAIN)
    compiled = run("compiled", compile=True, **PLAIN)
    assert loss_trace(compiled.output) == pytest.approx(loss_trace(plain.output), rel=1e-4)
    assert compiled.evaluation.metrics == plain.evaluation.metrics
