"""The benchmark of reading runs, compares like with like, and its measures measure."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fixformer.bench.other_readers import available_readers, ours, pyav
from fixformer.bench.reading import TASKS, bench_data, compare
from fixformer.bench.sample_videos import make_small_clips
from fixformer.cli.bench_verbs import bench_data as bench_data_verb
from fixformer.cli.print_bench import print_reading_speed


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return make_small_clips(tmp_path_factory.mktemp("clips"))[:2]


@pytest.mark.parametrize("frames", [1, 7, 16, 63, 64, 300])
@pytest.mark.parametrize("task", TASKS)
def test_picks(frames: int, task: str) -> None:
    picks = TASKS[task](frames, "a.mp4")
    assert len(picks) == 16
    assert picks == sorted(picks)
    assert 0 <= picks[0]
    assert picks[-1] < frames
    assert picks == TASKS[task](frames, "/elsewhere/a.mp4")


def test_readers_read_the_same(small: list[str]) -> None:
    readers, absent = available_readers()
    assert set(absent) <= {"cv2", "torchcodec.decoders"}
    for path in small:
        expected = ours(path, [0, 5, 19])
        for name, reader in readers.items():
            frames = reader(path, [0, 5, 19])
            assert np.abs(frames.astype(int) - expected).mean() < 3, name


def test_other_frames_than_asked_are_told(small: list[str]) -> None:
    found = compare(small, TASKS["uniform 16"], {"fixformer": ours, "liar": lambda path, i: 255 - pyav(path, i)}, 1)
    assert len(found["other_frames_than_asked"]["liar"]) == 2
    assert found["fastest_other"] == "liar"
    speeds = found["clips_per_second"]
    assert found["ratio"] == pytest.approx(speeds["fixformer"] / speeds["liar"])


LEAK = """
import json
import numpy as np
from fixformer.bench import reading_memory

kept = []
reading_memory._read = lambda data, number: kept.append(np.ones(102_400, np.uint8).tobytes())
print(json.dumps(reading_memory.memory_slope(400)))
"""


def test_slope_of_a_leak() -> None:
    """A reader that keeps 100 KiB of every video is seen as 100,000 KiB per 1,000.

    In a process of its own: memory that earlier tests have freed would be reused, and hide the growth.
    """
    printed = subprocess.run([sys.executable, "-c", LEAK], capture_output=True, text=True, check=True).stdout
    assert json.loads(printed)["kib_per_1000_decodes"] == pytest.approx(100_000, rel=0.2)


@pytest.mark.slow
def test_bench_runs_and_prints(small: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = bench_data(small, rounds=1, decodes=60, loader_seconds=0.2)
    assert set(result["reading"]) == set(TASKS)
    assert result["loader"]["ratio"] > 0
    assert result["memory"]["decodes"] == 60
    print_reading_speed(result)
    printed = capsys.readouterr().out
    assert all(words in printed for words in ("fixformer", "PyAV in order", "loader", "KiB per 1,000"))
    out = tmp_path / "bench.json"
    bench_data_verb(tuple(small), rounds=1, decodes=0, loader_seconds=0, out=out, json=True)
    assert json.loads(capsys.readouterr().out) == json.loads(out.read_text())
    assert set(json.loads(out.read_text())) == {"machine", "videos", "absent", "reading"}
