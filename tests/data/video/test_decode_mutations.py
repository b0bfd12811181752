"""Thousands of damaged files: frames or a `DecodeError`, never a crash, a hang or a leak."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import mutants
import pytest
from made_videos import MADE, make

FILES = 4800
WORKERS = 2
SECONDS = 600
LEAK_KIB = 64 * 1024


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, shared_or_none: Path | None) -> list[Path]:
    """Videos made here, and the foreign ones where they are."""
    made = tmp_path_factory.mktemp("made")
    for name in MADE:
        (made / name).write_bytes(make(name))
    return [made, shared_or_none / "data" / "videos"] if shared_or_none else [made]


@pytest.fixture(scope="module")
def outcomes(folders: list[Path]) -> list[list[str]]:
    """Lines `[number, name, resident KiB, outcome]` of every worker, in order."""
    edges = [FILES * i // WORKERS for i in range(WORKERS + 1)]
    with ThreadPoolExecutor(WORKERS) as pool:
        runs = [pool.submit(run_worker, folders, a, b) for a, b in pairwise(edges)]
        return [run.result() for run in runs]


def run_worker(folders: list[Path], first: int, last: int) -> list[str]:
    command = [sys.executable, mutants.__file__, str(first), str(last), *map(str, folders)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as late:
        pytest.fail(f"hangs in: {(late.stdout or b'').decode().splitlines()[-1:]}")
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"status {done.returncode} in {lines[-1:]}\n{done.stderr[-2000:]}"
    assert len(lines) == last - first
    return lines


@pytest.mark.slow
def test_every_damaged_file_gives_frames_or_a_decode_error(outcomes: list[list[str]]) -> None:
    results = [line.split(" ", 3)[3] for lines in outcomes for line in lines]
    errors = [result for result in results if result.startswith("DecodeError ")]
    frames = [result for result in results if " frames, " in result]
    assert len(errors) + len(frames) == len(results) >= 2000
    # the mutations neither destroy every file nor leave every file whole
    assert len(errors) > FILES // 10
    assert len(frames) > FILES // 10


@pytest.mark.slow
def test_no_leak_over_damaged_files(outcomes: list[list[str]]) -> None:
    for lines in outcomes:
        resident = [int(line.split(" ", 3)[2]) for line in lines]
        quarter = len(resident) // 4
        assert min(resident[-quarter:]) - min(resident[quarter : 2 * quarter]) < LEAK_KIB


def test_mutations_are_reproducible_and_of_every_kind(folders: list[Path]) -> None:
    files = mutants.sources(folders)
    names = {mutants.mutant(number, files)[0].partition(":")[2] for number in range(len(files) * 6)}
    assert names == {mutate.__name__ for mutate in mutants.MUTATIONS}
    assert mutants.mutant(77, files) == mutants.mutant(77, files)
    suffixes = {path.suffix for path in files}
    assert suffixes >= {".mp4", ".mov", ".mkv", ".webm", ".gif", ".avi", ".mpg"}
