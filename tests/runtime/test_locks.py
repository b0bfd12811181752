"""A directory has one holder, however many want it; a holder that dies lets go."""

import errno
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fixformer.errors import UserError
from fixformer.runtime import locks
from fixformer.runtime.locks import LOCK_FILE, is_empty, locked

# Holds a directory until its input ends; says whether it has it.
HOLDER = """
import sys
from fixformer.errors import UserError
from fixformer.runtime.locks import locked
sys.stdin.readline()
try:
    with locked(sys.argv[1]):
        print("held", flush=True)
        sys.stdin.readline()
except UserError as error:
    print(error, flush=True)
"""


def holder(directory: Path) -> "subprocess.Popen[str]":
    words = [sys.executable, "-c", HOLDER, str(directory)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def answer(process: "subprocess.Popen[str]") -> str:
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_a_fresh_directory_has_one_winner(tmp_path: Path) -> None:
    processes = [holder(tmp_path / "a" / "b") for _ in range(8)]
    with ThreadPoolExecutor(len(processes)) as pool:
        answers = list(pool.map(answer, processes))
    winners = [process for process, said in zip(processes, answers, strict=True) if said == "held"]
    assert len(winners) == 1
    assert all(f"in use by process {winners[0].pid} on " in said for said in answers if said != "held")
    for process in processes:
        process.communicate("\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_dead_holder_lets_go(tmp_path: Path, number: signal.Signals) -> None:
    process = holder(tmp_path)
    assert answer(process) == "held"
    with (
        pytest.raises(UserError, match=rf"{tmp_path} is in use by process {process.pid} on \S+ since .*\(-c"),
        locked(tmp_path),
    ):
        pass
    process.send_signal(number)
    process.communicate()
    assert (tmp_path / LOCK_FILE).exists()
    assert is_empty(tmp_path)
    with locked(tmp_path):
        assert str(os.getpid()) in (tmp_path / LOCK_FILE).read_text()
    assert list(tmp_path.iterdir()) == []


def test_a_process_does_not_hold_a_directory_twice(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with locked(tmp_path):
        for path in (tmp_path, tmp_path / "link", tmp_path / "x" / ".."):
            with pytest.raises(UserError, match="this very process"), locked(path):
                pass
        other = holder(tmp_path)
        assert "in use" in answer(other)  # the failures above have not let go
        other.communicate()
    with locked(tmp_path):
        pass


def test_threads_have_one_winner(tmp_path: Path) -> None:
    barrier = threading.Barrier(8)

    def take(_: int) -> bool:
        barrier.wait()
        try:
            with locked(tmp_path / "x"):
                barrier.wait(5)
        except UserError:
            barrier.wait(5)
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(take, range(8))) == 1


def test_what_was_made_for_nothing_is_removed(tmp_path: Path) -> None:
    with pytest.raises(KeyError), locked(tmp_path / "a" / "b"):
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    with locked(tmp_path / "a" / "b"):
        (tmp_path / "a" / "b" / "result").touch()
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["result"]


@pytest.mark.parametrize("what", ["fifo", "link", "directory"])
def test_something_else_in_the_place_of_the_lock(tmp_path: Path, what: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("keep")
    home = tmp_path / "home"
    home.mkdir()
    make = {"fifo": os.mkfifo, "link": lambda path: path.symlink_to(victim), "directory": Path.mkdir}[what]
    make(home / LOCK_FILE)
    with pytest.raises(UserError, match="home"), locked(home):
        pass
    assert victim.read_text() == "keep"


def test_a_file_of_others_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("process of mine")
    (tmp_path / "linked").mkdir()
    os.link(tmp_path / "mine.txt", tmp_path / "linked" / LOCK_FILE)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / LOCK_FILE).write_text("a text of mine")
    for name in ("linked", "own"):
        with pytest.raises(UserError, match=f"{LOCK_FILE} is no lock"), locked(tmp_path / name):
            pass
    assert (tmp_path / "mine.txt").read_text() == "process of mine"
    assert (tmp_path / "own" / LOCK_FILE).read_text() == "a text of mine"


def test_a_full_disk_does_not_stop_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with locked(tmp_path / "new"):
        assert is_empty(tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("path", ["/proc/x/y", "/dev/null", "/dev/null/x"])
def test_a_place_that_cannot_be_written(path: str) -> None:
    with pytest.raises(UserError, match=path), locked(path):
        pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, None])
def test_without_locks_it_goes_on_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int | None
) -> None:
    class NoLocks:
        LOCK_EX = LOCK_NB = 0

        @staticmethod
        def lockf(*_: object) -> None:
            raise OSError(number, "no locks here")

    monkeypatch.setattr(locks, "fcntl", None if number is None else NoLocks)
    with locked(tmp_path / "x"):
        pass
    assert f"{tmp_path / 'x'} cannot be locked" in capsys.readouterr().err
