"""Atomic writes: whole or absent."""

from pathlib import Path

import pytest

from fixformer.errors import UserError
from fixformer.runtime.files import (
    new_directory,
    parse_json,
    remove_temporary_files,
    replace_symlink,
    replacing,
    write_json,
)


def write_half_and_fail(path: Path) -> None:
    path.write_text("half")
    (path.parent / "no such directory" / "other").write_text("half")


def test_a_write_that_fails_leaves_the_old_file_and_no_rubbish(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "result.json"
    write_json(file, {"a": 1})
    old = file.read_text()
    with pytest.raises(FileNotFoundError), replacing(file) as temporary:
        write_half_and_fail(temporary)
    assert file.read_text() == old
    assert list(file.parent.iterdir()) == [file]


def test_an_unwritable_place_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        write_json(tmp_path / "file" / "result.json", {})


def test_a_directory_is_whole_or_absent(tmp_path: Path) -> None:
    target = tmp_path / "checkpoint"
    with pytest.raises(FileNotFoundError), new_directory(target) as temporary:
        write_half_and_fail(temporary / "weights")
    assert list(tmp_path.iterdir()) == []
    with new_directory(target) as temporary:
        (temporary / "weights").write_text("whole")
    assert (target / "weights").read_text() == "whole"
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_is_moved_in_one_step_and_survives_moving_the_whole(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for name in ("one", "two"):
        (run / "checkpoints" / name).mkdir(parents=True)
        replace_symlink(run / "last", run / "checkpoints" / name)
        assert (run / "last").resolve().name == name
    run.rename(tmp_path / "moved")
    assert (tmp_path / "moved" / "last").is_dir()


def test_sweeping_removes_the_leftovers_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / ".step.7.tmp").mkdir()
    (tmp_path / ".step.7.tmp" / "half").write_text("")
    (tmp_path / ".log.7.tmp").write_text("")
    (tmp_path / "step").mkdir()
    remove_temporary_files(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step"]


@pytest.mark.parametrize("text", ["", "{", "[NaN]", "-Infinity", "[" * 100_000, "1" * 10_000])
def test_what_is_not_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


def test_a_number_that_json_lacks_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "x.json", {"accuracy": float("nan")})
    assert not list(tmp_path.iterdir())
