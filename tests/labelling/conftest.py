"""A checkpoint of a tiny run and its videos."""

import csv
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tiny_run import motions, train_tiny

__all__ = ["motions"]


@pytest.fixture(scope="session")
def checkpoint(motions: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(train_tiny(tmp_path_factory.mktemp("labelling"), motions).output)


@pytest.fixture(scope="session")
def videos(motions: Path) -> list[str]:
    return [str(path) for path in sorted(motions.rglob("*.webm"))]


@pytest.fixture
def manifest(tmp_path: Path) -> Callable[..., str]:
    """Writes a CSV of paths, with further columns if wanted."""

    def write(paths: Iterable[str], name: str = "manifest.csv", **columns: Iterable[str]) -> str:
        with (tmp_path / name).open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["path", *columns])
            writer.writerows(zip(paths, *columns.values(), strict=True))
        return str(tmp_path / name)

    return write
