"""Atomic writes: whole or absent."""

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

from fixformer.errors import UserError
from fixformer.runtime.files import (
    MARK,
    appending,
    cache_directory,
    check_writable,
    claim_output,
    is_output,
    make_output,
    new_directory,
    parse_json,
    read_records,
    remove_temporary_files,
    replace_symlink,
    replacing,
    require_outside_runs,
    shortened,
    write_json,
    write_text,
    writer_of,
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


def full_disk(*_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(UserError, match=rf"{tmp_path}/result\.json: No space left on device; free some space"):
        write_json(tmp_path / "result.json", {})
    assert list(tmp_path.iterdir()) == []


def test_names_as_long_as_they_can_be(tmp_path: Path) -> None:
    for name in ("n" * 255, "é" * 127, "👩" * 63):
        write_text(tmp_path / name, "text")
        assert (tmp_path / name).read_text() == "text"
        assert len(os.fsencode(shortened(f"check-{name}", room=4))) <= 251
    assert shortened("short", room=4) == "short"
    assert shortened(os.fsdecode(b"\xe9" * 300), room=4) == ""


class TestCheckWritable:
    @pytest.mark.parametrize("name", ["n" * 256, "file", "file/below", "loop", "loop/below", "/proc/none/such"])
    def test_what_cannot_be_made(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "file").write_text("")
        (tmp_path / "loop").symlink_to("loop")
        with pytest.raises(UserError, match="cannot be written"):
            check_writable(tmp_path / name)

    def test_what_can_be_is_not_made_yet(self, tmp_path: Path) -> None:
        check_writable(tmp_path / "a" / "b")
        assert list(tmp_path.iterdir()) == []


class TestOutputs:
    def test_the_directory_and_those_made_for_it_are_marked(self, tmp_path: Path) -> None:
        make_output(tmp_path / "runs" / "one", "train")
        assert is_output(tmp_path / "runs")
        assert writer_of(tmp_path / "runs" / "one") == "train"
        assert not is_output(tmp_path / "nothing")
        assert writer_of(tmp_path) is None

    def test_a_folder_of_outputs_only_is_one(self, tmp_path: Path) -> None:
        (tmp_path / "mine").mkdir()
        make_output(tmp_path / "mine" / "one", "train")
        assert is_output(tmp_path / "mine")
        (tmp_path / "mine" / "video.mp4").write_text("")
        assert not is_output(tmp_path / "mine")

    def test_a_directory_with_content_is_not_claimed(self, tmp_path: Path) -> None:
        (tmp_path / "video.mp4").write_text("")
        make_output(tmp_path, "check")
        assert not is_output(tmp_path)

    @pytest.mark.parametrize("place", [".", "left", "left/deep"])
    def test_a_place_among_the_data_that_is_not_ours_is_refused(self, tmp_path: Path, place: str) -> None:
        write_text(tmp_path / "left" / "deep" / "mine.txt", "")
        with pytest.raises(UserError, match="would be read as data"):
            claim_output(tmp_path / place, tmp_path, "check")
        assert not list(tmp_path.rglob(MARK))

    def test_new_marked_and_other_places_are_not(self, tmp_path: Path) -> None:
        data = tmp_path / "data"
        write_text(data / "left" / "video.mp4", "")
        make_output(data / "runs" / "one", "train")
        write_text(data / "runs" / "one" / "evaluation" / "mine.txt", "")
        for place in ("new", "left/new", "runs", "runs/one", "runs/one/evaluation", "..", "../data-2"):
            claim_output(data / place, data, "check")
        assert not (data / "new").exists()

    def test_an_empty_place_among_the_data_is_not_listed(self, tmp_path: Path) -> None:
        (tmp_path / "results").mkdir()
        claim_output(tmp_path / "results", tmp_path, "train")
        assert is_output(tmp_path / "results")
        require_outside_runs(tmp_path / "results" / "one")

    def test_a_place_in_a_run(self, tmp_path: Path) -> None:
        make_output(tmp_path / "runs" / "one", "train")
        for place in ("runs/one", "runs/two"):
            require_outside_runs(tmp_path / place)
        with pytest.raises(UserError, match=r"lies in the run .*/runs/one;"):
            require_outside_runs(tmp_path / "runs" / "one" / "checkpoints" / "new")

    def test_an_empty_one_is(self, tmp_path: Path) -> None:
        (tmp_path / ".lock").write_text("")
        make_output(tmp_path, "check")
        assert is_output(tmp_path)

    def test_a_mark_that_is_no_file_is_not_read(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / MARK)
        assert writer_of(tmp_path) is None
        assert is_output(tmp_path)


@dataclass(frozen=True)
class Row:
    name: str
    size: int = 0


class TestRecords:
    def test_rows_survive_a_line_that_was_cut_off(self, tmp_path: Path) -> None:
        path = tmp_path / "deep" / "rows.jsonl"
        with appending(path) as add:
            add(Row("caf\udce9", 1))
            add(Row("b"))
        with path.open("a") as file:
            file.write('{"name": "c')
        with appending(path) as add:
            add(Row("d", 4))
        assert list(read_records(path, Row)) == [Row("caf\udce9", 1), Row("b"), Row("d", 4)]

    def test_what_is_no_row_is_left_out(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.jsonl"
        lines = [b"", b"[1]", b"null", b'{"name": 5}', b'{"name": "x", "more": 1}', b"\xff\xfe", b"[" * 100_000]
        path.write_bytes(b"\n".join([*lines, b'{"name": "good"}']))
        assert list(read_records(path, Row)) == [Row("good")]
        assert list(read_records(tmp_path / "absent", Row)) == []

    def test_a_full_disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("fixformer.runtime.files.open_file", lambda *_, **__: open("/dev/full", "a"))  # noqa: SIM115
        with pytest.raises(UserError, match="No space left on device"), appending(tmp_path / "rows") as add:
            add(Row("a"))


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIXFORMER_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def no_home() -> NoReturn:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(UserError):
        check_writable(cache_directory())


@pytest.mark.parametrize("text", ["", "{", "[NaN]", "-Infinity", "[" * 100_000, "1" * 10_000])
def test_what_is_not_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


def test_a_number_that_json_lacks_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "x.json", {"accuracy": float("nan")})
    assert not list(tmp_path.iterdir())
