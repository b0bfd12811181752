"""The benchmark of reading runs, compares like with like, and its measures measure."""

import json
from mmap import mmap
from pathlib import Path

import numpy as np
import pytest

from fixformer.bench import reading_memory as data_memory
from fixformer.bench.other_readers import available_readers, ours, pyav
from fixformer.bench.reading import TASKS, bench_data, compare, print_bench, run_bench_data
from fixformer.bench.sample_videos import make_small_clips


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


def test_slope_of_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that keeps 100 KiB of every video is seen as 100,000 KiB per 1,000."""
    kept: list[mmap] = []

    def leak(data: bytes, number: int) -> None:
        block = mmap(-1, 102_400)  # pages of its own: memory from the heap may have been resident before
        block.write(b"1" * 102_400)
        kept.append(block)

    monkeypatch.setattr(data_memory, "_read", leak)
    assert data_memory.memory_slope(400)["kib_per_1000_decodes"] == pytest.approx(100_000, rel=0.2)
    kept.clear()


@pytest.mark.slow
def test_bench_runs_and_prints(small: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "bench.json"
    result = bench_data(small, rounds=1, decodes=60, loader_seconds=0.2, out=out)
    assert json.loads(out.read_text()) == json.loads(json.dumps(result))
    assert set(result["reading"]) == set(TASKS)
    assert result["loader"]["ratio"] > 0
    assert result["memory"]["decodes"] == 60
    print_bench(result)
    printed = capsys.readouterr().out
    assert all(words in printed for words in ("fixformer", "PyAV in order", "loader", "KiB per 1,000"))
    run_bench_data(small, json=True, rounds=1, decodes=0, loader_seconds=0)
    assert set(json.loads(capsys.readouterr().out)) == {"machine", "videos", "absent", "reading"}
