"""Checkpoints of format 1 still work.

`format1_run` is a run that was interrupted at step 4 of 6, written by the last version with that format, on the data
set that `tiny_run.tiny_set` makes. The expected numbers come from that version too.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from fixformer.evaluation.predictor import load
from fixformer.models.checkpoint import load_model
from fixformer.training.log import read_log
from fixformer.training.run import train
from tiny_run import TINY, loss_trace

STORED = Path(__file__).with_name("format1_run")
SETTINGS: dict[str, Any] = {
    **TINY,
    **{"frames": 2, "keep_frames": 4, "embed_dim": 8, "head_hidden_dim": 4, "pool": "mean"},
    **{"optimiser": "sgd", "lr": 0.05, "epochs": 1, "cache": None},
}


def test_a_model_of_format_1_has_its_outputs(motions: Path) -> None:
    model, info = load_model(STORED)
    assert (info.step, info.config.seed, info.config.eval.views, len(info.labels)) == (4, 0, "2x3", 12)
    assert info.is_trained
    with torch.no_grad():
        logits = model(torch.linspace(-1, 1, 3 * 2 * 16 * 16).reshape(1, 3, 2, 16, 16))[0]
    expected = [-0.00442, 0.002183, -0.00208, -0.003491, -0.003898, -0.001186]
    expected += [-0.001495, 0.00614, -0.002771, 0.00787, 0.005276, -0.001983]
    torch.testing.assert_close(logits, torch.tensor(expected), rtol=0, atol=2e-6)
    assert load(STORED).predict(next(motions.rglob("*.webm"))).views == "2x3"


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_run_of_format_1_is_resumed(
    motions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], is_lost: bool
) -> None:
    home = Path(shutil.copytree(STORED, tmp_path / "run"))
    if is_lost:
        (home / "run.json").unlink()
    train("demo", data=motions, output=home, resume=True, **SETTINGS)
    assert loss_trace(home)[4:] == pytest.approx([2.4871726036071777, 2.4909157752990723], rel=2e-4)
    assert read_log(home / "log.jsonl")[-1]["video_top1"] == pytest.approx(1 / 12)
    # its checkpoints do not know the list of training videos
    assert ("assuming the same" in capsys.readouterr().err) == is_lost
