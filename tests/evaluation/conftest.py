"""A checkpoint of a tiny run, trained once."""

import shutil
from pathlib import Path

import pytest

from fixformer.training.run import TrainResult
from tiny_run import copied_data, motions, train_tiny

__all__ = ["copied_data", "motions"]


@pytest.fixture(scope="session")
def trained(motions: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    return train_tiny(tmp_path_factory.mktemp("trained"), motions)


@pytest.fixture
def copied(trained: TrainResult, tmp_path: Path) -> Path:
    """A copy of the last checkpoint as it may be shared, without the manifest that would notice a change."""
    copy = Path(shutil.copytree(trained.output / "last", tmp_path / "copy"))
    (copy / "manifest.json").unlink()
    return copy
