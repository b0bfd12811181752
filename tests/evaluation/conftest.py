"""A checkpoint of a tiny run, trained once."""

from pathlib import Path

import pytest

from fixformer.training.run import TrainResult, train
from tiny_run import TINY, tiny_set


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    home: Path = tmp_path_factory.mktemp("trained")
    patch = pytest.MonkeyPatch()
    patch.setattr("fixformer.evaluation.report.can_draw", lambda: False)
    data = tiny_set(home / "motions")
    result = train("demo", data=data, output=home / "run", **{**TINY, "epochs": 1})
    patch.undo()
    return result
