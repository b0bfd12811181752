"""Every kind of source becomes rows; a file does not decide where this machine connects to."""

import io
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet
import pytest

from fixformer.data.prepare import prepare as preparing
from fixformer.data.video import open_video
from fixformer.errors import UserError
from fixformer.labelling.decoding import open_source
from fixformer.labelling.row_sources import open_rows

Manifest = Callable[..., str]


def rows_of(source: object, urls: str | None = None) -> list[dict[str, Any]]:
    return list(open_rows(str(source), urls).rows)


def frames_in(path: str) -> int:
    with open_source(path) as source, open_video(source) as video:
        return len(video)


def test_folder_and_pattern(videos: list[str], tmp_path: Path) -> None:
    for name in ("b/2.webm", "a/1.webm", "a/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(videos[0], tmp_path / name)
    found = rows_of(tmp_path)
    assert [row["id"] for row in found] == ["a/1.webm", "b/2.webm"]
    assert found[0] == {"id": "a/1.webm", "path": f"{tmp_path}/a/1.webm", "start": None, "end": None}
    assert [row["path"] for row in rows_of(f"{tmp_path}/*/*.webm")] == [row["path"] for row in found]
    assert [row["path"] for row in rows_of(videos[0])] == [videos[0]]


def test_csv_with_further_columns(manifest: Manifest) -> None:
    source = manifest(
        ["a.mp4", "/b.mp4", "a.mp4"],
        id=["x", "", ""],
        start=["", "1.5", "0"],
        end=["", "", "2"],
        label=["cat", "dog", "cat"],
        price=["1", "2", "3"],
    )
    found = open_rows(source)
    assert found.carried == {"input_label": pa.string(), "price": pa.string()}
    rows = list(found.rows)
    folder = os.path.dirname(source)
    assert [row["path"] for row in rows] == [f"{folder}/a.mp4", "/b.mp4", f"{folder}/a.mp4"]
    assert [row["id"] for row in rows] == ["x", "/b.mp4@1.5-", "a.mp4@0-2"]
    assert [(row["start"], row["end"]) for row in rows] == [(None, None), (1.5, None), (0.0, 2.0)]
    assert rows[1]["input_label"] == "dog"


def test_parquet_keeps_types(tmp_path: Path) -> None:
    table = pa.table({"Video": ["/a.mp4", None], "tags": [["x"], []], "size": pa.array([1, 2], pa.int16())})
    pa.parquet.write_table(table, tmp_path / "m.parquet")
    found = open_rows(str(tmp_path / "m.parquet"))
    assert found.carried == {"tags": pa.list_(pa.string()), "size": pa.int16()}
    assert [(row["path"], row["tags"], row["size"]) for row in found.rows] == [("/a.mp4", ["x"], 1), ("", [], 2)]


def make_tar(videos: list[str]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for number, video in enumerate(videos):
            tar.add(video, f"{number:03}.webm")
            entry = tarfile.TarInfo(f"{number:03}.json")
            entry.size = 2
            tar.addfile(entry, io.BytesIO(b"{}"))
    return content.getvalue()


def test_tars_and_shards(videos: list[str], motions: Path, tmp_path: Path) -> None:
    (tmp_path / "tars").mkdir()
    (tmp_path / "tars" / "x.tar").write_bytes(make_tar(videos[:3]))
    for source in (tmp_path / "tars", tmp_path / "tars" / "x.tar", f"{tmp_path}/tars/*.tar"):
        found = rows_of(source)
        assert [row["id"] for row in found] == ["x.tar/000.webm", "x.tar/001.webm", "x.tar/002.webm"]
        assert [frames_in(row["path"]) for row in found] == [frames_in(path) for path in videos[:3]]
    preparing.prepare(motions, tmp_path / "shards", shards=True, short_side=32, workers=1)
    found = rows_of(tmp_path / "shards")
    assert len(found) == len(videos)
    assert ".tar::" in found[0]["path"]
    assert frames_in(found[0]["path"]) > 0


@pytest.fixture
def bucket(videos: list[str]) -> str:
    """Two videos, a tar and a manifest at `memory://` URLs."""
    memory = fsspec.filesystem("memory")
    for number in range(2):
        memory.pipe(f"/bucket/v/{number}.webm", Path(videos[number]).read_bytes())
    memory.pipe("/bucket/t/x.tar", make_tar(videos[:2]))
    memory.pipe("/bucket/list.csv", b"path,who\nv/0.webm,ann\nv/1.webm,bob\n")
    return "memory://bucket"


def test_urls(bucket: str, videos: list[str]) -> None:
    lengths = [frames_in(path) for path in videos[:2]]
    for source in ("v", "v/*.webm", "t", "t/x.tar", "list.csv"):
        found = rows_of(f"{bucket}/{source}")
        assert [frames_in(row["path"]) for row in found] == lengths, source
    assert rows_of(f"{bucket}/v/1.webm")[0]["path"] == f"{bucket}/v/1.webm"


def test_a_manifest_names_only_urls_that_the_command_allows(manifest: Manifest) -> None:
    source = manifest(["memory://bucket/a.mp4"])
    for urls in (None, "memory://other/"):
        with pytest.raises(UserError, match=r"line 2: 'memory://bucket/a\.mp4' is a URL.*--urls"):
            rows_of(source, urls)
    assert rows_of(source, "memory://bucket/")[0]["path"] == "memory://bucket/a.mp4"


@pytest.mark.parametrize("url", ["ftp://host/a.mp4", "file:///etc/passwd", "memory://x::file:///etc/passwd"])
def test_other_protocols_are_refused(url: str) -> None:
    with pytest.raises(UserError, match="are not read"), open_source(url):
        pass


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"file_name,label\na.mp4,1\n", r"no path column.*its columns are: 'file_name, label'"),
        (b"", "no path column"),
        (b"path,start\na.mp4,soon\n", "line 2: start 'soon' is not a number of seconds"),
        (b"path,label\na.mp4\n", "line 2: 1 cells for 2 columns"),
        (b"path\n\xff\xfe\n", "not a CSV table in UTF-8"),
    ],
)
def test_a_wrong_manifest_is_one_sentence(tmp_path: Path, content: bytes, match: str) -> None:
    (tmp_path / "m.csv").write_bytes(content)
    with pytest.raises(UserError, match=match):
        rows_of(tmp_path / "m.csv")


def test_what_is_no_source(tmp_path: Path) -> None:
    (tmp_path / "m.parquet").write_bytes(b"PAR1 and nothing else")
    (tmp_path / "x.tar").write_bytes(b"no tar" * 200)
    (tmp_path / "empty").mkdir()
    for source, match in (
        (tmp_path / "m.parquet", "not a Parquet file"),
        (tmp_path / "x.tar", "not a tar"),
        (tmp_path / "empty", "holds no video"),
        (tmp_path / "nowhere", "does not exist"),
        (f"{tmp_path}/*.mp4", "holds no video"),
        ("memory://nowhere/at/all", "cannot read|holds no video"),
    ):
        with pytest.raises(UserError, match=match):
            rows_of(source)
