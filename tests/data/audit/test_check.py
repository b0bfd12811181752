"""`check` finds every kind of damage that was put in, and nothing in a whole set."""

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest

from fixformer.cli import data_verbs
from fixformer.data.audit import check as checking
from fixformer.data.audit.check import CheckReport, check
from fixformer.data.audit.issues import has_odd_rate, is_truncated
from fixformer.data.audit.probe import FileProbe, ProbeCache, probe_file
from fixformer.data.prepare.prepare import prepare
from fixformer.data.synthetic import make_motions
from fixformer.errors import UserError
from fixformer.runtime.pools import crash_safe_map
from videos import class_folders, encode, jpeg, moving_square, textured

CLASSES = ("clap", "wave")


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """Two classes, four training videos and two test videos each, all different."""
    return class_folders(tmp_path / "data", {"train": 4, "val": 2}, lambda seed: encode(textured(seed)))


def kinds(report: CheckReport) -> dict[str, list[str]]:
    return {issue.kind: issue.items for issue in report.issues}


def test_a_whole_set(whole: Path, tmp_path: Path) -> None:
    report = check(whole, out=tmp_path / "out", workers=2)
    assert report.usable
    assert not report.issues
    assert report.splits["train"] == dict.fromkeys(report.splits["train"], 0) | {"listed": 8, "ok": 8}
    assert report.class_counts["val"] == {"clap": 2, "wave": 2}
    stored = json.loads((tmp_path / "out" / "report.json").read_text())
    assert stored["usable"]
    assert stored["summary"]["frames"] == [24, 24, 24]
    assert stored["summary"]["sizes"] == {"128x96": 12}
    assert len(stored["files"]) == 12
    assert "no issues" in (tmp_path / "out" / "report.txt").read_text()
    assert (tmp_path / "out" / "histograms.png").read_bytes().startswith(b"\x89PNG")


def test_every_kind_of_damage_is_found(whole: Path) -> None:
    train, val = whole / "train", whole / "val"
    (train / "clap/0.mp4").write_bytes(b"not a video")
    (train / "clap/1.mp4").write_bytes(encode(None, sound=True))
    spoilt = bytearray(encode(textured(20), options={"g": "1"}))
    rng = random.Random(0)
    start = spoilt.index(b"mdat") + 100
    for _ in range(300):
        spoilt[rng.randrange(start, len(spoilt) - 1000)] ^= 0xFF
    (train / "clap/2.mp4").write_bytes(bytes(spoilt))
    (train / "wave/0.mp4").write_bytes(encode(textured(21)[:3]))
    (train / "wave/1.mp4").write_bytes(encode(textured(22), rate=2))
    (val / "clap/0.mp4").write_bytes((train / "wave/2.mp4").read_bytes())
    (val / "wave/0.mp4").write_bytes(encode(textured(8), options={"crf": "30"}))  # training video wave/3 once more
    (train / "wave/extra.mp4").write_bytes((train / "wave/2.mp4").read_bytes())
    report = check(whole, workers=2)
    found = kinds(report)
    assert found["unreadable"] == [
        f"{train}/clap/0.mp4: cannot be opened as a video: Invalid data found when processing input"
    ]
    assert found["no_video"] == [f"{train}/clap/1.mp4: no video stream (it holds audio)"]
    assert [item.split(":")[0] for item in found["damaged"]] == [f"{train}/clap/2.mp4"]
    assert found["too_short"] == [f"{train}/wave/0.mp4: 3"]
    assert f"{train}/wave/1.mp4: 2.00 fps in the header, measured 2.00" in found["odd_rate"]
    assert found["leak"] == [f"{train}/wave/2.mp4 = {train}/wave/extra.mp4 = {val}/clap/0.mp4"]
    assert found["label_conflict"] == found["leak"]
    assert found["similar"] == [f"{val}/wave/0.mp4 = {train}/wave/3.mp4"]
    assert not report.usable
    assert any("1 of 4 test videos" in reason for reason in report.reasons)
    assert any("2 of 9 train videos" in reason for reason in report.reasons)


def test_files_without_the_suffix_of_a_video_are_reported(whole: Path) -> None:
    (whole / "train" / "clap" / "notes.txt").write_text("to do")
    report = check(whole, workers=1)
    assert kinds(report) == {"ignored": [f"{whole}/train/clap/notes.txt"]}
    assert report.usable


def test_a_class_without_readable_training_videos(whole: Path) -> None:
    for path in (whole / "train/wave").iterdir():
        path.write_bytes(b"")
    report = check(whole, workers=1)
    assert "label_mismatch" in kinds(report)
    assert any("1 of 2 classes have no readable training video, first 'wave'" in r for r in report.reasons)


def test_listed_frames_and_missing_files(whole: Path) -> None:
    folder = whole / "train" / "clap"
    rows = ["path,label,split,frames", "0.mp4,clap,train,24", "1.mp4,clap,train,30", "9.mp4,clap,train,24"]
    (folder / "list.csv").write_text("\n".join([*rows, "2.mp4,clap,test,24", "3.mp4,clap,test,24"]) + "\n")
    found = kinds(check(folder / "list.csv", workers=1))
    assert [Path(item).name for item in found["missing"]] == ["9.mp4"]
    assert found["frame_count"] == [f"{folder}/1.mp4: 30 listed, 24 decoded"]


