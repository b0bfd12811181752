"""How fast clips are read compared with other tools, and whether memory stays flat."""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch

from fixformer.bench.other_readers import ReadClip, available_readers
from fixformer.bench.reading_memory import memory_slope
from fixformer.bench.sample_videos import make_clips
from fixformer.config.schema import Expect, NonNegative, PositiveInt, checked
from fixformer.data.loading.datasets import TrainBatch
from fixformer.data.video import open_video
from fixformer.runtime.machine import describe_machine
from fixformer.runtime.seeds import generator

FRAMES = 16
STRIDE = 4
# What we hold ourselves to: clips per second beside the fastest other reader, and of two workers beside one.
TARGET = 0.95
LOADER_TARGET = 1.7

# A slope needs two points.
Decodes = Annotated[int, Expect("0, or an int of at least 2", lambda value: value == 0 or value >= 2)]
Pick = Callable[[int, str], list[int]]


def uniform(frames: int, path: str) -> list[int]:
    """The middle frame of each of 16 equal parts."""
    return [(2 * i + 1) * frames // (2 * FRAMES) for i in range(FRAMES)]


def dense(frames: int, path: str) -> list[int]:
    """16 frames, 4 apart, from a place drawn for this file."""
    last = max(0, frames - FRAMES * STRIDE)
    start = int(generator(0, Path(path).name).integers(last + 1))
    return [min(frames - 1, start + i * STRIDE) for i in range(FRAMES)]


TASKS: dict[str, Pick] = {"uniform 16": uniform, f"dense 16 x {STRIDE}": dense}


@checked
def bench_data(
    videos: tuple[str, ...] | None = None,
    *,
    rounds: PositiveInt = 5,
    decodes: Decodes = 20_000,
    loader_seconds: NonNegative = 20.0,
) -> dict[str, Any]:
    """Measure reading, loading and memory.

    Args:
        videos: files to read; by default four videos of 10 seconds that are made for it.
        rounds: every tool reads every clip so many times, in turn; the best time counts.
        decodes: clips read in the test of memory; 0 leaves it out.
        loader_seconds: of each measurement of the loader; 0 leaves it out.
    """
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        paths = list(videos or make_clips(Path(folder)))
        result: dict[str, Any] = {"machine": describe_machine(threads=1), "videos": [Path(p).name for p in paths]}
        readers, result["absent"] = available_readers()
        result["reading"] = {name: compare(paths, pick, readers, rounds) for name, pick in TASKS.items()}
        if loader_seconds:
            result["loader"] = loader_throughput(paths, loader_seconds)
        if decodes:
            result["memory"] = memory_slope(decodes)
    return result


def compare(paths: list[str], pick: Pick, readers: dict[str, ReadClip], rounds: int) -> dict[str, Any]:
    """Clips per second of every reader: on the clock, and of processor time, which a busy machine does not disturb."""
    clock = _Best(readers)
    work = _Best(readers)
    wrong: dict[str, list[str]] = {name: [] for name in readers}
    for path in paths:
        with open_video(path) as video:
            indices = pick(len(video), path)
            expected = video.get_frames(indices)
        for _ in range(rounds):
            for name, reader in readers.items():
                clock_begin, work_begin = time.perf_counter(), time.process_time()
                frames = reader(path, indices)
                clock.add(name, path, time.perf_counter() - clock_begin)
                work.add(name, path, time.process_time() - work_begin)
                if not _alike(frames, expected) and Path(path).name not in wrong[name]:
                    wrong[name].append(Path(path).name)
    return {
        **clock.summary(),
        "processor": work.summary(),
        "other_frames_than_asked": {name: files for name, files in wrong.items() if files},
        "milliseconds": clock.milliseconds(),
    }


class _Best:
    """The shortest time of every reader on every file."""

    def __init__(self, readers: dict[str, ReadClip]) -> None:
        self._times: dict[str, dict[str, float]] = {name: {} for name in readers}

    def add(self, name: str, path: str, seconds: float) -> None:
        self._times[name][path] = min(seconds, self._times[name].get(path, seconds))

    def summary(self) -> dict[str, Any]:
        speeds = {name: len(times) / sum(times.values()) for name, times in self._times.items()}
        others = {name: speed for name, speed in speeds.items() if name != "fixformer"}
        fastest = max(others, key=others.__getitem__)
        ratio = speeds["fixformer"] / others[fastest]
        return {"clips_per_second": speeds, "fastest_other": fastest, "ratio": ratio}

    def milliseconds(self) -> dict[str, dict[str, float]]:
        paths = next(iter(self._times.values()))
        return {Path(path).name: {name: 1000 * times[path] for name, times in self._times.items()} for path in paths}


def _alike(frames: np.ndarray, expected: np.ndarray) -> bool:
    """The same frames: colour conversion rounds differently in every reader, by less than 3 of 255 on average."""
    return frames.shape == expected.shape and float(np.abs(frames.astype(np.int16) - expected).mean()) < 3


def loader_throughput(paths: list[str], seconds: float) -> dict[str, Any]:
    """Augmented training clips per second with one worker and with two, measured in turn."""
    from fixformer.config import Augment, ClipSpec
    from fixformer.data.listing import Sample
    from fixformer.data.loading.datasets import TrainClips
    from fixformer.data.loading.loaders import TrainLoader

    spec = ClipSpec(frames=FRAMES, size=224, augment=Augment(policy="rand", flip=0.5, colour=0.4, erase=0.25))
    samples = [Sample(path, i % 2, "train", f"{path}#{i}") for i, path in enumerate(paths * 64)]
    speeds: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(2):
        for workers, found in speeds.items():
            loader = TrainLoader(TrainClips(samples, spec, seed=0), batch_size=4, workers=workers)
            found.append(_clips_per_second(loader.epoch(0), seconds / 2))
    one, two = max(speeds[1]), max(speeds[2])
    return {"clips_per_second": {"1 worker": one, "2 workers": two}, "ratio": two / one, "spec": repr(spec)}


def _clips_per_second(batches: Iterator[TrainBatch], seconds: float) -> float:
    """Counted after the first batches, which wait for the workers to start."""
    for _ in zip(range(3), batches, strict=False):
        pass
    begin, clips = time.perf_counter(), 0
    for batch in batches:
        clips += len(batch.labels_B)
        if time.perf_counter() - begin > seconds:
            break
    return clips / (time.perf_counter() - begin)
