"""The tiny data set of the tests of training, and settings that make a row of a study take a second."""

from typing import Any

import pytest

from tiny_run import TINY, motions

__all__ = ["motions"]


@pytest.fixture(scope="session")
def tiny() -> dict[str, Any]:
    """On top of the recipe `demo`; what belongs to a single run, and what rows decide, is left out."""
    left_out = ("eval.views", "eval.every", "epochs", "stages")
    kept = {name: value for name, value in TINY.items() if name not in left_out}
    return {**kept, "epochs": 2, "eval.views": "1x1", "eval.every": 0, "cache": None}
