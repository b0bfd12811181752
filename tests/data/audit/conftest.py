"""Facts about videos are cached; every test has a cache of its own."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIXFORMER_CACHE", str(tmp_path / "cache"))
