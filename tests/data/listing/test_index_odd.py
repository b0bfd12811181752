"""Odd data sets: one sentence for the user, and never another video, a lost one or a traceback."""

import json
import os
from pathlib import Path

import pytest
from test_index import ssv2, touch, write_csv

from fixformer.data.listing import UNLABELLED, Index, ListingError, Sample, load_index
from fixformer.data.loading.table import SampleTable
from fixformer.runtime.files import write_text
from fixformer.runtime.seeds import generator

NOT_TEXT = os.fsdecode(b"caf\xe9.mp4")


class TestLists:
    def test_a_missing_video_is_not_replaced_by_one_of_another_folder(self, tmp_path: Path) -> None:
        touch(tmp_path, "dog/v1.mp4", "cat/v2.mp4")
        (tmp_path / "train.txt").write_text("dog/v1.mp4 9 0\ncat/v1.mp4 9 1\ncat/v2.mp4 9 1\n")
        index = load_index(tmp_path)
        assert [s.id for s in index.samples] == ["dog/v1.mp4", "cat/v2.mp4"]
        assert [s.id for s in index.missing] == ["cat/v1.mp4"]

    def test_a_bare_name_is_found_anywhere_if_there_is_one(self, tmp_path: Path) -> None:
        touch(tmp_path, "a/one.webm", "a/two.mp4", "b/two.mp4", "b/clip.mp4")
        (tmp_path / "train.txt").write_text("one.mp4 9 0\ntwo 9 1\nclip.01 9 1\n")
        index = load_index(tmp_path)
        assert [s.path for s in index.samples] == [str(tmp_path / "a/one.webm")]
        assert [s.id for s in index.missing] == ["two", "clip.01"]

    def test_empty(self, tmp_path: Path) -> None:
        with pytest.raises(ListingError, match="nothing is listed"):
            load_index(touch(tmp_path, "train.txt") / "train.txt", kind="list")

    @pytest.mark.parametrize("digits", [7, 17, 5000])
    def test_absurd_labels(self, tmp_path: Path, digits: int) -> None:
        (touch(tmp_path, "1.mp4") / "train.txt").write_text(f"1.mp4 9 {'9' * digits}\n")
        with pytest.raises(ListingError, match="label"):
            load_index(tmp_path / "train.txt", kind="list")


class TestGroups:
    @pytest.mark.parametrize("begin", ["path,group\n./", "\ufeffpath,group\n", "path,group\n{root}/"])
    def test_paths_in_other_words(self, tmp_path: Path, begin: str) -> None:
        names = [f"{c}/v{i}.mp4" for c in "ab" for i in range(4)]
        touch(tmp_path, *names)
        first, prefix = begin.format(root=tmp_path).split("\n")
        rows = [first, *(f"{prefix}{name},g{name[3]}" for name in names)]
        (tmp_path / "groups.csv").write_text("\n".join(rows), encoding="utf-8")
        assert {s.group for s in load_index(tmp_path).samples} == {"g0", "g1", "g2", "g3"}

    @pytest.mark.parametrize("row", ["elsewhere/v.mp4,g", "a/1.mp4,"])
    def test_none_for_any_video(self, tmp_path: Path, row: str) -> None:
        touch(tmp_path, "a/1.mp4", "a/2.mp4", "b/1.mp4", "b/2.mp4")
        (tmp_path / "groups.csv").write_text(f"path,group\n{row}\n")
        with pytest.raises(ListingError, match=r"groups\.csv.*'a/1\.mp4'"):
            load_index(tmp_path)


class TestFolders:
    def test_linked_folders_of_frames(self, tmp_path: Path) -> None:
        touch(tmp_path, "store/x/0.jpg", *(f"set/{split}/{c}/f/0.jpg" for split in ("train", "val") for c in "ab"))
        (tmp_path / "set/train/a/linked").symlink_to(tmp_path / "store/x")
        assert "train/a/linked" in [s.id for s in load_index(tmp_path / "set").samples]

    def test_a_link_to_a_folder_above_is_not_followed(self, tmp_path: Path) -> None:
        touch(tmp_path, *(f"{split}/{c}/1.mp4" for split in ("train", "val") for c in "ab"))
        (tmp_path / "train/a/loop").symlink_to(tmp_path / "train/a")
        (tmp_path / "train/a/up").symlink_to(tmp_path / "train")
        assert [s.id for s in load_index(tmp_path).split("train")] == ["train/a/1.mp4", "train/b/1.mp4"]

    @pytest.mark.parametrize("loose", ["train/loose.mp4", "loose.mp4", "test/loose.mp4"])
    def test_videos_outside_the_classes_are_a_problem(self, tmp_path: Path, loose: str) -> None:
        touch(tmp_path, *(f"{split}/{c}/1.mp4" for split in ("train", "val", "test") for c in "ab"), loose)
        with pytest.raises(ListingError, match=r"1, first 'loose\.mp4'"):
            load_index(tmp_path)

    def test_what_is_no_video_by_its_name_is_counted(self, tmp_path: Path) -> None:
        touch(tmp_path, *(f"{c}/{i}.asf" for c in "ab" for i in range(2)), "a/notes.txt", "b/x/9.doc", "b/x/0.jpg")
        index = load_index(tmp_path)
        assert len(index.samples) == 5
        assert [Path(path).name for path in index.ignored] == ["notes.txt", "9.doc"]

    def test_a_file(self, tmp_path: Path) -> None:
        with pytest.raises(ListingError, match="is a file"):
            load_index(touch(tmp_path, "x.txt") / "x.txt", kind="folders")


