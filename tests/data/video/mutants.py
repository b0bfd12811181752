"""Damaged videos, made from whole ones by a seed, and a worker that tries to decode a range of them.

Run as `python mutants.py FIRST LAST FOLDER...`: one line per file: number, name, resident KiB, outcome. It is a
process of its own so that a crash, a hang or a leak in native code is seen and does not take the tests with it.
"""

import random
import sys
from pathlib import Path

from fixformer.data.video import DecodeError, Limits, open_video

SIZE_LIMIT = 100_000
LARGER = {".avi": 300_000, ".mpg": 300_000}  # there are no smaller ones
LIMITS = Limits(seconds=5.0, pixels=2048 * 2048, frames=20_000)


def sources(folders: list[Path]) -> list[Path]:
    """Small files of every codec and container."""
    files = sorted(p for folder in folders for p in folder.rglob("*") if p.is_file() and p.parent.name != "licences")
    return [p for p in files if p.stat().st_size <= LARGER.get(p.suffix, SIZE_LIMIT)]


def flip_bits(data: bytearray, rng: random.Random) -> bytearray:
    for _ in range(rng.choice((1, 4, 32, 256))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data


def truncate(data: bytearray, rng: random.Random) -> bytearray:
    return data[: rng.randrange(len(data))]


def damage_header(data: bytearray, rng: random.Random) -> bytearray:
    """Random bytes in the first kilobyte, or where an MP4 keeps its header."""
    moov = data.find(b"moov")
    start = moov if moov > 0 and rng.random() < 0.7 else 0
    for _ in range(rng.choice((1, 8, 64))):
        data[min(start + rng.randrange(1024), len(data) - 1)] = rng.randrange(256)
    return data


def swap_chunks(data: bytearray, rng: random.Random) -> bytearray:
    size = rng.randrange(1, max(2, len(data) // 4))
    a, b = (rng.randrange(max(1, len(data) - size)) for _ in range(2))
    chunk = data[a : a + size]
    data[a : a + size] = data[b : b + size]
    data[b : b + size] = chunk
    return data


def drop_chunk(data: bytearray, rng: random.Random) -> bytearray:
    start = rng.randrange(len(data))
    del data[start : start + rng.randrange(1, 4096)]
    return data


def wipe_chunk(data: bytearray, rng: random.Random) -> bytearray:
    start, size = rng.randrange(len(data)), rng.randrange(1, 4096)
    end = min(len(data), start + size)
    data[start:end] = bytes([rng.choice((0, 0xFF))]) * (end - start)
    return data


MUTATIONS = (flip_bits, truncate, damage_header, swap_chunks, drop_chunk, wipe_chunk)


def mutant(number: int, files: list[Path]) -> tuple[str, bytes]:
    """The damaged file with this number, and how it was made."""
    rng = random.Random(number)
    source = files[number % len(files)]
    mutate = MUTATIONS[number // len(files) % len(MUTATIONS)]
    return f"{source.name}:{mutate.__name__}", bytes(mutate(bytearray(source.read_bytes()), rng))


def outcome(data: bytes, number: int) -> str:
    """Decode a few frames in random order; anything but frames or a `DecodeError` is a defect."""
    rng = random.Random(number)
    policy = "strict" if number % 2 else "partial"
    try:
        with open_video(data, policy=policy, limits=LIMITS, short_side=rng.choice((None, 64))) as video:
            count = len(video)
            wanted = [rng.randrange(count) for _ in range(4)] + [count - 1]
            frames_THWC = video.get_frames(wanted)
            assert frames_THWC.shape[0] == len(wanted)
            return f"{count} frames, {len(video.faults)} faults"
    except DecodeError as error:
        return f"DecodeError {error}"


def resident_kib() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4


def main() -> None:
    first, last, folders = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    files = sources([Path(folder) for folder in folders])
    for number in range(first, last):
        name, data = mutant(number, files)
        print(f"{number} {name}", end=" ", flush=True)
        print(resident_kib(), outcome(data, number).replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