def test_command_prints_and_fails(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data_verbs.check(str(whole), out=tmp_path / "out", json=True, workers=1)
    assert json.loads(capsys.readouterr().out)["usable"]
    for path in (whole / "val/wave").iterdir():
        path.write_bytes(b"")
    with pytest.raises(UserError, match="unusable: 2 of 4 val videos"):
        data_verbs.check(str(whole), out=tmp_path / "out", workers=1)
    assert "UNUSABLE" in capsys.readouterr().out


def test_a_second_check_looks_only_at_what_changed(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def spy(path: str) -> FileProbe:
        looked.append(Path(path).name)
        return probe_file(path)

    monkeypatch.setattr(checking, "probe_file", spy)
    first = check(whole, workers=1)
    assert len(looked) == 12
    assert check(whole, workers=1).files == first.files
    assert len(looked) == 12
    (whole / "train/clap/2.mp4").write_bytes(encode(textured(30)))
    os.utime(whole / "train/wave/1.mp4", ns=(1, 1))
    check(whole, workers=1)
    assert looked[12:] == ["2.mp4", "1.mp4"]
    check(whole, workers=1, again=True)
    assert len(looked) == 26


def test_the_cache_survives_an_interrupted_write(whole: Path) -> None:
    report = check(whole, workers=1)
    store = ProbeCache(whole)
    store.path.write_text(store.path.read_text()[:-40])
    again = ProbeCache(whole)
    assert sum(again.get(one.path) == one for one in report.files) == 11


def probe(**values: object) -> FileProbe:
    usual = {"frames": 100, "fps": 25.0, "measured_fps": 25.0, "duration": 4.0, "header_duration": 4.0}
    return FileProbe("a.mp4", 1, 1, "ok", **(usual | values))


@pytest.mark.parametrize(
    ("values", "odd"),
    [
        ({}, False),
        ({"fps": None}, True),
        ({"fps": 1000.0}, True),
        ({"measured_fps": 12.0}, True),
        ({"variable_rate": True}, True),
        ({"frames": 0, "fps": None}, False),
        ({"container": "images", "fps": None}, False),
    ],
)
def test_odd_rate(values: dict[str, object], odd: bool) -> None:
    assert has_odd_rate(probe(**values)) is odd


@pytest.mark.parametrize(("header", "cut"), [(4.0, False), (4.3, False), (5.0, True), (None, False), (3.0, False)])
def test_truncated(header: float | None, cut: bool) -> None:
    assert is_truncated(probe(header_duration=header)) is cut


def test_probe_a_folder_of_images(tmp_path: Path) -> None:
    from videos import jpeg

    for number, picture in enumerate(textured(1)[:9]):
        (tmp_path / f"{number}.jpg").write_bytes(jpeg(picture))
    found = probe_file(str(tmp_path))
    assert (found.status, found.frames, found.container) == ("ok", 9, "images")
    assert probe_file(str(tmp_path / "none")).status == "missing"


def test_probe_a_video_in_a_shard_that_ends_early(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(bytes(600))
    found = probe_file(f"{tmp_path}/a.tar::512+200")
    assert (found.status, found.size) == ("unreadable", 600)
    assert "88 of" in found.problem


def square_or_die(number: int) -> int:
    if number in (5, 23):
        os._exit(1)
    return number * number


def test_work_goes_on_when_a_process_dies() -> None:
    results = dict(crash_safe_map(square_or_die, list(range(40)), workers=2))
    assert results == {n: None if n in (5, 23) else n * n for n in range(40)}


@pytest.mark.slow
def test_lsa64_is_listed_and_decodes_as_its_index_says(shared: Path) -> None:
    """A hundred here; results/check_lsa64.json is the report of `fixformer check` on all 3,200, without its `files`."""
    import csv

    root = shared / "data" / "lsa64"
    rows = list(csv.DictReader((root / "index.csv").open()))[::32]
    found = [probe_file(str(root / row["path"])) for row in rows]
    assert all(one.status == "ok" for one in found)
    assert [one.frames for one in found] == [int(row["frames"]) for row in rows]
    assert len({one.digest for one in found}) == len(rows)
    assert np.isclose([one.measured_fps for one in found], 29.97, atol=0.01).all()


def test_shards_are_a_data_set_like_any_other(tmp_path: Path) -> None:
    make_motions(tmp_path / "motions", clips=24, workers=1)
    prepare(tmp_path / "motions", tmp_path / "shards", short_side=48, shards=True, workers=1)
    report = check(tmp_path / "shards", workers=1)
    assert report.kind == "shards"
    assert report.usable, report.reasons
    assert sum(split["ok"] for split in report.splits.values()) == 24


def test_every_image_of_a_folder_is_decoded(tmp_path: Path) -> None:
    """Also those that no fingerprint looks at."""
    folder = tmp_path / "frames"
    folder.mkdir()
    for number, picture in enumerate(moving_square(24)):
        (folder / f"{number}.jpg").write_bytes(jpeg(picture))
    assert probe_file(str(folder)).status == "ok"
    (folder / "2.jpg").write_bytes(b"no picture")
    assert probe_file(str(folder)).status == "damaged"
