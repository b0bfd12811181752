"""A checkpoint of a tiny run, trained once."""

import shutil
from pathlib import Path

import pytest

from fixformer.training.run import TrainResult, train
from tiny_run import TINY, copied_data, motions

__all__ = ["copied_data", "motions"]


@pytest.fixture(scope="session")
def trained(motions: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fixformer.evaluation.report.can_draw", lambda: False)
        return train("demo", data=motions, output=tmp_path_factory.mktemp("trained") / "run", **{**TINY, "epochs": 1})


@pytest.fixture
def copied(trained: TrainResult, tmp_path: Path) -> Path:
    """A copy of the last checkpoint, to damage."""
    return Path(shutil.copytree(trained.output / "last", tmp_path / "copy"))
