"""Directories that this program wrote are no data, wherever they lie among the data."""

import os
from pathlib import Path

import pytest
from test_index import ssv2, touch, write_csv

from fixformer.data.listing import Index, ListingError, load_index
from fixformer.runtime.files import MARK, make_output, mark_output


def folders(root: Path) -> Path:
    return touch(root, *(f"{name}/{number}.mp4" for name in ("left", "right") for number in range(4)))


def split_folders(root: Path) -> Path:
    return touch(root, *(f"{split}/{name}/1.mp4" for split in ("train", "val") for name in ("left", "right")))


def images(root: Path) -> Path:
    return touch(root, *(f"{name}/{number}.jpg" for name in ("left", "right") for number in range(4)))


def frames(root: Path) -> Path:
    return touch(root, *(f"{name}/{number}/0.jpg" for name in ("left", "right") for number in range(4)))


def table(root: Path) -> Path:
    touch(root, "1.mp4", "2.mp4")
    write_csv(root / "all.csv", [{"path": f"{i}", "label": i, "split": "train"} for i in (1, 2)])
    return root


def lists(root: Path) -> Path:
    (touch(root, "a/1.mp4", "a/2.mp4") / "train.txt").write_text("1.mp4 9 0\n2.mp4 9 1\n")
    return root


def published(root: Path) -> Path:
    return ssv2(root, ["7.webm"])


def add_outputs(root: Path) -> None:
    """What check, train, eval and prepare leave behind, with files that look like data."""
    for place, writer in (("check-set", "check"), ("runs/one", "train"), ("small", "prepare"), ("val", "eval")):
        if not (root / place).exists():
            make_output(root / place, writer)
            touch(root / place, "videos/left/1.mp4", "videos/1.webm", "7.webm", "0.png", "deep/er/2.mp4", "9.mp4")
    make_output(root / "left" / "check-left", "check")
    touch(root / "left" / "check-left", "histograms.png", "1.mp4")


def content(index: Index) -> object:
    return index.kind, index.labels, index.samples, index.missing, index.problems, index.ignored


@pytest.mark.parametrize("make", [folders, split_folders, images, frames, table, lists, published])
def test_the_set_is_the_same_before_and_after(make: object, tmp_path: Path) -> None:
    root = make(tmp_path / "set")  # type: ignore[operator]
    before = load_index(root, strict=False)
    add_outputs(root)
    after = load_index(root, strict=False)
    assert content(after) == content(before)
    assert {str(root / name) for name in ("check-set", "runs", "small")} <= set(after.skipped)


def test_a_prepared_set_is_a_data_set(tmp_path: Path) -> None:
    mark_output(table(tmp_path / "small"), "prepare")
    assert len(load_index(tmp_path / "small").samples) == 2


@pytest.mark.parametrize("writer", ["check", "train", "eval", "cache"])
def test_any_other_output_is_not(tmp_path: Path, writer: str) -> None:
    mark_output(folders(tmp_path / "out"), writer)
    with pytest.raises(ListingError, match=rf"{tmp_path}/out .*`fixformer {writer}`"):
        load_index(tmp_path / "out")
    (tmp_path / "out" / MARK).unlink()
    assert load_index(tmp_path / "out").labels == ["left", "right"]


class TestLinks:
    def test_links_in_a_circle_are_no_folders(self, tmp_path: Path) -> None:
        root = folders(tmp_path)
        for one, other in (("a", "b"), ("left/c", "left/d"), ("left/x.mp4", "left/y.mp4")):
            (root / one).symlink_to((root / other).name)
            (root / other).symlink_to((root / one).name)
        index = load_index(root)
        assert index.labels == ["left", "right"]
        assert {Path(s.path).name for s in index.samples} >= {"x.mp4", "y.mp4"}  # listed, so that a check names them
        assert {Path(path).name for path in index.ignored} == {"c", "d"}

    def test_a_folder_that_contains_the_link_is_no_class(self, tmp_path: Path) -> None:
        root = folders(tmp_path / "set")
        (root / "here").symlink_to(".")
        (root / "above").symlink_to("..")
        (root / "left/up").symlink_to("..")
        assert load_index(root).labels == ["left", "right"]
        assert len(load_index(root).samples) == 8

    def test_a_linked_class_is_one(self, tmp_path: Path) -> None:
        root = folders(tmp_path / "set")
        (root / "left").rename(tmp_path / "elsewhere")
        (root / "left").symlink_to(tmp_path / "elsewhere")
        assert load_index(root).labels == ["left", "right"]

    def test_a_circle_is_no_data_set(self, tmp_path: Path) -> None:
        (tmp_path / "a").symlink_to("a")
        for path in (tmp_path / "a", tmp_path / ("n" * 5000)):
            with pytest.raises(ListingError, match="no such file"):
                load_index(path)

    def test_links_to_and_fro_between_many_folders_end(self, tmp_path: Path) -> None:
        root = folders(tmp_path)
        places = [root / "left" / f"{number:02d}" for number in range(20)]
        for place in places:
            touch(place, "1.mp4")
        for place in places:
            for other in places:
                (place / f"to-{other.name}").symlink_to(other)
        found = load_index(root).samples
        assert {path.as_posix() for path in map(Path, (s.path for s in found))} >= {f"{p}/1.mp4" for p in places}

    def test_folders_nested_deeper_than_functions(self, tmp_path: Path) -> None:
        root = folders(tmp_path / "s")
        places = [f"{root}/left" + "/d" * depth for depth in range(1, 1200)]
        for place in places:
            os.mkdir(place)
        file = Path(places[-1], "1.mp4")
        file.touch()
        try:
            assert len(load_index(root).samples) == 9
        finally:  # the clean-up of pytest calls a function for every level
            file.unlink()
            for place in reversed(places):
                os.rmdir(place)
