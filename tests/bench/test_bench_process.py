"""A measurement in a process of its own: its answer, its error, and whether the reason was a lack of memory."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from fixformer.bench.process import measure_apart
from fixformer.errors import OutOfMemory, UserError


@dataclass(frozen=True)
class Job:
    size: int = 1


PROGRAM = """
from dataclasses import dataclass
from fixformer.bench.process import answer

@dataclass
class Job:
    size: int

def measure(job):
    {line}

answer(Job, measure)
"""


def measured(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    (folder / "measured_here.py").write_text(PROGRAM.format(line=line))
    monkeypatch.chdir(folder)
    return measure_apart("measured_here", Job(7), "the job")


def test_the_answer_is_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured("return {'twice': 2 * job.size}", tmp_path, monkeypatch) == {"twice": 14}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("bytearray(2**62)", "out of memory"),
        ("raise RuntimeError('[enforce fail] . DefaultCPUAllocator: can\\'t allocate memory: 5 bytes')", "5 bytes"),
        ("import os; os.kill(os.getpid(), 9)", "killed, perhaps for want of memory"),
        ("import os, sys; print('std::bad_alloc', file=sys.stderr); os.abort()", "killed, perhaps"),
    ],
)
def test_a_lack_of_memory_is_told_from_other_failures(
    line: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OutOfMemory, match=f"the job could not be measured: .*{words}"):
        measured(line, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "line", ["raise RuntimeError('shapes differ')", "open('absent')", "import os; os.kill(os.getpid(), 15)"]
)
def test_other_failures_are_no_lack_of_memory(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="could not be measured") as raised:
        measured(line, tmp_path, monkeypatch)
    assert not isinstance(raised.value, OutOfMemory)
