"""Indexes: every published layout, missing files listed, doubtful sets refused with what was looked for."""

import csv
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixformer.data.listing import UNLABELLED, ListingError, Sample, load_index
from fixformer.data.listing.find_files import FileFinder
from fixformer.data.listing.load import detect_kind
from fixformer.data.listing.split import split_by_seed, split_of_name, stable_order
from fixformer.errors import UnknownName, UserError


def touch(root: Path, *names: str) -> Path:
    """Indexes never open videos, so empty files do."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def write_csv(path: Path, rows: list[dict[str, object]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


class TestFolders:
    def test_train_and_val(self, tmp_path: Path) -> None:
        touch(tmp_path, "train/b/1.mp4", "train/a/1.webm", "train/a/deep/2.MP4", "val/a/3.mp4", "val/b/4.avi")
        touch(tmp_path, "train/a/notes.txt", "train/a/.hidden.mp4")
        index = load_index(tmp_path)
        assert index.kind == "folders"
        assert index.labels == ["a", "b"]
        assert [(s.id, s.label, s.split) for s in index.samples] == [
            ("train/a/1.webm", 0, "train"),
            ("train/a/deep/2.MP4", 0, "train"),
            ("train/b/1.mp4", 1, "train"),
            ("val/a/3.mp4", 0, "val"),
            ("val/b/4.avi", 1, "val"),
        ]
        assert index.eval_split == "val"
        index.require_trainable()

    def test_one_folder_is_split_by_seed_within_every_class(self, tmp_path: Path) -> None:
        touch(tmp_path, *(f"{c}/{i}.mp4" for c in "abc" for i in range(10)))
        index = load_index(tmp_path, seed=1, val_fraction=0.3)
        assert set(index.counts("val").values()) == {3}
        assert set(index.counts("train").values()) == {7}
        assert index.samples == load_index(tmp_path, seed=1, val_fraction=0.3).samples
        others = [{s.id for s in load_index(tmp_path, seed=k, val_fraction=0.3).split("val")} for k in range(4)]
        assert len({frozenset(ids) for ids in others}) > 1

    def test_a_new_file_does_not_reshuffle_the_others(self, tmp_path: Path) -> None:
        names = [f"{i}.mp4" for i in range(50)]
        before = stable_order(names, 0)
        after = [name for name in stable_order([*names, "new.mp4"], 0) if name != "new.mp4"]
        assert before == after

    def test_only_a_train_folder_is_split_too(self, tmp_path: Path) -> None:
        touch(tmp_path, *(f"train/{c}/{i}.mp4" for c in "ab" for i in range(5)))
        assert load_index(tmp_path).counts("val") == {"a": 1, "b": 1}

    def test_groups_are_never_divided(self, tmp_path: Path) -> None:
        names = [f"{c}/{g}_{i}.mp4" for c in "ab" for g in range(5) for i in range(4)]
        touch(tmp_path, *names)
        write_csv(tmp_path / "groups.csv", [{"path": n, "group": n[2]} for n in names])
        index = load_index(tmp_path)
        groups = {split: {s.group for s in index.split(split)} for split in ("train", "val")}
        assert groups["train"] & groups["val"] == set()
        assert groups["train"] | groups["val"] == set("01234")
        assert len(groups["val"]) == 1

    def test_group_missing_for_a_video(self, tmp_path: Path) -> None:
        touch(tmp_path, "a/1.mp4", "a/2.mp4", "b/3.mp4")
        write_csv(tmp_path / "groups.csv", [{"path": "a/1.mp4", "group": 1}])
        with pytest.raises(ListingError, match=r"2 of 3 .*'a/2\.mp4'"):
            load_index(tmp_path)

    def test_folders_of_frames_are_videos(self, tmp_path: Path) -> None:
        touch(tmp_path, *(f"train/{c}/clip{i}/{f:03d}.jpg" for c in "ab" for i in range(2) for f in range(3)))
        touch(tmp_path, *(f"val/{c}/clip9/000.jpg" for c in "ab"))
        index = load_index(tmp_path)
        assert index.kind == "folders"
        assert [s.id for s in index.split("train")] == [
            "train/a/clip0",
            "train/a/clip1",
            "train/b/clip0",
            "train/b/clip1",
        ]

    def test_images(self, tmp_path: Path) -> None:
        touch(tmp_path, *(f"{split}/{c}/{i}.jpg" for split in ("train", "val") for c in "ab" for i in range(2)))
        index = load_index(tmp_path)
        assert index.kind == "images"
        assert len(index.samples) == 8

    def test_unlabelled_test_folder(self, tmp_path: Path) -> None:
        touch(tmp_path, "train/a/1.mp4", "train/b/1.mp4", "val/a/2.mp4", "val/b/2.mp4", "test/9.mp4")
        index = load_index(tmp_path)
        assert [s.label for s in index.split("test")] == [UNLABELLED]

    def test_label_names_may_fix_the_order(self, tmp_path: Path) -> None:
        touch(tmp_path, "a/1.mp4", "a/2.mp4", "b/1.mp4", "b/2.mp4")
        (tmp_path / "labels.txt").write_text("b\na\n")
        index = load_index(tmp_path)
        assert index.labels == ["b", "a"]
        assert {s.id[0]: s.label for s in index.samples} == {"a": 1, "b": 0}

    def test_the_users_labels_may_be_more_than_there_are(self, tmp_path: Path) -> None:
        """For evaluation; training needs videos of each."""
        touch(tmp_path, "set/train/a/1.mp4", "set/train/c/1.mp4", "set/val/a/1.mp4", "flat/a/1.mp4", "flat/a/2.mp4")
        (tmp_path / "names.txt").write_text("a\nb\nc\n")
        for folder in ("set", "flat"):
            index = load_index(tmp_path / folder, labels=tmp_path / "names.txt")
            assert index.labels == ["a", "b", "c"]
            assert index.eval_split == "val"
            with pytest.raises(ListingError, match="'b'"):
                index.require_trainable()

    def test_empty_class(self, tmp_path: Path) -> None:
        touch(tmp_path, "train/a/1.mp4", "train/b/1.mp4", "val/a/1.mp4", "val/b/1.mp4")
        (tmp_path / "train" / "c").mkdir()
        (tmp_path / "val" / "c").mkdir()
        with pytest.raises(ListingError, match=r"'c' .*train"):
            load_index(tmp_path)
        assert len(load_index(tmp_path, strict=False).problems) == 2

    def test_one_class(self, tmp_path: Path) -> None:
        touch(tmp_path, "a/1.mp4", "a/2.mp4")
        with pytest.raises(ListingError, match=r"one class \('a'\)"):
            load_index(tmp_path)

    def test_labels_that_differ_between_splits(self, tmp_path: Path) -> None:
        touch(tmp_path, "train/a/1.mp4", "train/b/1.mp4", "val/a/1.mp4", "val/c/1.mp4")
        with pytest.raises(ListingError, match=r"'c' of val .*train"):
            load_index(tmp_path)
        doubtful = load_index(tmp_path, strict=False)
        assert any("'b' of train" in problem and "val" in problem for problem in doubtful.problems)
        with pytest.raises(ListingError):
            doubtful.require_trainable()

    def test_two_names_for_one_split(self, tmp_path: Path) -> None:
        touch(tmp_path, "val/a/1.mp4", "validation/a/1.mp4")
        with pytest.raises(ListingError, match="'val' and 'validation'"):
            load_index(tmp_path)


class TestCsv:
    def test_split_column_and_parts_of_files(self, tmp_path: Path) -> None:
        touch(tmp_path, "v/1.mp4", "v/2.mp4")
        rows = [
            {"path": "v/1.mp4", "label": "run", "split": "train", "start": "", "end": 2.5},
            {"path": "v/1.mp4", "label": "jump", "split": "training", "start": 2.5, "end": ""},
            {"path": "v/2.mp4", "label": "jump", "split": "validation", "start": "", "end": ""},
            {"path": "v/3.mp4", "label": "run", "split": "val", "start": "", "end": ""},
        ]
        index = load_index(write_csv(tmp_path / "set.csv", rows))
        assert index.labels == ["jump", "run"]
        assert [(s.label, s.split, s.start, s.end) for s in index.samples] == [
            (1, "train", None, 2.5),
            (0, "train", 2.5, None),
            (0, "val", None, None),
        ]
        assert len({s.id for s in index.samples}) == 3
        assert [s.path for s in index.missing] == ["v/3.mp4"]

    def test_numbers_with_names_keep_the_order_of_numbers(self, tmp_path: Path) -> None:
        touch(tmp_path, *(f"{i}.mp4" for i in range(4)))
        rows = [{"file": f"{i}.mp4", "label": i % 2, "class": ("zebra", "ape")[i % 2]} for i in range(4)]
        assert load_index(write_csv(tmp_path / "x.csv", rows)).labels == ["zebra", "ape"]

    def test_one_file_per_split(self, tmp_path: Path) -> None:
        touch(tmp_path, "1.mp4", "2.mp4", "3.mp4")
        write_csv(tmp_path / "train.csv", [{"video": "1.mp4", "label": "a"}, {"video": "2.mp4", "label": "b"}])
        write_csv(tmp_path / "val.csv", [{"video": "3.mp4", "label": "a"}])
        index = load_index(tmp_path)
        assert index.kind == "csv"
        assert Counter(s.split for s in index.samples) == {"train": 2, "val": 1}

    def test_split_by_group_without_a_split_column(self, tmp_path: Path) -> None:
        rows = [{"path": f"{p}{i}.mp4", "label": "ab"[i % 2], "subject": p} for p in "wxyz" for i in range(4)]
        touch(tmp_path, *(str(row["path"]) for row in rows))
        index = load_index(write_csv(tmp_path / "x.csv", rows))
        assert len({s.group for s in index.split("val")}) == 1

    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            ([{"path": "1.mp4", "label": "a", "split": "elsewhere"}], "split 'elsewhere'"),
            ([{"path": "1.mp4", "label": "a", "start": "soon", "split": "train"}], "start 'soon'"),
            ([{"path": "1.mp4", "label": "a", "end": "nan", "split": "train"}], "end 'nan'"),
            ([{"path": "1.mp4", "label": "a", "split": "train"}], "one class"),
            (
                [
                    {"path": "1.mp4", "label": "a", "split": "train"},
                    {"path": "1.mp4", "label": "b", "split": "val"},
                ],
                "'b' of val",
            ),
        ],
    )
    def test_bad_rows(self, tmp_path: Path, rows: list[dict[str, object]], message: str) -> None:
        touch(tmp_path, "1.mp4")
        with pytest.raises(ListingError, match=message):
            load_index(write_csv(tmp_path / "x.csv", rows))

    def test_a_short_row_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "x.csv").write_text("path,label,split\n1.mp4,a\n")
        with pytest.raises(ListingError, match="2 of 3 columns"):
            load_index(tmp_path)

    def test_columns_are_named_when_absent(self, tmp_path: Path) -> None:
        path = write_csv(tmp_path / "x.csv", [{"where": "1.mp4", "what": "a"}])
        with pytest.raises(ListingError, match="path column"):
            load_index(path, kind="csv")


@pytest.mark.slow
class TestPublished:
    def test_ssv2_annotations_parse_completely(self, shared: Path) -> None:
        index = load_index(shared / "data/annotations/ssv2", require_files=False)
        assert index.kind == "ssv2"
        assert len(index.labels) == 174
        assert len(index.split("val")) == 24777
        assert all(0 <= s.label < 174 for s in index.split("val"))
        assert len(index.split("test")) == 27157
        assert {s.label for s in index.split("test")} == {UNLABELLED}
        assert index.labels[0] == "Approaching something with your camera"

    def test_ssv2_lists_parse_completely_and_agree_with_the_json(self, shared: Path) -> None:
        lists = load_index(shared / "data/annotations/ssv2_uniformer_lists", require_files=False)
        assert lists.kind == "list"
        assert Counter(s.split for s in lists.samples) == {"train": 168913, "val": 24777, "test": 27131}
        published = load_index(shared / "data/annotations/ssv2", require_files=False)
        assert lists.labels == published.labels
        assert {s.id: s.label for s in lists.split("val")} == {s.id: s.label for s in published.split("val")}
        assert {s.label for s in lists.split("train")} == set(range(174))
        assert lists.samples[-1].frames is not None

    @pytest.mark.parametrize(("name", "val", "test"), [("400", 19906, 38685), ("600", 30000, 72924)])
    def test_kinetics_annotations_parse_completely(self, shared: Path, name: str, val: int, test: int) -> None:
        folder = shared / "data/annotations"
        labels = folder / f"mmaction2_label_maps/kinetics_label_map_k{name}.txt"
        index = load_index(folder / f"kinetics/kinetics-{name}_val.csv", require_files=False)
        assert len(index.split("val")) == val
        assert index.labels == labels.read_text().split("\n")[: int(name)]
        unlabelled = load_index(folder / f"kinetics/kinetics-{name}_test.csv", require_files=False, labels=labels)
        assert len(unlabelled.split("test")) == test
        assert {s.label for s in unlabelled.samples} == {UNLABELLED}

    def test_lsa64_by_signer(self, shared: Path) -> None:
        index = load_index(shared / "data/lsa64")
        assert index.kind == "lsa64"
        assert (len(index.samples), len(index.labels), len(index.missing)) == (3200, 64, 0)
        assert index.labels[:3] == ["Opaque", "Red", "Green"]
        assert {s.group for s in index.split("train")} == {str(k) for k in range(1, 9)}
        assert {s.group for s in index.split("test")} == {"9", "10"}
        assert index.eval_split == "test"
        index.require_trainable()
        one = load_index(shared / "data/lsa64", recording_set=1)
        assert (len(one.samples), len(one.labels)) == (1150, 23)
        assert set(one.counts("test").values()) == {10}
        with pytest.raises(ListingError, match="recording set 5 "):
            load_index(shared / "data/lsa64", recording_set=5)


def ssv2(root: Path, videos: list[str]) -> Path:
    touch(root, *(f"videos/{name}" for name in videos))
    (root / "something-something-v2-labels.json").write_text(
        json.dumps({"Holding something": "1", "Closing something": "0"})
    )
    rows = [{"id": str(i), "template": "Holding [something]", "label": "x", "placeholders": ["y"]} for i in (7, 8)]
    (root / "something-something-v2-train.json").write_text(json.dumps(rows))
    return root


def test_ssv2_files_are_found_and_missing_ones_listed(tmp_path: Path) -> None:
    index = load_index(ssv2(tmp_path, ["7.webm"]))
    assert [(s.id, s.label) for s in index.samples] == [("7", 1)]
    assert [s.id for s in index.missing_in("train")] == ["8"]
    assert index.labels == ["Closing something", "Holding something"]
    with pytest.raises(ListingError, match=r"1 of 2 classes.*'Closing something'"):
        index.require_trainable()


def test_ssv2_labels_may_be_given_in_another_order(tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("Holding something\nClosing something\n")
    index = load_index(ssv2(tmp_path / "set", ["7.webm"]), labels=names)
    assert [index.labels[s.label] for s in index.samples] == ["Holding something"]
    assert index.labels[0] == "Holding something"


def test_ssv2_without_any_file(tmp_path: Path) -> None:
    with pytest.raises(ListingError, match=r"2 videos.*'7\.webm'.*videos="):
        load_index(ssv2(tmp_path, []))


def test_ssv2_template_without_label(tmp_path: Path) -> None:
    ssv2(tmp_path, ["7.webm"])
    path = tmp_path / "something-something-v2-train.json"
    path.write_text(path.read_text().replace("Holding", "Juggling"))
    with pytest.raises(ListingError, match=r"'Juggling \[something\]' of video 7"):
        load_index(tmp_path)
    path.write_text("[{")
    with pytest.raises(ListingError, match=r"train\.json.*JSON"):
        load_index(tmp_path)


def test_kinetics_files_trimmed_and_whole(tmp_path: Path) -> None:
    rows = [
        {"label": "b c", "youtube_id": "AA_-x", "time_start": 3, "time_end": 13, "split": "train"},
        {"label": "a", "youtube_id": "BB", "time_start": 0, "time_end": 10, "split": "train"},
        {"label": "a", "youtube_id": "CC", "time_start": 5, "time_end": 15, "split": "train"},
    ]
    write_csv(tmp_path / "train.csv", rows)
    touch(tmp_path, "train/b_c/AA_-x_000003_000013.mp4", "other/AA_-x_000003_000013.mp4", "BB.mkv")
    index = load_index(tmp_path)
    assert index.kind == "kinetics"
    assert index.labels == ["a", "b c"]
    trimmed, whole = index.samples
    assert trimmed.path.endswith("train/b_c/AA_-x_000003_000013.mp4")
    assert (trimmed.start, trimmed.end) == (None, None)
    assert whole.path.endswith("BB.mkv")
    assert (whole.start, whole.end) == (0, 10)
    assert [s.id for s in index.missing] == ["CC_000005_000015"]


def test_two_sets_in_one_folder_are_not_mixed(tmp_path: Path) -> None:
    for name in ("400", "600"):
        row = {"label": "a", "youtube_id": "x", "time_start": 3, "time_end": 13, "split": "val"}
        write_csv(tmp_path / f"kinetics-{name}_val.csv", [row])
    with pytest.raises(ListingError, match=r"kinetics-400_val\.csv.*kinetics-600_val\.csv.*val split"):
        load_index(tmp_path, require_files=False)


def test_list_with_spaces_two_columns_and_stems(tmp_path: Path) -> None:
    touch(tmp_path, "my clips/one.mp4", "two.mp4", "three.webm")
    (tmp_path / "train_list.txt").write_text("my clips/one.mp4 30 0\ntwo.mp4 1\n\nthree 12 1\n")
    index = load_index(tmp_path)
    assert index.kind == "list"
    assert [(s.frames, s.label) for s in index.samples] == [(30, 0), (None, 1), (12, 1)]
    assert index.samples[2].path.endswith("three.webm")
    assert index.labels == ["0", "1"]
    (tmp_path / "category.txt").write_text("only one\n")
    with pytest.raises(ListingError, match=r"label 1 .*category\.txt"):
        load_index(tmp_path)
    (tmp_path / "train_list.txt").write_text("two.mp4 1\nno label here\n")
    with pytest.raises(ListingError, match="line 2"):
        load_index(tmp_path, kind="list")


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=60), st.integers(0, 99), st.floats(0.05, 0.9), st.booleans())
def test_a_split_loses_nothing_and_divides_no_group(labels: list[int], seed: int, share: float, grouped: bool) -> None:
    samples = [
        Sample(f"{i}", label, "", f"{i}", group=f"g{i % 4}" if grouped else None) for i, label in enumerate(labels)
    ]
    parts = split_by_seed(samples, seed, share, {}, [])
    assert [replace(s, split="") for s in parts] == samples
    by_split = {name: [s for s in parts if s.split == name] for name in ("train", "val")}
    assert sum(map(len, by_split.values())) == len(samples)
    assert by_split["train"]
    if grouped:
        assert by_split["val"]
        assert {s.group for s in by_split["train"]}.isdisjoint(s.group for s in by_split["val"])
    else:
        assert {s.label for s in by_split["train"]} == set(labels)


def test_nothing_found_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ListingError, match=r"looked for \*labels.json.*youtube_id.*train/CLASS"):
        load_index(tmp_path)
    with pytest.raises(ListingError, match="absent"):
        load_index(tmp_path / "absent")
    touch(tmp_path, "a/readme.txt")
    with pytest.raises(ListingError, match=r"CLASS/\*.*\.mp4"):
        load_index(tmp_path, kind="folders")


def test_bad_options(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.mp4", "b/1.mp4")
    with pytest.raises(UnknownName, match="folders"):
        load_index(tmp_path, kind="folder")
    with pytest.raises(UserError, match="recording_set=1"):
        load_index(tmp_path, recording_set=1)
    with pytest.raises(UserError, match="val_fraction"):
        load_index(tmp_path, val_fraction=1.5)
    with pytest.raises(ListingError, match=r"absent\.txt"):
        load_index(tmp_path, labels=tmp_path / "absent.txt")


def test_kind_may_be_overridden(shared: Path) -> None:
    root = shared / "data/lsa64"
    assert detect_kind(root) == "lsa64"
    assert load_index(root, kind="folders").labels[0] == "001_Opaque"


def test_split_names() -> None:
    assert split_of_name("kinetics-400_val") == "val"
    assert split_of_name("somesomev2_rgb_train_split") == "train"
    assert split_of_name("trainer") is None
    assert split_of_name("train_test") is None


def test_finder_prefers_the_named_folder(tmp_path: Path) -> None:
    finder = FileFinder(touch(tmp_path, "a/x.mp4", "b/x.mp4"))
    found = finder.by_stem("x", ("b",))
    assert found is not None
    assert found.endswith("b/x.mp4")
    assert finder.by_stem("y") is None
    assert finder.by_path("a/x") == str(tmp_path / "a/x.mp4")
    assert finder.by_path("x") is None
