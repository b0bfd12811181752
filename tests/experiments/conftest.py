"""The tiny data set of the tests of training, and settings that make a row of a study take a second."""

from collections.abc import Iterator
from typing import Any

import pytest

from tiny_run import TINY, copied_data, motions

__all__ = ["copied_data", "motions"]


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is remembered of the contents of videos is not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIXFORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def tiny() -> dict[str, Any]:
    """On top of the recipe `demo`; what belongs to a single run, and what rows decide, is left out."""
    left_out = ("eval.views", "eval.every", "epochs", "stages")
    kept = {name: value for name, value in TINY.items() if name not in left_out}
    return {**kept, "epochs": 2, "eval.views": "1x1", "eval.every": 0, "cache": None}
