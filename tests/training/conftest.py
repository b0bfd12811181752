"""One tiny data set for all tests of training, decoded once."""

from pathlib import Path
from typing import Any

import pytest

from fixformer.training.run import TrainResult, train
from tiny_run import TINY, Run, copied_data, motions

__all__ = ["copied_data", "motions"]


@pytest.fixture(scope="session")
def settings(motions: Path) -> dict[str, Any]:
    """Arguments of a tiny run, without its output."""
    return {**TINY, "recipe": "demo", "data": motions, "cache": str(motions.parent / "cache")}


@pytest.fixture(autouse=True)
def no_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than these runs; reports have tests of their own."""
    monkeypatch.setattr("fixformer.evaluation.report.can_draw", lambda: False)


@pytest.fixture
def run(settings: dict[str, Any], tmp_path: Path) -> Run:
    """Train in a directory of its own, with any settings changed."""

    def start(name: str = "run", **changed: Any) -> TrainResult:
        return train(**{**settings, "output": tmp_path / name, **changed})

    return start
