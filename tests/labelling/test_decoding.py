"""Decoding processes: what is wrong with one video costs that video, and says what it was."""

import os
import shutil
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from fixformer.config import ClipSpec, DataConfig
from fixformer.data.clips.transforms import normalise
from fixformer.data.clips.views import file_views
from fixformer.errors import MissingExtra
from fixformer.labelling.decoding import DecodingPool, Failure, ViewReader
from videos import encode, moving_square

SPEC = ClipSpec(frames=4, size=16)
READER = ViewReader(SPEC, 2, 3, DataConfig(path="x"))


def row(number: int, path: str, start: float | None = None, end: float | None = None) -> dict[str, Any]:
    return {"row": number, "id": path, "path": path, "start": start, "end": end, "escaped_cells": False}


def read_all(
    reader: ViewReader, rows: list[dict[str, Any]], workers: int = 2
) -> dict[int, tuple[Tensor, float | None] | Failure]:
    pool = DecodingPool(reader, workers=workers, slots=4)
    found: dict[int, tuple[Tensor, float | None] | Failure] = {}
    try:
        for one in pool.decode(rows):
            assert one.row["row"] not in found
            found[one.row["row"]] = one.failure or (pool.views_SVCTHW[one.slot].clone(), one.seconds)
            if not one.failure:
                pool.release(one.slot)
    finally:
        pool.close()
    return found


@pytest.mark.parametrize("workers", [0, 2])
def test_views_are_those_of_prediction(videos: list[str], workers: int) -> None:
    rows = [row(number, path, *((0.2, 0.6) if number % 2 else ())) for number, path in enumerate(videos[:12])]
    found = read_all(READER, rows, workers)
    assert sorted(found) == list(range(12))
    for one in rows:
        views, seconds = found[one["row"]]  # type: ignore[misc]
        expected = file_views(one["path"], SPEC, 2, 3, start=one["start"], end=one["end"])
        assert normalise(views, SPEC.mean, SPEC.std).equal(expected)
        assert 0.3 < seconds < 10


@pytest.fixture
def bad_files(tmp_path: Path) -> dict[str, tuple[str, str]]:
    """Paths by what is wrong with them: the status that is expected, and a part of the error."""
    data = encode(moving_square(12))
    contents = {
        "cut.mp4": data[: len(data) // 2],
        "empty.mp4": b"",
        "text.mp4": b"this is no video\n" * 50,
        "sound.mp4": encode(None, sound=True),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return {
        str(tmp_path / "cut.mp4"): ("unreadable", ""),
        str(tmp_path / "empty.mp4"): ("unreadable", "empty"),
        str(tmp_path / "text.mp4"): ("unreadable", "cannot be opened as a video"),
        str(tmp_path / "sound.mp4"): ("no_video", "no video stream"),
        str(tmp_path / "nothing.mp4"): ("missing", "no such file"),
        str(tmp_path / ("x" * 300)): ("missing", "no such file"),
        "memory://nowhere/a.mp4": ("missing", "no such file"),
        "": ("missing", "no such file"),
        "/dev/zero": ("unreadable", "not a regular file"),
    }


def test_every_kind_of_failure(videos: list[str], bad_files: dict[str, tuple[str, str]]) -> None:
    paths = [path for bad in bad_files for path in (bad, videos[1])]
    found = read_all(READER, [row(number, path) for number, path in enumerate(paths)])
    for number, path in enumerate(paths):
        if path not in bad_files:
            assert not isinstance(found[number], Failure)
            continue
        status, error = bad_files[path]
        assert found[number].status == status, path  # type: ignore[union-attr]
        assert error in found[number].error  # type: ignore[union-attr]


def test_videos_that_are_too_short(tmp_path: Path) -> None:
    (tmp_path / "short.mp4").write_bytes(encode(moving_square(3)))
    reader = replace(READER, spec=replace(SPEC, short_video="error"))
    path = str(tmp_path / "short.mp4")
    found = read_all(reader, [row(0, path), row(1, path, 5.0, 6.0), row(2, path, 0.1, 0.05)])
    assert [found[number].status for number in range(3)] == ["too_short"] * 3  # type: ignore[union-attr]


@dataclass(frozen=True)
class WithAccidents(ViewReader):
    """A reader to which things happen, by the name of the file."""

    def read(self, row: dict[str, Any], into_VCTHW: Tensor) -> Any:
        name = Path(row["path"]).name
        if name.startswith("crash"):
            os.kill(os.getpid(), signal.SIGKILL)
        if name.startswith("bug"):
            raise KeyError(name)
        if name.startswith("once") and not Path(f"{row['path']}.tried").exists():
            Path(f"{row['path']}.tried").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if name.startswith("extra"):
            return MissingExtra("this decoder", "torchcodec")
        return super().read(row, into_VCTHW)


def with_accidents() -> WithAccidents:
    return WithAccidents(READER.spec, READER.clips, READER.crops, READER.data)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # newer Pythons warn of a fork beside threads
def test_a_process_that_dies_costs_one_video(videos: list[str], tmp_path: Path) -> None:
    names = ["crash.webm", "good.webm", "bug.webm", "once.webm", *(f"{number}.webm" for number in range(8))]
    for name in names:
        shutil.copy(videos[0], tmp_path / name)
    found = read_all(with_accidents(), [row(number, str(tmp_path / name)) for number, name in enumerate(names)])
    statuses = [one.status if isinstance(one, Failure) else "ok" for _, one in sorted(found.items())]
    assert statuses == ["crashed", "ok", "crashed", *["ok"] * 9]


def test_a_missing_package_stops_everything(videos: list[str], tmp_path: Path) -> None:
    shutil.copy(videos[0], tmp_path / "extra.webm")
    with pytest.raises(MissingExtra, match="torchcodec"):
        read_all(with_accidents(), [row(0, videos[0]), row(1, str(tmp_path / "extra.webm"))])
