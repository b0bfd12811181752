"""Files are not trusted: none names a command, a URL, a cache or an output, and none is waited for."""

import csv
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import av
import pytest
from process import run

from fixformer.data.audit.check import check
from fixformer.data.audit.probe import probe_file
from fixformer.data.listing import load_index
from fixformer.data.listing.shards import load_shards, read_index
from fixformer.data.loading.order import Visit, WorkerSlot
from fixformer.data.loading.shard_stream import ShardStream
from fixformer.data.video import DecodeError, open_video
from fixformer.data.video.content import content_digest
from fixformer.data.video.shard_member import read_member
from fixformer.errors import UserError
from fixformer.evaluation.evaluate import evaluate
from fixformer.models.checkpoint import read_info
from fixformer.training.run import train
from tiny_run import TINY

FORMAT_1 = Path(__file__).parents[1] / "training" / "format1_run"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to stand in, where whatever should not be written would be."""
    monkeypatch.setenv("FIXFORMER_CACHE", str(tmp_path / "own-cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def only_index(shards: Path, tmp_path: Path) -> Path:
    """The index of a set of shards, which are elsewhere."""
    folder = tmp_path / "index"
    folder.mkdir()
    shutil.copy(shards / "index.json", folder)
    return folder


def gift(checkpoint: Path, target: Path, **data: Any) -> Path:
    """A copy of a checkpoint as two files, with other settings of its data."""
    target.mkdir()
    shutil.copy(checkpoint / "model.safetensors", target)
    values = json.loads((checkpoint / "config.json").read_text())
    config = values["recipe"] if values["format"] == 1 else values["config"]
    config["data"].update(data)
    config.update({"init": "/dev/zero", "output": str(target.parent / "stolen")})
    (target / "config.json").write_text(json.dumps(values))
    return target


@pytest.mark.parametrize("version", [1, 2])
def test_a_checkpoint_names_no_command(
    trained: Path, shards: Path, only_index: Path, tmp_path: Path, here: Path, version: int
) -> None:
    source = next(FORMAT_1.glob("checkpoints/step-*")) if version == 1 else trained / "last"
    where = {"path": str(only_index), "kind": "auto", "cache": None}
    location = f"pipe:sh -c 'touch PWNED; cat {shards}/{{shard}}'"
    given = gift(source, tmp_path / "gift", **where, location=location)
    with pytest.raises(UserError, match=r"index\.json.*location="):  # the user may say where the shards are
        evaluate(given, workers=0)
    assert list(here.iterdir()) == []
    scored = evaluate(given, workers=0, location=f"pipe:cat {shards}/{{shard}}")
    assert len(scored.videos) == 12
    assert list(here.iterdir()) == []


def test_a_checkpoint_names_no_cache_weights_or_output(trained: Path, tmp_path: Path) -> None:
    stolen = tmp_path / "stolen"
    given = gift(trained / "last", tmp_path / "gift", cache=str(stolen))
    assert len(evaluate(given, workers=0).videos) == 12
    assert not stolen.exists()
    config = read_info(given).config
    assert (config.init, config.output, config.data.cache, config.data.location) == (None, "", None, None)
    # "auto" is the cache of whoever reads it
    shared = gift(trained / "last", tmp_path / "shared", cache="auto")
    assert len(evaluate(shared, workers=0).videos) == 12
    assert any((tmp_path / "own-cache" / "clips").rglob("*.bin"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gift", "here", "own-cache", "shared"]


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_run_names_no_command_for_those_who_resume_it(
    trained: Path, motions: Path, tmp_path: Path, here: Path, is_lost: bool
) -> None:
    home = Path(shutil.copytree(trained, tmp_path / "run", symlinks=True))
    record = json.loads((home / "run.json").read_text())
    record["config"]["data"].update(location="pipe:sh -c 'touch PWNED; cat {shard}'", cache=None)
    (home / "run.json").write_text("torn" if is_lost else json.dumps(record))
    settings = {**TINY, "epochs": 1, "cache": None, "resume": True}
    if is_lost:
        train("demo", data=motions, output=home, **settings)
    else:
        with pytest.raises(UserError, match=r"data\.location.*--fork"):
            train("demo", data=motions, output=home, **settings)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        *("train-000000.tar; touch PWNED", "$(touch PWNED).tar", "`touch PWNED`.tar", "a b.tar", "a'b.tar", "a\nb.tar"),
        *("../train-000000.tar", "/etc/passwd.tar", "..", ".tar", "-rf.tar", "--checkpoint-action=exec=sh.tar"),
        *(
            "a\0.tar",
            "train-000000.tar\n",
            "train-000000",
            "{shard}.tar",
            "http://x/y.tar",
            "\N{FULLWIDTH DIGIT ONE}.tar",
        ),
        *("", 7, None),
    ],
)
def test_the_name_of_a_shard_is_a_plain_file_name(only_index: Path, here: Path, name: Any) -> None:
    alter_index(only_index, shard=name)
    with pytest.raises(UserError, match=r"index\.json.*samples\.shard="):
        list(
            ShardStream(load_shards(only_index, require_files=False).samples, "pipe:cat /x/{shard}").test(
                1, WorkerSlot()
            )
        )
    assert list(here.iterdir()) == []


def alter_index(folder: Path, **changed: Any) -> None:
    """Change the first video of an index; `...` removes a key."""
    values = json.loads((folder / "index.json").read_text())
    row = {**values["samples"][0], **changed}
    values["samples"][0] = {name: value for name, value in row.items() if value is not ...}
    (folder / "index.json").write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"label": 99}, r"label=99.*12 labels"),
        ({"label": -7}, r"samples\.label=-7"),
        ({"label": 1.5}, r"samples\.label=1\.5"),
        ({"label": True}, r"samples\.label=True"),
        ({"offset": -1}, r"samples\.offset=-1"),
        ({"offset": 2**63}, r"samples\.offset=9223"),
        ({"offset": 10**18}, r"samples\.offset=1000"),
        ({"size": 10**18}, r"samples\.size=1000"),
        ({"size": "5"}, r"samples\.size='5'"),
        ({"size": None}, r"samples\.size=None"),
        ({"split": "trian"}, r"samples\.split='trian'.*train"),
        ({"frames": -1}, r"samples\.frames=-1"),
        ({"fps": float("nan")}, "NaN"),
        ({"fps": float("inf")}, "Infinity"),
        ({"id": 5}, r"samples\.id=5"),
        ({"group": []}, r"samples\.group=\[\]"),
        ({"command": "touch PWNED"}, r"samples 'command'"),
        ({"offset": ...}, r"offset"),
    ],
)
def test_a_wrong_row_of_an_index_is_one_sentence(only_index: Path, changed: dict[str, Any], match: str) -> None:
    alter_index(only_index, **changed)
    with pytest.raises(UserError, match=match) as raised:
        read_index(only_index)
    assert str(only_index / "index.json") in str(raised.value)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("samples", 5), ("samples", [5]), ("samples", {}), ("samples", ...), ("labels", "ab"), ("labels", [1])),
        *(("labels", ...), ("failed", [{"path": "x"}]), ("settings", []), ("extra", 1)),
    ],
)
def test_a_wrong_index_is_one_sentence(only_index: Path, key: str, value: Any) -> None:
    path = only_index / "index.json"
    values = {**json.loads(path.read_text()), key: value}
    path.write_text(json.dumps({name: value for name, value in values.items() if value is not ...}))
    with pytest.raises(UserError, match=rf"index\.json.*{key}") as raised:
        read_index(only_index)
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"null", b'{"format": "fixformer-shards-1"}']
)
def test_an_index_that_is_not_one_is_one_sentence(only_index: Path, content: bytes) -> None:
    path = only_index / "index.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"index\.json"):
        read_index(only_index)
    path.write_bytes(path.read_bytes()[:-40] + b'"format": "fixformer-shards-1"')
    with pytest.raises(UserError):
        load_index(only_index)


def test_two_videos_at_one_place(only_index: Path) -> None:
    second = json.loads((only_index / "index.json").read_text())["samples"][1]
    alter_index(only_index, shard=second["shard"], offset=second["offset"])
    with pytest.raises(UserError, match=rf"index\.json.*two videos begin at byte {second['offset']} of train"):
        read_index(only_index)


@pytest.mark.parametrize("key", ["id", "group"])
def test_half_a_character_in_an_index(shards: Path, tmp_path: Path, key: str) -> None:
    copy = Path(shutil.copytree(shards, tmp_path / "copy"))
    alter_index(copy, **{key: "\ud800"})
    with pytest.raises(UserError, match=r"'\\ud800' .* is not text"):
        load_index(copy)


@pytest.mark.parametrize("name", ["", "clap"])
def test_labels_that_no_checkpoint_could_have(shards: Path, tmp_path: Path, name: str) -> None:
    path = Path(shutil.copytree(shards, tmp_path / "copy")) / "index.json"
    values = json.loads(path.read_text())
    values["labels"][:2] = [name, "clap"]
    path.write_text(json.dumps(values))
    with pytest.raises(UserError, match=r"appears twice|empty name"):
        check(path.parent, workers=1)


def test_videos_beyond_the_end_of_a_shard_are_missing(shards: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(shards, tmp_path / "copy"))
    alter_index(copy, offset=10**17)
    index = load_index(copy)
    assert len(index.missing) == 1
    with pytest.raises(DecodeError, match=r"0 of the video's \d+ bytes"):
        read_member(index.missing[0].path)
    with pytest.raises(DecodeError, match=r"of the video's 999999999999999999 bytes"):
        read_member(f"{copy}/train-000000.tar::512+{10**18 - 1}")


def read_all(root: Path, location: str) -> list[Visit]:
    samples = load_shards(root, require_files=False).split("val")
    return list(ShardStream(samples, location).test(1, WorkerSlot()))


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a web server over a folder."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
def test_shards_over_http(shards: Path, only_index: Path) -> None:
    with served(shards) as address:
        assert read_all(only_index, f"{address}/{{shard}}") == read_all(only_index, str(shards))
        with pytest.raises(UserError, match=r"absent/val-000000\.tar.*status 22 .*404"):
            read_all(only_index, f"{address}/absent/{{shard}}")


def is_running(number: str) -> bool:
    """Whether a process does something; one that was killed may wait for its parent to take note."""
    status = Path("/proc", number, "status")
    return status.exists() and "\nState:\tZ" not in status.read_text()


def test_what_is_left_of_a_command_is_stopped(shards: Path, only_index: Path, tmp_path: Path) -> None:
    """It prints the shard, and would then go on for ever, with a child of its own."""
    note = tmp_path / "pids"
    script = f"sleep 1000 & echo $$ $! >> {note}; cat {shards}/{{shard}}; wait"
    assert read_all(only_index, f'pipe:sh -c "{script}"') == read_all(only_index, str(shards))
    end = time.monotonic() + 5  # the system takes its time to kill a child of the command
    while any(is_running(number) for number in note.read_text().split()):
        assert time.monotonic() < end, "a process is left over"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("location", "match"),
    [
        ("pipe:no-such-command {shard}", r"no-such-command.*No such file"),
        ("pipe:sh -c 'echo {shard} is not here >&2; exit 3'", r"status 3 \(val-000000\.tar is not here\)"),
        ("pipe:echo {shard}", r"val-000000\.tar"),
        ("pipe:sh -c 'kill -9 $$; cat {shard}'", r"status -9"),
    ],
)
def test_a_command_that_fails(only_index: Path, location: str, match: str) -> None:
    with pytest.raises(UserError, match=match):
        read_all(only_index, location)


PROTOCOLS = (
    "pipe:0",
    "pipe:touch PWNED",
    "concat:a.mp4|b.mp4",
    "data:video/mp4;base64,AAAA",
    "subfile,,start,0,end,9,,:a",
)


def test_a_list_names_no_protocol(motions: Path, tmp_path: Path, here: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        address = f"127.0.0.1:{server.getsockname()[1]}/x.mp4"
        paths = [*PROTOCOLS, *(f"{scheme}://{address}" for scheme in ("http", "https", "tcp", "rtmp", "ftp", "file"))]
        for path in paths:
            with pytest.raises(DecodeError, match="no such file"):
                open_video(path)
        good = [str(path) for path in sorted(motions.rglob("*.webm"))[:8]]
        with (tmp_path / "list.csv").open("w", newline="") as file:
            rows = [
                [path, "ab"[number % 2], "train" if number % 4 < 2 else "val"]
                for number, path in enumerate(good + paths)
            ]
            csv.writer(file).writerows([["path", "label", "split"], *rows])
        index = load_index(tmp_path / "list.csv")
        assert [sample.path for sample in index.missing] == paths
        with pytest.raises(TimeoutError):
            server.accept()
    assert list(here.iterdir()) == []


@pytest.fixture
def odd_files(motions: Path, tmp_path: Path) -> Iterator[tuple[Path, list[str]]]:
    """Class folders with what is not a regular file among the videos, and the names of those."""
    root = tmp_path / "odd"
    videos = iter(sorted(motions.rglob("*.webm")))
    for split in ("train", "val"):
        for name in ("clap", "wave"):
            folder = root / split / name
            folder.mkdir(parents=True)
            for number in range(3):
                shutil.copy(next(videos), folder / f"{number}.webm")
    folder = root / "train" / "clap"
    os.mkfifo(folder / "fifo.mp4")
    (folder / "zero.mp4").symlink_to("/dev/zero")
    (folder / "linked.mp4").symlink_to("fifo.mp4")
    (folder / "frames").mkdir()
    os.mkfifo(folder / "frames" / "0.png")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(folder / "socket.mp4"))
        yield root, ["fifo.mp4", "zero.mp4", "linked.mp4", "frames", "socket.mp4"]


def test_what_is_not_a_regular_file_is_unreadable(odd_files: tuple[Path, list[str]]) -> None:
    root, names = odd_files
    report = check(root, workers=1)
    problems = {Path(probe.path).name: probe for probe in report.files if probe.status == "unreadable"}
    assert sorted(problems) == sorted(names)
    assert "named pipe" in problems["fifo.mp4"].problem
    assert "device" in problems["zero.mp4"].problem
    for name in names:
        with pytest.raises(DecodeError, match=name):
            open_video(root / "train" / "clap" / name).get_frames([0])


@pytest.mark.parametrize("target", ["/proc/kmsg", "/proc/self/status", "empty"])
def test_a_file_without_a_size_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """Those of /proc may block for ever."""
    (tmp_path / "empty").touch()
    (tmp_path / "frames").mkdir()
    for name in ("1.mp4", "1.tar", "frames/0.png"):
        (tmp_path / name).symlink_to(tmp_path / target)
    monkeypatch.setattr(os, "open", lambda *_: pytest.fail("opened"))
    monkeypatch.setattr(av, "open", lambda *_, **__: pytest.fail("opened"))
    for name in ("1.mp4", "1.tar::0+5", "frames"):
        with pytest.raises(DecodeError, match="empty"):
            open_video(f"{tmp_path}/{name}").get_frames([0])
        assert probe_file(f"{tmp_path}/{name}").status == "unreadable"
        with pytest.raises((OSError, DecodeError), match="empty"):
            content_digest(f"{tmp_path}/{name}")


@pytest.mark.slow
def test_commands_do_not_wait_for_a_pipe(odd_files: tuple[Path, list[str]], tmp_path: Path) -> None:
    root, names = odd_files
    ended = run(["check", str(root), "--workers", "2"], tmp_path)
    assert ended.status == 1  # five of eight videos of a class are unreadable
    assert all(name in ended.stdout for name in names[:3])
    assert run(["prepare", str(root), "out", "--workers", "2"], tmp_path).status in (0, 1)
    pipe = str(root / "train" / "clap" / "fifo.mp4")
    for words in (
        ["check", pipe],
        ["check", "/dev/zero"],
        ["check", "/dev/null"],
        ["eval", pipe],
        ["predict", pipe, pipe],
    ):
        assert run(words, tmp_path).status == 1
    assert run(["train", "folder", "--data", str(root), "workers=1"], tmp_path).status == 1


ANNOTATIONS = (
    "index.csv",
    "labels.txt",
    "train.txt",
    "x-labels.json",
    "x-train.json",
    "groups.csv",
    "index.json",
    "a.list",
)


@pytest.mark.parametrize("name", ANNOTATIONS)
def test_annotations_that_are_pipes(odd_files: tuple[Path, list[str]], name: str) -> None:
    """Whatever kind of set it is taken for, it is not waited for."""
    root, _ = odd_files
    os.mkfifo(root / name)
    used = {"index.csv", "labels.txt", "train.txt", "groups.csv", "index.json"}
    with pytest.raises(UserError, match=rf"{name}: it is a named pipe") if name in used else suppress(UserError):
        load_index(root)
    for kind in ("csv", "list", "ssv2", "kinetics", "lsa64", "shards"):
        with pytest.raises(UserError):
            load_index(root, kind=kind)
    with pytest.raises(UserError, match=r"named pipe|neither"):
        load_index(root / name)
    with pytest.raises(UserError):
        load_index(root, labels=root / name)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_checkpoint_of_pipes(trained: Path, tmp_path: Path, name: str) -> None:
    given = gift(trained / "last", tmp_path / "gift")
    (given / name).unlink()
    os.mkfifo(given / name)
    with pytest.raises(UserError, match="gift"):
        evaluate(given)
