"""One server process for all tests of an xdist worker, and the videos that are sent to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from running_server import Running, running

from tiny_run import motions, train_tiny
from videos import encode, moving_square

__all__ = ["motions"]


@pytest.fixture(scope="session")
def checkpoint(motions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_tiny(tmp_path_factory.mktemp("served"), motions).output


@pytest.fixture(scope="session")
def server(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Small limits of size, generous ones of time."""
    home = tmp_path_factory.mktemp("server")
    limits = ("--upload-mb", "2", "--duration", "30", "--megapixels", "0.5", "--header-seconds", "2")
    with running(checkpoint, home, *limits, "--upload-seconds", "3") as server:
        yield server


@pytest.fixture(scope="session")
def clip() -> bytes:
    """Two seconds that every browser plays."""
    return encode(moving_square(48, 120, 160), rate=24, codec="libvpx", container="webm")
