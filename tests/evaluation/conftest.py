"""A checkpoint of a tiny run, trained once."""

import pytest

from fixformer.training.run import TrainResult
from tiny_run import train_tiny


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    return train_tiny(tmp_path_factory.mktemp("trained"))
