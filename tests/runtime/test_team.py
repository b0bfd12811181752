"""Worker processes of a command: they answer, they end with it, and what happens to one is said in one sentence."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from fixformer.errors import UserError
from fixformer.runtime.team import Team

ENVIRONMENT = dict(os.environ)
LOST = "[pair.cc:547] Connection closed by peer [127.0.0.1]:4711"


@pytest.fixture
def team() -> Iterator[Team]:
    with Team("team_member", 2, ENVIRONMENT) as started:
        yield started


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for_end(process: int) -> None:
    deadline = time.monotonic() + 20
    while is_running(process) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_running(process)


def test_each_has_its_own_job(team: Team) -> None:
    first = team.ask({"do": "pid"})
    assert len({*first, os.getpid()}) == 3
    assert team.ask({"do": "pid"}) == first
    team.close()
    assert not any(map(is_running, first))


def test_a_process_forked_from_one_runs(team: Team) -> None:
    """As those of a loader; it must not wait for the thread that listens to the parent."""
    assert team.ask({"do": "fork"}) == [0, 0]


def test_a_mistake_is_the_error_of_the_parent(team: Team) -> None:
    with pytest.raises(UserError, match="this file is damaged"):
        team.ask({"do": "mistake"})


def test_a_bug_comes_with_its_traceback(team: Team) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)team_member\.py.*nobody thought of this"):
        team.ask({"do": "bug"})


def test_one_that_ends_is_not_waited_for(team: Team) -> None:
    team.tell([{"do": "leave"}, {"do": "sleep"}])
    with pytest.raises(UserError, match=r"ended with status 3 \(last line\).*--resume"):
        team.answers()


def test_a_lost_connection_is_explained_by_the_one_that_ended(team: Team) -> None:
    team.ask({"do": "pid"})
    team.tell([{"do": "lose the others"}, {"do": "die"}])
    with pytest.raises(UserError, match=r"was killed \(SIGKILL\).*--resume"), team.blamed():
        raise RuntimeError(LOST)


def test_an_error_of_the_parent_stays(team: Team) -> None:
    team.ask({"do": "pid"})
    team.tell([{"do": "lose the others"}] * 2)
    with pytest.raises(OSError, match="disk full"), team.blamed():
        raise OSError("disk full")


def test_they_end_when_the_parent_is_killed() -> None:
    script = (
        "import os, sys, time; from fixformer.runtime.team import Team\n"
        "team = Team('team_member', 2, dict(os.environ))\n"
        "print(*team.ask({'do': 'pid'}), flush=True)\n"
        "team.tell([{'do': 'sleep'}] * 2); time.sleep(1000)"
    )
    path = os.pathsep.join(place for place in sys.path if place)
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert parent.stdout is not None
    workers = [int(word) for word in parent.stdout.readline().split()]
    assert len(workers) == 2
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    for process in workers:
        wait_for_end(process)
