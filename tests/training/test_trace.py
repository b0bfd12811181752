"""A refactor must not change training: the losses of a tiny run are stored beside this test.

A change that is meant to change them is followed by `PYTHONPATH=tests python tests/training/test_trace.py`, and says so
in its commit.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from fixformer.evaluation import report
from fixformer.models import fused
from fixformer.training.run import train
from tiny_run import TINY, loss_trace, tiny_set

STORED = Path(__file__).with_name("loss_trace.json")
RUNS: dict[str, dict[str, Any]] = {
    "adamw": {},
    "sgd": {"optimiser": "sgd", "lr": 0.05, "ema": None, "no_decay": "head_biases", "mixup": 0.0, "erase": 0.5},
    "layers": {"model": "fixformer_vit_tiny", "layer_decay": 0.5, "depth": 2, "cutmix": 1.0, "policy": "v0"},
}


def trace(data: Path, output: Path, name: str) -> list[float]:
    train("demo", data=data, output=output / name, **{**TINY, "epochs": 2, "cache": None, **RUNS[name]})
    return loss_trace(output / name)


@pytest.mark.parametrize(("name", "by_hand"), [*((name, False) for name in RUNS), ("adamw", True)])
def test_the_losses_are_those_that_were_stored(
    motions: Path, tmp_path: Path, name: str, by_hand: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with the backward passes of models/fused.py, which clips as small as these do without."""
    if by_hand:
        monkeypatch.setattr(fused, "SMALLEST_TRAINING_BYTES", 0)
    stored = json.loads(STORED.read_text())[name]
    # Another processor adds in another order; a changed augmentation, seed or update is far outside of this.
    assert trace(motions, tmp_path, name) == pytest.approx(stored, rel=2e-4)
    assert len(stored) == 12


if __name__ == "__main__":
    torch.set_num_threads(1)
    report.can_draw = lambda: False
    with tempfile.TemporaryDirectory() as folder:
        data = tiny_set(Path(folder) / "motions")
        STORED.write_text(json.dumps({name: trace(data, Path(folder), name) for name in RUNS}, indent=1) + "\n")
    sys.exit(0)
