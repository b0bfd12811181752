"""A plan is written and read a group at a time, and numbers its rows."""

import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fixformer.errors import UserError
from fixformer.labelling import work_plan
from fixformer.labelling.decoding import path_of
from fixformer.labelling.row_sources import RowSource
from fixformer.labelling.work_plan import WorkPlan, write_plan


class CountedRow(dict[str, Any]):
    """A row whose life can be watched."""


def rows(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield CountedRow(id=f"v{number}", path=f"/v{number}.mp4", start=None, end=None, shop=number % 3)


def test_rows_are_numbered_and_picked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_plan, "GROUP", 4)
    write_plan(RowSource(rows(10), {"shop": pa.int32()}), tmp_path / "plan.parquet")
    plan = WorkPlan(tmp_path / "plan.parquet")
    assert len(plan) == 10
    assert [len(table) for table in plan.tables(np.ones(10, bool))] == [4, 4, 2]
    todo_N = np.zeros(10, bool)
    todo_N[[1, 9]] = True
    assert [(row["row"], row["id"], row["shop"]) for row in plan.rows(todo_N)] == [(1, "v1", 1), (9, "v9", 0)]


def test_memory_is_that_of_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_plan, "GROUP", 10)
    alive: weakref.WeakValueDictionary[int, CountedRow] = weakref.WeakValueDictionary()
    most = 0

    def watched() -> Iterator[dict[str, Any]]:
        nonlocal most
        for number, row in enumerate(rows(500)):
            alive[number] = row  # type: ignore[assignment]
            most = max(most, len(alive))
            yield row

    write_plan(RowSource(watched(), {"shop": pa.int32()}), tmp_path / "plan.parquet")
    assert 0 < most <= 20
    assert len(WorkPlan(tmp_path / "plan.parquet")) == 500


def test_a_name_that_is_not_unicode(tmp_path: Path) -> None:
    name = "/dir/caf\udce9\\.mp4"  # the byte e9, as Python reads it from a directory
    row = {"id": name, "path": name, "start": None, "end": None}
    write_plan(RowSource(iter([row])), tmp_path / "plan.parquet")
    [stored] = WorkPlan(tmp_path / "plan.parquet").rows(np.ones(1, bool))
    stored["path"].encode()
    assert path_of(stored) == name


def test_nothing_is_left_of_a_plan_that_fails(tmp_path: Path) -> None:
    def broken() -> Iterator[dict[str, Any]]:
        yield from rows(3)
        raise UserError("line 5 is wrong")

    with pytest.raises(UserError, match="line 5"):
        write_plan(RowSource(broken(), {"shop": pa.int32()}), tmp_path / "plan.parquet")
    with pytest.raises(UserError, match="no rows"):
        write_plan(RowSource(iter(())), tmp_path / "plan.parquet")
    assert list(tmp_path.iterdir()) == []
