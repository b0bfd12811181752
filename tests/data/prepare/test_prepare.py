"""`prepare`: every frame at its time, smaller, with key frames close together; interrupted work resumes."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from fixformer.cli import data_verbs
from fixformer.data.listing import Sample, load_index
from fixformer.data.prepare import video_files
from fixformer.data.prepare.encode import EncodeSettings, _increasing, reencode
from fixformer.data.prepare.prepare import prepare
from fixformer.data.prepare.video_files import FileJob, FileResult, output_paths
from fixformer.data.video import open_video
from fixformer.errors import InputError, SettingsConflict, UserError
from videos import class_folders, encode, textured


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return class_folders(
        tmp_path / "source", {"train": 3, "val": 1}, lambda seed: encode(textured(seed), options={"g": "250"})
    )


def key_numbers(data: bytes) -> list[int]:
    import io

    with av.open(io.BytesIO(data)) as container:
        return [number for number, packet in enumerate(container.demux(video=0)) if packet.size and packet.is_keyframe]


def test_a_prepared_video(tmp_path: Path) -> None:
    times = [*range(30), 40, 41, 45]
    clip = np.concatenate([textured(3, 30), textured(3, 3)])
    path = tmp_path / "in.mp4"
    path.write_bytes(encode(clip, times=times, rate=25, rotation=90))
    made = reencode(Sample(str(path), 0, "train", "in"), EncodeSettings(short_side=48, keyframes=8))
    with open_video(path, short_side=48) as before, open_video(made.data) as after:
        assert len(after) == len(before) == made.frames == 33
        assert after.timestamps == pytest.approx(before.timestamps, abs=2e-5)
        assert (made.width, made.height) == (after.info.width, after.info.height) == (48, 64)
        assert (after.info.rotation, after.info.codec) == (0, "h264")
        assert np.abs(after.get_frames(range(33)).astype(int) - before.get_frames(range(33))).mean() < 4
    assert np.diff(key_numbers(made.data)).max() <= 8


def test_only_the_listed_part_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "in.mp4"
    path.write_bytes(encode(textured(3, 50), rate=25))
    made = reencode(Sample(str(path), 0, "train", "in", start=0.4, end=1.2), EncodeSettings())
    with open_video(path) as before, open_video(made.data) as after:
        assert len(after) == 20
        assert np.abs(after.get_frames([0, 19]).astype(int) - before.get_frames([10, 29])).mean() < 4


@pytest.mark.parametrize(("size", "expected"), [((40, 62), (40, 62)), ((41, 63), (40, 62)), ((301, 533), (256, 452))])
def test_small_videos_keep_their_size_and_odd_ones_lose_a_line(
    size: tuple[int, int], expected: tuple[int, int], tmp_path: Path
) -> None:
    from videos import moving_square

    path = tmp_path / "in.mp4"
    path.write_bytes(encode(moving_square(2, *size)))
    made = reencode(Sample(str(path), 0, "train", "in"), EncodeSettings(short_side=256))
    assert (made.height, made.width) == expected


def test_prepared_files_are_a_data_set(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    report = prepare(source, target, short_side=64, workers=2)
    assert (report.videos, report.failed, report.missing) == (8, [], [])
    before, after = load_index(source), load_index(target)
    assert after.labels == before.labels == (target / "labels.txt").read_text().split()
    key = lambda sample: (sample.id, sample.label, sample.split)  # noqa: E731
    assert sorted(map(key, after.samples)) == sorted(map(key, before.samples))
    with open_video(after.samples[0].path) as video:
        assert (video.info.height, len(video)) == (64, after.samples[0].frames)


def test_failures_are_listed_and_tried_again(source: Path, tmp_path: Path) -> None:
    whole = (source / "train/clap/1.mp4").read_bytes()
    (source / "train/clap/1.mp4").write_bytes(b"torn")
    report = prepare(source, tmp_path / "out", workers=1)
    assert report.videos == 7
    assert [Path(path).name for path, _ in report.failed] == ["1.mp4"]
    assert "cannot be opened" in report.failed[0][1]
    assert [sample.id for sample in load_index(tmp_path / "out").missing] == ["train/clap/1.mp4"]
    (source / "train/clap/1.mp4").write_bytes(whole)
    assert prepare(source, tmp_path / "out", workers=1).failed == []


def test_interrupted_work_resumes(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    make = video_files._make_file

    def stop_after_three(job: FileJob) -> FileResult:
        if len(made) == 3:
            raise KeyboardInterrupt
        made.append(job.path)
        return make(job)

    monkeypatch.setattr(video_files, "_make_file", stop_after_three)
    with pytest.raises(KeyboardInterrupt):
        prepare(source, tmp_path / "out", workers=1)
    assert not (tmp_path / "out/index.csv").exists()
    (tmp_path / "out" / made[0]).unlink()
    monkeypatch.setattr(video_files, "_make_file", lambda job: made.append(job.path) or make(job))
    assert prepare(source, tmp_path / "out", workers=1).videos == 8
    assert len(made) == 3 + 6
    assert not [path for path in (tmp_path / "out").rglob("*.tmp")]


def test_other_settings_or_a_foreign_directory_are_refused(source: Path, tmp_path: Path) -> None:
    prepare(source, tmp_path / "out", short_side=64, workers=1)
    with pytest.raises(SettingsConflict, match=r"short_side=64.*short_side=32"):
        prepare(source, tmp_path / "out", short_side=32, workers=1)
    with pytest.raises(InputError, match="not empty"):
        prepare(source, source, workers=1)


def test_command(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data_verbs.prepare(str(source), str(tmp_path / "out"), json=True, workers=1)
    assert json.loads(capsys.readouterr().out)["videos"] == 8
    for path in source.rglob("*.mp4"):
        path.write_bytes(b"")
    with pytest.raises(UserError, match=r"none of 8 videos"):
        data_verbs.prepare(str(source), str(tmp_path / "other"), workers=1)


def test_output_paths_are_distinct_and_inside() -> None:
    ids = ["a/b.mp4", "a/b.webm", "../../etc/x", "/abs/c.mp4", "ünï cödé.mp4", "a:b?.mp4", "..", "v@1.5-3.mp4"]
    paths = output_paths(ids)
    assert paths[:2] == ["videos/a/b.mp4", "videos/a/b~2.mp4"]
    assert len({path.lower() for path in paths}) == len(ids)
    root = Path("/root/out")
    assert all(Path(os.path.normpath(root / path)).is_relative_to(root / "videos") for path in paths)


@pytest.mark.parametrize("shards", [False, True])
def test_ids_need_not_differ(tmp_path: Path, shards: bool) -> None:
    rows = ["path,label,split,id"]
    for number in range(4):
        (tmp_path / f"{number}.mp4").write_bytes(encode(textured(number, 5 + number)))
        rows.append(f"{number}.mp4,{'ab'[number % 2]},train,person{number // 2}")
    (tmp_path / "set.csv").write_text("\n".join(rows))
    assert prepare(tmp_path / "set.csv", tmp_path / "out", shards=shards, workers=1).videos == 4
    made = load_index(tmp_path / "out").samples
    assert sorted((s.frames, s.label) for s in made) == [(5, 0), (6, 1), (7, 0), (8, 1)]
    for sample in made:
        with open_video(sample.path) as video:
            assert len(video) == sample.frames


@pytest.mark.parametrize("shards", [False, True])
def test_labels_and_lost_videos_stay_known(tmp_path: Path, shards: bool) -> None:
    root = tmp_path / "source"
    root.mkdir()
    (root / "labels.json").write_text(json.dumps({"a": "0", "b": "1", "c": "2"}))
    rows = [{"id": name, "template": name[0]} for name in ("a1", "a2", "b1", "c1")]
    (root / "train.json").write_text(json.dumps(rows))
    for name in ("a1", "c1"):
        (root / f"{name}.mp4").write_bytes(encode(textured(1)))
    (root / "a2.mp4").write_bytes(b"torn")
    report = prepare(root, tmp_path / "out", shards=shards, workers=1)
    assert (len(report.failed), report.missing) == (1, ["b1.webm"])
    index = load_index(tmp_path / "out")
    assert index.labels == ["a", "b", "c"]
    assert {s.id: s.label for s in index.samples} == {"a1": 0, "c1": 2}
    assert {s.id: s.label for s in index.missing} == {"a2": 0, "b1": 1}


def test_an_id_that_means_another_file_now_is_made_again(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.mp4").write_bytes(encode(textured(number, 5 + number)))
    table = tmp_path / "set.csv"
    table.write_text("path,label,split,id\n0.mp4,a,train,x\n1.mp4,b,train,y\n")
    prepare(table, tmp_path / "out", workers=1)
    table.write_text("path,label,split,id\n2.mp4,a,train,x\n1.mp4,b,train,y\n")
    prepare(table, tmp_path / "out", workers=1)
    assert [s.frames for s in load_index(tmp_path / "out").samples] == [7, 6]
    (tmp_path / "2.mp4").write_bytes(b"torn")
    (tmp_path / "out/done.jsonl").unlink()
    prepare(table, tmp_path / "out", workers=1)
    index = load_index(tmp_path / "out")
    assert ([s.id for s in index.samples], [s.id for s in index.missing]) == (["y"], ["x"])


def first_pictures(root: Path) -> dict[str, np.ndarray]:
    pictures = {}
    for sample in load_index(root).samples:
        with open_video(sample.path) as video:
            pictures[sample.id] = video.get_frames([0])[0].astype(int)
    return pictures


@pytest.mark.parametrize("shards", [False, True])
def test_a_video_that_was_replaced_is_made_again(source: Path, tmp_path: Path, shards: bool) -> None:
    target = tmp_path / "out"
    settings: dict[str, Any] = {"short_side": 48, "shards": shards, "workers": 1}
    prepare(source, target, **settings)
    old = first_pictures(target)
    first, second = (sample for sample in load_index(source).samples[:2])
    shutil.copyfile(second.path, first.path)
    prepare(source, target, **settings)
    new = first_pictures(target)
    # x264 does not give the same bytes every time, so the other videos of a shard may differ by rounding
    assert [name for name in old if np.abs(old[name] - new[name]).mean() > 4] == [first.id]


def test_another_list_of_labels_is_refused(source: Path, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("wave\nclap\n")
    prepare(source, tmp_path / "out", workers=1)
    with pytest.raises(SettingsConflict, match=r"labels=None.*labels=.*names\.txt"):
        prepare(source, tmp_path / "out", labels=tmp_path / "names.txt", workers=1)


@pytest.mark.parametrize("shards", [False, True])
def test_one_odd_video_costs_itself_only(source: Path, tmp_path: Path, shards: bool) -> None:
    with av.open(str(source / "train/clap/thin.gif"), "w") as output:
        stream = output.add_stream("gif", rate=10)
        stream.width, stream.height, stream.pix_fmt = 1, 64, "rgb8"
        output.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((64, 1, 3), np.uint8), format="rgb24")))
        output.mux(stream.encode(None))
    (source / "train/clap/gone.mp4").symlink_to(tmp_path / "nowhere.mp4")
    report = prepare(source, tmp_path / "out", shards=shards, workers=1)
    assert report.videos == 8
    problems = {Path(path).name: problem for path, problem in report.failed}
    assert "1 x 64 pixels cannot be encoded" in problems["thin.gif"]
    assert "gone.mp4" in problems


def test_an_encoder_that_refuses(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise av.error.ExternalError(1, "no room")

    monkeypatch.setattr("fixformer.data.prepare.encode._encode", refuse)
    with pytest.raises(InputError, match=r"0\.mp4 cannot be encoded"):
        reencode(Sample(str(source / "val/clap/0.mp4"), 0, "val", "0"), EncodeSettings())


def test_no_encoder_at_all(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(av, "codecs_available", {"libvpx"})
    with pytest.raises(UserError, match=r"libx264.*pip install"):
        prepare(source, tmp_path / "out", workers=1)
    assert not (tmp_path / "out").exists()


def test_times_increase() -> None:
    assert _increasing(np.array([5, 3, 3, 8])).tolist() == [5, 6, 7, 8]


def test_names_that_are_not_text(source: Path, tmp_path: Path) -> None:
    (source / "val/clap/0.mp4").rename(source / "val/clap" / os.fsdecode(b"caf\xe9.mp4"))
    assert prepare(source, tmp_path / "out", workers=1).videos == 8
    assert os.fsdecode(b"val/clap/caf\xe9.mp4") in [s.id for s in load_index(tmp_path / "out").samples]
