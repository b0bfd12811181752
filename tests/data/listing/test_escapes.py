"""Any name survives being written to a table or a list."""

import csv
import io
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fixformer.data.listing import ListingError, load_index
from fixformer.data.listing.escapes import ESCAPED_COLUMN, escape, unescape
from fixformer.data.listing.label_files import read_lines

# every name that a file system allows, and more: bytes that are not UTF-8 become surrogates
names = st.one_of(
    st.binary(min_size=1, max_size=40).map(os.fsdecode),
    st.text(st.sampled_from(" \\\n\r\t\x0b\x1c\x85\xa0\u2028\u3000=+-@'\"xXuU0aé\udce9\x1b$[]"), min_size=1),
)


@given(names)
@example("\x85\udc85")  # a control character and a byte of the same number
@example("\\x20")
@example("")
def test_there_and_back(name: str) -> None:
    text = escape(name)
    assert unescape(text) == name
    assert text.strip() == text
    assert text.splitlines() in ([text], [])
    assert not text.startswith(("=", "+", "-", "@", "\t", "\r"))
    text.encode()


@given(st.lists(names, unique=True, min_size=1))
def test_a_file_of_labels(tmp_path_factory: pytest.TempPathFactory, labels: list[str]) -> None:
    path = tmp_path_factory.mktemp("labels") / "labels.txt"
    path.write_text("".join(f"{escape(name)}\n" for name in labels), encoding="utf-8")
    assert read_lines(path, has_escapes=True) == labels


def test_common_names_stay_as_they_are() -> None:
    for name in ("left", "Jumping jack", "日本語", "a-b=c+d@e", "100 %", "it's", "👩‍🚀"):
        assert escape(name) == name


def table(path: Path, rows: list[list[str]]) -> Path:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8")
    return path


def test_a_foreign_table_keeps_its_backslashes(tmp_path: Path) -> None:
    for name in ("1.mp4", "2.mp4"):
        (tmp_path / name).touch()
    rows = [["path", "label", "split"], ["1.mp4", r"a\n", "train"], ["2.mp4", r"b\x20", "train"]]
    assert load_index(table(tmp_path / "x.csv", rows)).labels == [r"a\n", r"b\x20"]


def test_rows_say_whether_they_have_escapes(tmp_path: Path) -> None:
    for name in ("1.mp4", "2.mp4"):
        (tmp_path / name).touch()
    head = ["path", "label", "split", ESCAPED_COLUMN]
    rows = [head, ["1.mp4", r"a\x20", "train", "yes"], ["2.mp4", r"a\x20", "train", ""]]
    assert load_index(table(tmp_path / "x.csv", rows)).labels == ["a ", r"a\x20"]


@pytest.mark.parametrize("odd", [r"\ud800", r"a\udbffb"])
def test_an_escape_that_no_name_has_is_an_error(tmp_path: Path, odd: str) -> None:
    rows = [["path", "label", "split", ESCAPED_COLUMN], ["1.mp4", odd, "train", "yes"]]
    with pytest.raises(ListingError, match=r"x\.csv.*\\u"):
        load_index(table(tmp_path / "x.csv", rows))
