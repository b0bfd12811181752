"""What a run says before it begins."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixformer.config.recipes import get_recipe
from fixformer.data.audit import overlap
from fixformer.data.audit.overlap import overlap_notes, quick_digests
from fixformer.data.listing import Index, Sample, load_index
from fixformer.data.prepare.prepare import prepare
from fixformer.training.run_notes import run_notes
from tiny_run import Run
from videos import class_folders, encode, textured


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    return class_folders(tmp_path / "set", {"train": 2, "val": 1}, lambda seed: encode(textured(seed, 4)))


def notes(folder: Path) -> list[str]:
    return list(overlap_notes(load_index(folder)))


def test_a_sound_set_needs_no_note(folders: Path) -> None:
    assert notes(folders) == []


@pytest.mark.parametrize("copy", [shutil.copy, Path.hardlink_to, Path.symlink_to])
def test_a_video_in_both_splits(folders: Path, copy: Any) -> None:
    original, again = folders / "train/clap/0.mp4", folders / "val/clap/9.mp4"
    copy(original, again) if copy is shutil.copy else copy(again, original)
    (text,) = notes(folders)
    assert "in training and in test" in text
    assert f": 1, first {original} = {again}" in text


def test_a_video_under_two_labels(folders: Path) -> None:
    shutil.copy(folders / "train/clap/0.mp4", folders / "train/wave/9.mp4")
    (text,) = notes(folders)
    assert "more than one label: 1," in text
    assert "9.mp4" in text


def test_the_same_path_listed_twice_is_found_without_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "MOST_FILES", 1)
    samples = [Sample("a.mp4", 0, "train", "1"), Sample("a.mp4", 0, "val", "2"), Sample("b.mp4", 1, "val", "3")]
    (text,) = overlap_notes(Index(Path("set"), "csv", samples, ["a", "b"]))
    assert "a.mp4" in text


def test_parts_of_a_file_that_do_not_overlap_are_two_videos() -> None:
    samples = [Sample("a.mp4", 0, "train", "1", 0.0, 1.0), Sample("a.mp4", 1, "val", "2", 1.0, 2.0)]
    assert list(overlap_notes(Index(Path("set"), "csv", samples, ["a", "b"]))) == []


def test_files_that_agree_only_in_size_and_at_their_ends_are_not_the_same(tmp_path: Path) -> None:
    ends = b"x" * overlap.ENDS
    for name, middle in (("1", b"a"), ("2", b"b"), ("3", b"a"), ("empty", b""), ("empty too", b"")):
        (tmp_path / name).write_bytes(ends + middle + ends if middle else b"")
    found = quick_digests([str(path) for path in sorted(tmp_path.iterdir())] + [str(tmp_path / "absent")])
    assert sorted(Path(path).name for path in found) == ["1", "3"]


def test_videos_in_shards_are_compared_too(folders: Path, tmp_path: Path) -> None:
    shutil.copy(folders / "train/clap/0.mp4", folders / "val/clap/9.mp4")
    prepare(folders, tmp_path / "shards", shards=True, workers=1)
    (text,) = notes(tmp_path / "shards")
    assert "in training and in test" in text


def test_a_single_step(folders: Path) -> None:
    recipe = get_recipe("folder")
    index = load_index(folders)
    one = replace(recipe, epochs=1, batch_size=4, stages=())
    (text,) = run_notes(one, index)
    assert "single step" in text
    assert "batch_size=4" in text
    assert "epochs=1" in text
    assert list(run_notes(replace(one, batch_size=2), index)) == []


def test_a_run_says_so(run: Run, copied_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    videos = copied_data / "20bn-something-something-v2"
    shutil.copy(videos / "1.webm", videos / "36.webm")
    run(data=copied_data, epochs=1, batch_size=24, stages=(), warmup_epochs=0.5)
    said = capsys.readouterr().err
    assert "in training and in test" in said
    assert "lr 0: nothing is learnt" in said
