"""`check` on what a list says: one path in several rows, parts of files, folders of images."""

import os
from pathlib import Path

import numpy as np
import pytest

from fixformer.data.audit.check import CheckReport, check
from fixformer.data.audit.probe import ProbeCache, probe_file
from videos import encode, jpeg, textured


@pytest.fixture
def clips(tmp_path: Path) -> Path:
    """Four different videos of 0.96 seconds."""
    folder = tmp_path / "clips"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.mp4").write_bytes(encode(textured(number)))
    return folder


def found(folder: Path, header: str, *rows: str) -> tuple[CheckReport, dict[str, list[str]]]:
    (folder / "list.csv").write_text("\n".join([header, *rows]) + "\n")
    report = check(folder / "list.csv", workers=1)
    return report, {issue.kind: issue.items for issue in report.issues}


def test_one_path_in_training_and_test_is_a_leak(clips: Path) -> None:
    rows = ["0.mp4,a,train", "1.mp4,b,train", "2.mp4,a,val", "3.mp4,b,val", "0.mp4,b,val", "1.mp4,b,train"]
    report, kinds = found(clips, "path,label,split", *rows)
    assert kinds["leak"] == [f"{clips}/0.mp4 (train, a) = {clips}/0.mp4 (val, b)"]
    assert kinds["label_conflict"] == kinds["leak"]
    assert kinds["duplicate"] == [f"{clips}/1.mp4 (train, b) = {clips}/1.mp4 (train, b)"]
    assert report.reasons == ["1 of 3 test videos are also training videos"]


def test_parts_of_a_file_leak_where_they_overlap(clips: Path) -> None:
    rows = ["0.mp4,a,train,0,0.4", "0.mp4,a,val,0.4,0.8", "1.mp4,b,train,0,0.5", "1.mp4,b,val,0.4,0.8"]
    report, kinds = found(clips, "path,label,split,start,end", *rows)
    assert kinds["leak"] == [f"{clips}/1.mp4 (train, b) = {clips}/1.mp4 (val, b)"]
    assert "label_conflict" not in kinds
    assert report.reasons == ["1 of 2 test videos are also training videos"]


def test_a_part_outside_its_file_is_reported_and_counts_as_unreadable(clips: Path) -> None:
    rows = ["0.mp4,a,train,0,0.5", "1.mp4,b,train,0,9", "2.mp4,a,val,100,110", "3.mp4,b,val,0.2,0.9"]
    report, kinds = found(clips, "path,label,split,start,end", *rows)
    [outside] = kinds["outside"]
    assert outside.startswith(f"{clips}/2.mp4: ")
    assert all(value in outside for value in ("100 s", "110 s", "0.96 s"))
    assert report.reasons == ["1 of 2 val videos are missing, unreadable or unusable"]


def bitmap(picture_HWC: np.ndarray) -> bytes:
    """One picture as a PPM file, whose size is that of every other of the same height and width."""
    height, width, _ = picture_HWC.shape
    return f"P6\n{width} {height}\n255\n".encode() + picture_HWC.tobytes()


def test_folders_of_images_of_one_size_are_not_one_video(tmp_path: Path) -> None:
    root = tmp_path / "data"
    for seed, place in enumerate(f"{split}/{label}/{n}" for split in ("train", "val") for label in "ab" for n in "12"):
        (root / place).mkdir(parents=True)
        for number, picture in enumerate(textured(seed)[:8]):
            (root / place / f"{number}.ppm").write_bytes(bitmap(picture))
    report = check(root, workers=1)
    assert report.usable, report.reasons
    assert not report.issues


def test_the_probe_of_a_folder_is_invalid_when_an_image_is_written_again(tmp_path: Path) -> None:
    data = jpeg(textured(1)[0])
    for number in range(8):
        (tmp_path / f"{number}.jpg").write_bytes(data)
    store = ProbeCache(tmp_path)
    store.add([probe_file(str(tmp_path))])
    assert store.get(str(tmp_path)) is not None
    (tmp_path / "3.jpg").write_bytes(data[:100])
    assert store.get(str(tmp_path)) is None
    assert probe_file(str(tmp_path)).status == "damaged"
    (tmp_path / "3.jpg").write_bytes(data)
    os.utime(tmp_path / "3.jpg", ns=(1, 1))
    assert store.get(str(tmp_path)) is None


def test_folders_with_the_same_pictures_are_the_same(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number, picture in enumerate(textured(1)[:8]):
            (tmp_path / name / f"{name}{number}.jpg").write_bytes(jpeg(picture))
    (tmp_path / "b" / "._b0.jpg").write_bytes(b"a note of the system")
    assert probe_file(str(tmp_path / "a")).digest == probe_file(str(tmp_path / "b")).digest


def test_a_set_without_labels_is_reported(clips: Path, tmp_path: Path) -> None:
    (clips / "test.txt").write_text("0.mp4 24 0\n1.mp4 24 0\n")
    check(clips, out=tmp_path / "out", workers=1)
    assert (tmp_path / "out" / "report.txt").exists()
