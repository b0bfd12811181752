"""The stored table of models is what one gets by building and counting every model."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from update_model_table import make_row

from fixformer.models.model_table import read_model_table
from fixformer.models.registry import list_models


def test_it_lists_every_model() -> None:
    assert [row["model"] for row in read_model_table()] == list_models()


@pytest.mark.parametrize("row", read_model_table(), ids=lambda row: row["model"])
def test_a_fresh_count_agrees(row: dict[str, object]) -> None:
    assert row == make_row(str(row["model"])), "run `python tools/update_model_table.py`"
