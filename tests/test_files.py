"""Atomic writes: whole or absent."""

from pathlib import Path

import pytest

from fixformer.errors import UserError
from fixformer.files import replacing, write_json


def test_a_write_that_fails_leaves_the_old_file_and_no_rubbish(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "result.json"
    write_json(file, {"a": 1})
    old = file.read_text()
    with pytest.raises(RuntimeError), replacing(file) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert file.read_text() == old
    assert list(file.parent.iterdir()) == [file]


def test_an_unwritable_place_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        write_json(tmp_path / "file" / "result.json", {})
