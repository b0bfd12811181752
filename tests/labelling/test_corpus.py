"""`fixformer.label`: a table of every video once, whatever happens to the run that makes it."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet
import pytest

import fixformer
from fixformer.cli.app import main
from fixformer.errors import SettingsConflict, UserError
from fixformer.labelling.corpus import Labelled

Manifest = Callable[..., str]
FAST: dict[str, Any] = {"workers": 1, "threads": 1, "device": "cpu", "views": "1x1"}


def label(source: object, checkpoint: str, out: Path, **options: Any) -> Labelled:
    return fixformer.label(str(source), checkpoint, out, **{**FAST, **options})


def files_in(out: Path) -> dict[str, float]:
    return {path.name: path.stat().st_mtime_ns for path in (out / "rows").iterdir()}


def test_a_table_of_a_folder(checkpoint: str, motions: Path, videos: list[str], tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    done = label(motions, checkpoint, tmp_path / "out", rows_per_file=10, progress=lambda *now: seen.append(now))
    table = pyarrow.parquet.read_table(tmp_path / "out" / "rows").to_pylist()
    assert [row["path"] for row in table] == sorted(videos)
    assert [row["row"] for row in table] == list(range(len(videos)))
    assert {row["status"] for row in table} == {"ok"}
    assert [pyarrow.parquet.read_metadata(path).num_rows for path in sorted((tmp_path / "out/rows").iterdir())] == [
        *[10] * (len(videos) // 10),
        len(videos) % 10,
    ]
    assert seen[-1] == (len(videos), len(videos))
    assert list(done.rows()) == table
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["statuses"] == {"ok": len(videos)} == done.summary.statuses
    assert sum(summary["labels"].values()) == len(videos)
    assert summary["video_seconds"] == pytest.approx(sum(row["seconds"] for row in table), abs=0.01)
    assert summary["real_time_factor"] > 0


def test_the_report_shows_what_deserves_a_look(
    checkpoint: str, videos: list[str], manifest: Manifest, tmp_path: Path
) -> None:
    odd = str(tmp_path / "<b>odd.mp4")
    Path(odd).write_bytes(b"no video")
    done = label(manifest([*videos[:5], odd, "nowhere.mp4"]), checkpoint, tmp_path / "out")
    assert done.summary.statuses == {"ok": 5, "unreadable": 1, "missing": 1}
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("data:image/png;base64") == 5
    assert "Without a label: 2" in page
    assert "&lt;b&gt;odd.mp4" in page
    assert "<b>odd" not in page


def test_it_goes_on_where_it_stopped(checkpoint: str, motions: Path, videos: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = label(motions, checkpoint, out, limit=7, rows_per_file=3)
    assert (first.summary.labelled, first.summary.listed) == (7, len(videos))
    before = files_in(out)
    assert label(motions, checkpoint, out, limit=7).summary == first.summary
    second = label(motions, checkpoint, out, limit=20, rows_per_file=4)
    assert second.summary.labelled == 20
    next(path for path in (out / "rows").iterdir() if path.name.endswith("07.parquet")).unlink()
    (out / "rows" / "part-000000003.parquet").write_bytes(b"PAR1 cut off")
    (out / "rows" / ".x.tmp").touch()
    done = label(motions, checkpoint, out, top_k=5)
    assert [row["row"] for row in sorted(done.rows(), key=lambda row: row["row"])] == list(range(len(videos)))
    after = files_in(out)
    assert after["part-000000000.parquet"] == before["part-000000000.parquet"]
    assert ".x.tmp" not in after


def test_rows_that_were_written_twice_are_kept_once(checkpoint: str, motions: Path, tmp_path: Path) -> None:
    """Ray runs a task again if it does not hear of its end; both may have written."""
    out = tmp_path / "out"
    label(motions, checkpoint, out, limit=8, rows_per_file=4)
    rows = pyarrow.parquet.read_table(out / "rows" / "part-000000000.parquet")
    pyarrow.parquet.write_table(rows, out / "rows" / "again-000.parquet")
    done = label(motions, checkpoint, out, limit=10)
    assert sorted(row["row"] for row in done.rows()) == list(range(10))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"top_k": 3}, "top_k is 5 there and 3 now"),
        ({"features": True}, "features is False there and True now"),
        ({"format": "csv"}, "format is 'parquet' there and 'csv' now"),
        ({"views": "2x3"}, "views is '1x1' there and '2x3' now"),
    ],
)
def test_other_settings_are_refused(
    checkpoint: str, motions: Path, tmp_path: Path, options: dict[str, Any], match: str
) -> None:
    label(motions, checkpoint, tmp_path / "out", limit=1)
    with pytest.raises(UserError, match=match):
        label(motions, checkpoint, tmp_path / "out", limit=2, **options)


def test_a_manifest_that_changed_is_refused(
    checkpoint: str, videos: list[str], manifest: Manifest, tmp_path: Path
) -> None:
    label(manifest(videos[:2]), checkpoint, tmp_path / "out", limit=1)
    with pytest.raises(UserError, match=r"source_state is .* there and .* now"):
        label(manifest(videos[:3]), checkpoint, tmp_path / "out")


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_text_formats(checkpoint: str, videos: list[str], manifest: Manifest, tmp_path: Path, kind: str) -> None:
    source = manifest([*videos[:4], "nowhere.mp4"], label=["=1+1", "b", "c,\n", "d", "e"])
    options: dict[str, Any] = {"format": kind, "logits": True, "rows_per_file": 2}
    label(source, checkpoint, tmp_path / "out", limit=3, **options)
    done = label(source, checkpoint, tmp_path / "out", **options)
    assert done.summary.statuses == {"ok": 4, "missing": 1}
    with (tmp_path / "out" / f"labels.{kind}").open(newline="") as file:
        rows = list(csv.DictReader(file)) if kind == "csv" else list(map(json.loads, file))
    assert [int(row["row"]) for row in rows] == list(range(5))
    if kind == "csv":
        assert rows[0]["input_label"] == r"\x3d1+1"  # a spreadsheet would run it
        assert (rows[0]["escaped_cells"], rows[1]["escaped_cells"]) == ("1", "")
        assert len(json.loads(rows[1]["logits"])) == 12
        assert rows[4]["label"] == ""
    else:
        assert rows[0]["input_label"] == "=1+1"
        assert len(rows[0]["logits"]) == 12
        assert rows[4]["label"] is None
    assert sum(1 for _ in done.rows()) == 5


def test_wrong_places_are_one_sentence(checkpoint: str, motions: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").touch()
    for out, match in ((tmp_path / "file" / "x", "cannot be written"), (tmp_path / "full", "holds no labelling")):
        with pytest.raises(UserError, match=match):
            label(motions, checkpoint, out)
    (tmp_path / "list.csv").write_text("name_of_file,label\na.mp4,b\n")
    with pytest.raises(UserError, match="no path column"):
        label(tmp_path / "list.csv", checkpoint, tmp_path / "b")
    with pytest.raises(SettingsConflict, match="concurrency=2 is for engine='ray'"):
        label(motions, checkpoint, tmp_path / "c", concurrency=2)
    with pytest.raises(SettingsConflict, match="writes Parquet"):
        label(motions, checkpoint, tmp_path / "c", engine="ray", format="csv")
    for address, match in (("127.0.0.1:9", "no Ray cluster at address=127.0.0.1:9"), ("nonsense", "HOST:PORT")):
        with pytest.raises(UserError, match=match):
            label(motions, checkpoint, tmp_path / "c", engine="ray", address=address)
    assert not (tmp_path / "c").exists()


def test_the_command(
    checkpoint: str, videos: list[str], manifest: Manifest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["label", manifest(videos[:3]), "--checkpoint", checkpoint, "--out", str(tmp_path / "out"), "--json"]
    main([*words, "--device", "cpu", "--workers", "0", "--features"])
    assert json.loads(capsys.readouterr().out)["statuses"] == {"ok": 3}
    [first, *_] = pyarrow.parquet.read_table(tmp_path / "out" / "rows").to_pylist()
    assert first["features"] == pytest.approx(fixformer.load(checkpoint).features(videos[0]).tolist(), abs=1e-5)
    with pytest.raises(SystemExit, match="1"):
        main(["label", manifest(["nowhere.mp4"]), "--checkpoint", checkpoint, "--out", str(tmp_path / "none")])
    assert "none of the 1 videos could be labelled" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["label", "x", "--out", "y"])
    assert "--checkpoint CHECKPOINT is missing" in capsys.readouterr().err


def start(source: str, checkpoint: str, out: Path, before: str = "") -> subprocess.Popen[str]:
    words = ["label", source, "--checkpoint", checkpoint, "--out", str(out), "--rows-per-file", "4"]
    words += ["--workers", "1", "--threads", "1", "--device", "cpu", "--views", "1x1"]
    code = f"{before}\nfrom fixformer.cli.app import main\nmain({words!r})"
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)


def wait_for_files(run: subprocess.Popen[str], out: Path, count: int) -> None:
    while run.poll() is None and len(list((out / "rows").glob("*.parquet"))) < count:
        time.sleep(0.01)
    assert run.poll() is None, "the run ended before it was stopped"


@pytest.mark.slow
def test_no_row_is_lost_or_doubled_by_signals(
    checkpoint: str, videos: list[str], manifest: Manifest, tmp_path: Path
) -> None:
    """SIGTERM saves what is done; SIGKILL costs what is not yet in a file. No process outlives its parent."""
    source, out = manifest(videos * 3), tmp_path / "out"
    run = start(source, checkpoint, out)
    wait_for_files(run, out, 2)
    run.send_signal(signal.SIGTERM)
    assert run.wait() == 143
    assert "the same command goes on" in (run.stderr.read() if run.stderr else "")
    saved = set(files_in(out))
    run = start(source, checkpoint, out)
    wait_for_files(run, out, len(saved) + 2)
    workers = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    assert workers
    run.kill()
    run.wait()
    done = label(source, checkpoint, out)
    assert saved < set(files_in(out))
    assert sorted(row["row"] for row in done.rows()) == list(range(len(videos) * 3))
    assert not any(os.path.exists(f"/proc/{pid}/fd/0") for pid in workers)


@pytest.mark.slow
def test_a_full_disk(checkpoint: str, videos: list[str], manifest: Manifest, tmp_path: Path) -> None:
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))"
    run = start(manifest(videos), checkpoint, tmp_path / "out", limit)
    _, errors = run.communicate()
    assert run.returncode == 1
    last = errors.strip().splitlines()[-1]
    assert last.startswith("fixformer: cannot write ")
    assert "free some space" in last
    assert not list((tmp_path / "out").rglob("*.tmp"))


def test_a_plan_that_failed_may_be_corrected(checkpoint: str, videos: list[str], tmp_path: Path) -> None:
    source, out = tmp_path / "m.csv", tmp_path / "out"
    source.write_text(f"path,start\n{videos[0]},soon\n")
    with pytest.raises(UserError, match="line 2: start 'soon'"):
        label(source, checkpoint, out)
    source.write_text(f"path,start\n{videos[0]},\n")
    assert label(source, checkpoint, out).summary.statuses == {"ok": 1}


def test_videos_at_urls(checkpoint: str, videos: list[str], manifest: Manifest, tmp_path: Path) -> None:
    """Decoding processes open the URLs; one that fails is a row."""
    memory = fsspec.filesystem("memory")
    for number in range(3):
        memory.pipe(f"/label/{number}.webm", Path(videos[number]).read_bytes())
    memory.pipe("/label/bad.webm", b"no video")
    paths = [*(f"memory://label/{name}.webm" for name in (0, 1, 2, "bad", "none")), videos[0]]
    done = label(manifest(paths), checkpoint, tmp_path / "out", urls="memory://label/", workers=2)
    rows = {row["path"]: row for row in done.rows()}
    assert [rows[path]["status"] for path in paths] == ["ok", "ok", "ok", "unreadable", "missing", "ok"]
    assert rows[paths[0]]["top_probabilities"] == pytest.approx(rows[videos[0]]["top_probabilities"], abs=1e-6)
    folder = label("memory://label", checkpoint, tmp_path / "folder")
    assert folder.summary.statuses == {"ok": 3, "unreadable": 1}
