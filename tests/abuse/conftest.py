"""A tiny set, its shards and a run on it, made once."""

from pathlib import Path

import pytest

from fixformer.data.prepare.prepare import prepare
from tiny_run import motions, train_tiny

__all__ = ["motions"]


@pytest.fixture(scope="session")
def shards(motions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("shards") / "set"
    prepare(motions, target, shards=True, shard_videos=5, workers=1)
    return target


@pytest.fixture(scope="session")
def trained(motions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a finished run."""
    return train_tiny(tmp_path_factory.mktemp("trained"), motions).output
