"""A data set of a few generated clips, and settings of a run on it that takes a second."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixformer.data.synthetic import make_motions
from fixformer.training.log import read_log
from fixformer.training.run import TrainResult, train

Run = Callable[..., TrainResult]

# Set on top of the recipe `demo`; every part of training is switched on.
TINY: dict[str, Any] = {
    "frames": 4,
    "size": 16,
    "keep_frames": 8,
    "keep_short_side": None,
    "patch_size": 8,
    "patch_stride": 8,
    "patch_padding": 0,
    "embed_dim": 32,
    "depth": 1,
    "num_heads": 2,
    "head_hidden_dim": 32,
    "dropout": 0.1,
    "drop_path": 0.1,
    "mixup": 0.2,
    "smoothing": 0.1,
    "ema": 0.9,
    "batch_size": 4,
    "epochs": 3,
    "stages": (),
    "lr": 0.002,
    "warmup_epochs": 0.5,
    "eval.every": 1,
    "eval.views": "2x3",
    "workers": 0,
    "log_steps": 1,
}


def tiny_set(folder: Path) -> Path:
    """36 clips of 12 classes, 24 of them for training."""
    return make_motions(folder, clips=36, size=(32, 40), val_fraction=0.34, workers=0)


def train_tiny(home: Path, data: Path | None = None) -> TrainResult:
    """One epoch on a tiny set, without the charts of the report, which take longer than the run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fixformer.evaluation.report.can_draw", lambda: False)
        return train("demo", data=data or tiny_set(home / "motions"), output=home / "run", **{**TINY, "epochs": 1})


@pytest.fixture(scope="session")
def motions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny set, made once; imported by the conftest of each room that needs it."""
    return tiny_set(tmp_path_factory.mktemp("data") / "motions")


@pytest.fixture
def copied_data(motions: Path, tmp_path: Path) -> Path:
    """A copy of the tiny set, to change or damage."""
    return Path(shutil.copytree(motions, tmp_path / "motions"))


def losses(rows: list[dict[str, Any]]) -> list[float]:
    return [row["loss"] for row in rows if row["kind"] == "step"]


def loss_trace(run_directory: Path) -> list[float]:
    """The losses in the log of a run."""
    return losses(read_log(run_directory / "log.jsonl"))