class TestTables:
    def test_rows_without_label_or_path(self, tmp_path: Path) -> None:
        touch(tmp_path, "1.mp4", "2.mp4")
        (tmp_path / "x.csv").write_text("path,label,split\n1.mp4,a,train\n2.mp4,b,train\n,b,train\n,,\n2.mp4,,train\n")
        with pytest.raises(ListingError, match=r"1 training rows.*'2\.mp4'"):
            load_index(tmp_path)
        index = load_index(tmp_path, strict=False)
        assert [s.path for s in index.missing] == [""]
        assert str(tmp_path) not in [s.path for s in index.samples]

    def test_an_unlabelled_training_video_is_not_trained_on(self) -> None:
        samples = [Sample("1", 0, "train", "1"), Sample("2", UNLABELLED, "train", "2")]
        with pytest.raises(ListingError, match=r"1 training videos.*'2'"):
            Index(Path("set"), "kinetics", samples, ["a"]).require_trainable()

    def test_label_names_beside_the_table(self, tmp_path: Path) -> None:
        touch(tmp_path, "1.mp4", "2.mp4")
        (tmp_path / "labels.txt").write_text("zebra\nmule\nape\n")
        rows = [{"path": f"{i}.mp4", "label": name, "split": "train"} for i, name in ((1, "ape"), (2, "zebra"))]
        index = load_index(write_csv(tmp_path / "x.csv", rows))
        assert index.labels == ["zebra", "mule", "ape"]
        assert [s.label for s in index.samples] == [2, 0]
        write_csv(tmp_path / "x.csv", [{**row, "label": i} for i, row in enumerate(rows)])
        assert [s.label for s in load_index(tmp_path).samples] == [0, 1]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"path,label\n", r"x\.csv has .*no rows"),
            (b"path,label\n1.mp4,\n", "no row .*label"),
            (b"path,label\n1.mp4,caf\xe9\n", "UTF-8.*0xe9 at 20"),
            (b"path,label\n" + b"1" * 200_000 + b",a\n", "field larger"),
        ],
    )
    def test_odd_tables(self, tmp_path: Path, content: bytes, message: str) -> None:
        (touch(tmp_path, "1.mp4") / "x.csv").write_bytes(content)
        with pytest.raises(ListingError, match=message):
            load_index(tmp_path)

    def test_lsa64_frames(self, tmp_path: Path) -> None:
        row = {"path": "1.mp4", "label": 0, "class": "a", "subject": 1, "recording_set": 1, "frames": "many"}
        write_csv(tmp_path / "index.csv", [row])
        with pytest.raises(ListingError, match=r"frames 'many' of '1.mp4'"):
            load_index(tmp_path)

    def test_kinetics_without_ids(self, tmp_path: Path) -> None:
        path = write_csv(tmp_path / "train.csv", [{"label": "a", "time_start": 0, "time_end": 1}])
        with pytest.raises(ListingError, match="youtube_id"):
            load_index(path, kind="kinetics")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("labels", b'{"a": "x"}', "'a'.*'x'"),
        ("train", b"[5]", "id: 5"),
        ("train", b'[{"id": 1, "template": 5}]', "template 5 of video 1"),
        ("train", b'[{"id": "1", "template": "caf\xe9"}]', "UTF-8"),
    ],
)
def test_odd_ssv2(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (ssv2(tmp_path, ["7.webm"]) / f"something-something-v2-{name}.json").write_bytes(content)
    with pytest.raises(ListingError, match=message):
        load_index(tmp_path)


def test_names_that_are_not_text(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{c}/{name}" for c in "ab" for name in ("1.mp4", NOT_TEXT)))
    assert {Path(s.path).name for s in load_index(tmp_path).samples} == {"1.mp4", NOT_TEXT}
    assert generator(0, NOT_TEXT).random() == generator(0, NOT_TEXT).random()
    write_text(tmp_path / "names", NOT_TEXT)
    assert (tmp_path / "names").read_bytes() == b"caf\xe9.mp4"


def test_json_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = ssv2(tmp_path, ["7.webm"]) / "something-something-v2-train.json"
    path.write_text(json.dumps([{"id": 7, "template": "Holding something"}]), encoding="utf-8-sig")
    assert len(load_index(tmp_path).samples) == 1


class TestLabels:
    def test_ssv2(self, tmp_path: Path) -> None:
        touch(tmp_path, "7.webm")
        (tmp_path / "x-labels.json").write_text('{"": 0, "x": 1}')
        (tmp_path / "x-train.json").write_text('[{"id": 7, "template": "x"}]')
        with pytest.raises(ListingError, match=r"label 0 .* empty name"):
            load_index(tmp_path)

    @pytest.mark.parametrize(
        ("text", "match"), [("a\nb\na\n", "'a' appears twice"), ("a\n[]\nb\n", "1 .*labels.txt has an empty")]
    )
    def test_a_file_of_names(self, tmp_path: Path, text: str, match: str) -> None:
        touch(tmp_path, "a/1.mp4", "a/2.mp4", "b/1.mp4", "b/2.mp4")
        (tmp_path / "labels.txt").write_text(text)
        with pytest.raises(ListingError, match=match):
            load_index(tmp_path)


@pytest.mark.parametrize("name", ["train", "labels"])
def test_json_of_endless_depth(tmp_path: Path, name: str) -> None:
    path = ssv2(tmp_path, ["7.webm"]) / f"something-something-v2-{name}.json"
    path.write_text("[" * 100_000)
    with pytest.raises(ListingError, match=rf"{path.name} is not valid JSON: nested too deeply"):
        load_index(tmp_path)


def test_half_a_character_is_no_name(tmp_path: Path) -> None:
    path = ssv2(tmp_path, ["7.webm"]) / "something-something-v2-train.json"
    path.write_text('[{"id": "7"}, {"id": "\\ud800"}]')
    with pytest.raises(ListingError, match=r"'\\ud800.* is not text"):
        load_index(tmp_path)


@pytest.mark.parametrize("name", ["groups.csv", "labels.txt", "index.csv", "train.txt", "index.json"])
@pytest.mark.parametrize("target", ["/dev/zero", "absent"])
def test_a_link_in_the_place_of_an_annotation_is_not_ignored(tmp_path: Path, name: str, target: str) -> None:
    touch(tmp_path, "a/1.mp4", "a/2.mp4", "b/1.mp4", "b/2.mp4")
    (tmp_path / f".#{name}").symlink_to("editor@host.1")  # which is how Emacs locks a file
    assert load_index(tmp_path).kind == "folders"
    (tmp_path / name).symlink_to(target)
    with pytest.raises(ListingError, match=rf"cannot read .*{name}: "):
        load_index(tmp_path)


def test_messages_name_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "a/1.mp4", "a/2.mp4")
    write_csv(tmp_path / "t1.csv", [{"path": "a/1.mp4", "label": "left", "split": "train"}])
    monkeypatch.chdir(tmp_path)
    index = load_index("t1.csv", strict=False)
    assert "in t1.csv;" in index.problems[0]
    with pytest.raises(ListingError, match=f"in {tmp_path} "):
        _ = index.eval_split
    assert f"in {tmp_path};" in load_index(".", kind="folders", strict=False).problems[0]


def test_an_index_of_shards_that_is_cut_off_is_named(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text('{"format":')
    with pytest.raises(ListingError, match=r"not a known kind of data set \(.*index\.json is no index of shards\)"):
        load_index(tmp_path)


@pytest.mark.parametrize("name", ["videos", "labels"])
def test_a_setting_that_does_not_exist_is_named(tmp_path: Path, name: str) -> None:
    touch(tmp_path, "a/1.mp4", "b/1.mp4")
    with pytest.raises(ListingError, match=rf"^{name}='.*absent'.*no such"):
        load_index(tmp_path, **{name: tmp_path / "absent"})


def test_frames_of_any_number_are_kept() -> None:
    samples = [Sample("a.mp4", 0, "train", "a", frames=10**17)]
    assert SampleTable(samples)[0] == samples[0]
