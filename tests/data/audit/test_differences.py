"""Splits that differ in shape, size, rate, codec, length or brightness are told apart from chance."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fixformer.data.audit.check import check
from fixformer.data.audit.differences import split_differences
from fixformer.data.audit.probe import FileProbe
from fixformer.data.listing import Index, Sample
from videos import class_folders, encode, textured

USUAL = FileProbe(
    "", 1, 0, "ok", frames=50, width=160, height=120, fps=25.0, duration=2.0, brightness=0.4, codec="h264"
)


def differences(train: list[FileProbe], val: list[FileProbe]) -> list[str]:
    probes = {}
    samples = []
    for split, found in (("train", train), ("val", val)):
        for number, probe in enumerate(found):
            path = f"{split}/{number}"
            probes[path] = replace(probe, path=path)
            samples.append(Sample(path, 0, split, path))
    return list(split_differences(Index(Path("data"), "folders", samples, ["a"]), probes))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"width": 360, "height": 360}, "shape, width / height: train 1.33, val 1 (medians)"),
        ({"width": 640, "height": 480}, "size, short side: train 120 px, val 480 px (medians)"),
        ({"fps": 60.0}, "frame rate: train 25 fps, val 60 fps (medians)"),
        ({"duration": 9.0}, "length: train 2 s, val 9 s (medians)"),
        ({"brightness": 0.7}, "brightness: train 0.4, val 0.7 (medians)"),
        ({"codec": "vp9"}, "codec: train h264, val vp9"),
    ],
)
def test_each_difference_has_a_line(change: dict[str, object], line: str) -> None:
    found = differences([USUAL] * 20, [replace(USUAL, **change)] * 10)
    assert line in found
    assert len(found) == (2 if line.startswith("shape") else 1)  # 360 pixels are also more than 120


def test_what_chance_explains_is_no_difference() -> None:
    rng = np.random.default_rng(0)
    for train, val in ((40, 10), (5, 3), (3, 1)):
        for _ in range(50):
            videos = [replace(USUAL, duration=float(value)) for value in rng.lognormal(1, 1, train + val)]
            assert not differences(videos[:train], videos[train:])


def test_a_minority_of_other_videos_is_no_difference() -> None:
    assert not differences([USUAL] * 20, [USUAL] * 12 + [replace(USUAL, width=360, height=360)] * 8)


def test_one_split_has_nothing_to_differ_from() -> None:
    assert not differences([USUAL] * 3, [])


def test_check_reports_them(tmp_path: Path) -> None:
    """Test videos of another camera: square, and brighter."""
    root = class_folders(tmp_path / "data", {"train": 4, "val": 4}, lambda seed: encode(textured(seed)))
    for number, path in enumerate(sorted((root / "val").rglob("*.mp4"))):
        path.write_bytes(encode(textured(100 + number)[:, :, :96] // 4 + 190))
    [issue] = [issue for issue in check(root, workers=1).issues if issue.kind == "split_difference"]
    assert [line.partition(":")[0] for line in issue.items] == ["shape, width / height", "brightness"]
