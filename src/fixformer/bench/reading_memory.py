"""Whether reading videos again and again costs memory: the slope of resident memory over many decodes."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from fixformer.bench.sample_videos import make_small_clips
from fixformer.data.video import DecodeError, open_video
from fixformer.runtime.memory import resident_memory

SAMPLES = 200  # of memory, over all decodes


def memory_slope(decodes: int) -> dict[str, Any]:
    """Read small videos of several codecs, whole and damaged ones, and fit a line to the memory in use.

    The first quarter is left out: caches fill in it.
    """
    with tempfile.TemporaryDirectory() as folder:
        sources = [Path(path).read_bytes() for path in make_small_clips(Path(folder))]
    sources += [data[: len(data) * 2 // 3] for data in sources]
    every = max(1, decodes // SAMPLES)
    numbers, resident = [], []
    for number in range(decodes):
        _read(sources[number % len(sources)], number)
        if number % every == 0:
            numbers.append(number)
            resident.append(resident_memory() // 1024)
    settled = len(numbers) // 4
    slope = np.polyfit(numbers[settled:], resident[settled:], 1)[0]
    return {
        "decodes": decodes,
        "kib_per_1000_decodes": float(slope) * 1000,
        "resident_kib": {
            "first": resident[0],
            "settled": resident[settled],
            "last": resident[-1],
            "most": max(resident),
        },
    }


def _read(data: bytes, number: int) -> None:
    try:
        with open_video(data, policy="partial") as video:
            video.get_frames([number % len(video), len(video) - 1])
    except DecodeError:
        pass
