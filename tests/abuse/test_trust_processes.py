"""One process at a time writes to an output directory, and no worker outlives the process that started it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from process import Ended, run

from fixformer.runtime.locks import LOCK_FILE
from tiny_run import TINY, loss_trace

pytestmark = pytest.mark.slow

LONG = 50  # clips of the motions set and epochs of a run that are far from done when they are stopped
# seconds in which all processes must have ended after the first was killed; a worker finishes its video, and CI is busy
END = 20.0


def words_of(**settings: object) -> list[str]:
    return [
        f"{name}={','.join(map(str, value)) if isinstance(value, tuple) else value}" for name, value in settings.items()
    ]


def train_words(data: Path, output: str, **changed: object) -> list[str]:
    return ["train", "demo", "--data", str(data), "--output", output, *words_of(**{**TINY, "cache": None, **changed})]


@contextmanager
def started(words: list[str], cwd: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A command in a group of its own, which is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fixformer", *words],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if running_in(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def running_in(group: int) -> list[int]:
    """The processes of a group that have not ended; one that nobody has waited for has ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of_group = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(of_group) == group and state != "Z":
            found.append(int(path.parent.name))
    return found


def wait_until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not after {seconds} s"
        time.sleep(0.01)


@contextmanager
def stopped_inside(words: list[str], cwd: Path, output: str, sign: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A command that holds its output directory and has written `sign` there; it stands still."""
    with started(words, cwd) as process:
        wait_until(lambda: list((cwd / output).glob(sign)))
        os.killpg(process.pid, signal.SIGSTOP)
        yield process


def refused(words: list[str], cwd: Path, holder: int) -> Ended:
    """A command that is refused because of the holder."""
    ended = run(words, cwd)
    assert ended.status == 1, ended.stderr
    assert f"in use by process {holder} on {os.uname().nodename}" in ended.sentence
    return ended


def test_two_trainings_in_one_directory(motions: Path, tmp_path: Path) -> None:
    words = train_words(motions, "runs/x", epochs=LONG, **{"save.steps": 2})
    with stopped_inside(words, tmp_path, "runs/x", "last") as first:
        log = (tmp_path / "runs/x/log.jsonl").read_bytes()
        sentence = refused(words, tmp_path, first.pid).sentence
        assert "runs/x" in sentence
        assert "fixformer train demo" in sentence
        refused([*words, "--resume"], tmp_path, first.pid)
        refused(train_words(motions, "./runs/../runs/x"), tmp_path, first.pid)
        refused(["eval", "runs/x", "--output", "runs/x"], tmp_path, first.pid)
        refused(["prepare", str(motions), "runs/x"], tmp_path, first.pid)
        assert (tmp_path / "runs/x/log.jsonl").read_bytes() == log
        first.kill()
        wait_until(lambda: first.poll() is not None)
        assert (tmp_path / "runs/x" / LOCK_FILE).exists()
        again = run([*train_words(motions, "runs/x", epochs=1), "--resume", "--fork"], tmp_path)
        assert again.status in (0, 1)
        assert "in use" not in again.stderr


def test_a_killed_training_is_resumed(motions: Path, tmp_path: Path) -> None:
    words = train_words(motions, "run", **{"save.steps": 2})
    assert run(train_words(motions, "alone", **{"save.steps": 2}), tmp_path).status == 0
    with stopped_inside(words, tmp_path, "run", "last") as first:
        first.kill()
        first.wait()
        assert run([*words, "--resume"], tmp_path).status == 0
    assert loss_trace(tmp_path / "run") == loss_trace(tmp_path / "alone")
    assert not (tmp_path / "run" / LOCK_FILE).exists()


@pytest.mark.parametrize("options", [[], ["--shards", "--shard-videos", "4"]])
def test_two_preparations_in_one_directory(motions: Path, tmp_path: Path, options: list[str]) -> None:
    words = ["prepare", str(motions), "out", "--workers", "2", *options]
    sign = "train-*.tar" if options else "videos/**/*.mp4"
    with stopped_inside(words, tmp_path, "out", sign) as first:
        before = sorted(path.name for path in (tmp_path / "out").iterdir())
        refused(words, tmp_path, first.pid)
        refused(["prepare", str(motions), "out", "--short-side", "32"], tmp_path, first.pid)
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == before
        first.kill()
        first.wait()
        assert run(words, tmp_path).status == 0
    assert not (tmp_path / "out" / LOCK_FILE).exists()
    assert run(["check", "out", "--workers", "1"], tmp_path).status == 0


def test_a_training_that_fails_to_start_leaves_nothing(motions: Path, tmp_path: Path) -> None:
    assert run(train_words(motions, "runs/x", num_heads=3), tmp_path).status == 1
    assert run([*train_words(motions, "runs/x"), "--init", "absent.safetensors"], tmp_path).status == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("verb", "number"),
    [
        *((verb, signal.SIGKILL) for verb in ("prepare", "check", "train", "eval")),
        *((verb, signal.SIGTERM) for verb in ("prepare", "check", "eval")),  # at which `train` saves before it ends
    ],
)
def test_no_worker_outlives_its_parent(
    motions: Path, trained: Path, tmp_path: Path, verb: str, number: signal.Signals
) -> None:
    """The parent alone gets the signal, with workers in the middle of their work."""
    words = {
        "prepare": ["prepare", str(motions), "out", "--workers", "3"],
        "check": ["check", str(motions), "--workers", "3", "--again"],
        "train": train_words(motions, "run", epochs=LONG, workers=3),
        "eval": ["eval", str(trained), "--views", "64x3", "--workers", "3", "cache=none"],
    }[verb]
    with started(words, tmp_path) as process:
        wait_until(lambda: len(running_in(process.pid)) >= 4)
        process.send_signal(number)
        process.wait(END)
        wait_until(lambda: not running_in(process.pid), END)


def test_no_command_outlives_a_killed_run(motions: Path, shards: Path, tmp_path: Path) -> None:
    """Neither the workers nor the commands that print shards to them, even if these hang."""
    script = f"echo $$ >> {tmp_path}/pids; sleep 1000; cat {shards}/{{shard}}"
    location = f'location=pipe:sh -c "{script}"'
    with started([*train_words(shards, "run", workers=2, kind="auto"), location], tmp_path) as process:
        wait_until((tmp_path / "pids").exists)
        process.kill()
        process.wait()
        commands = [int(number) for number in (tmp_path / "pids").read_text().split()]
        wait_until(lambda: not running_in(process.pid), END)
        wait_until(lambda: not any(number in running_in(number) for number in commands), END)
        for group in commands:  # what the shell itself started is beyond our reach then
            for number in running_in(group):
                os.kill(number, signal.SIGKILL)


@pytest.mark.parametrize("verb", ["check", "prepare"])
def test_too_many_workers(motions: Path, tmp_path: Path, verb: str) -> None:
    words = [verb, str(motions), *(["out"] if verb == "prepare" else [])]
    ended = run([*words, "--workers", "100000"], tmp_path)
    assert ended.status == 1
    assert "workers=100000" in ended.sentence
    assert not (tmp_path / "out").exists()
    ended = run([*words, "--workers", "1000"], tmp_path)
    assert ended.status == 0
    assert "instead of 1000" in ended.stderr
