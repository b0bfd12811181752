"""Load on `fixformer serve`: `python tools/serve_load.py CHECKPOINT OUT.json`.

500 requests, 16 at a time, over the loopback; a fifth of them bad: corrupt, huge, text, empty, or small files that
unpack to enormous pictures. Every answer to a good one is compared with that of Python, every bad one must get a clear
4xx or 5xx. Afterwards no file and no process may be left over, and the memory must be what it was after the first
requests.
"""

import argparse
import os
import platform
import random
import struct
import sys
import tempfile
import time
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from fixformer.data.synthetic import make_motions
from fixformer.evaluation.predictor import load
from fixformer.runtime.console import note, show
from fixformer.runtime.files import write_json
from fixformer.runtime.provenance import source_commit, versions

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "serve")]
from running_server import Running, running, wait_until  # noqa: E402

from videos import encode  # noqa: E402

REQUESTS, AT_ONCE, CLIPS = 500, 16, 40
HUGE_MB = 4
EXPECTED = {  # status and code of each kind of bad request
    "corrupt": (422, "unreadable"),
    "huge": (413, "too_large"),
    "text": (422, "unreadable"),
    "empty": (400, "empty"),
    "bomb": (422, "too_many_pixels"),
    "packed": (422, "too_many_pixels"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        clips = _make_clips(Path(home) / "clips")
        classifier = load(arguments.checkpoint)
        expected = [[guess.probability for guess in classifier.predict(clip).guesses] for clip in clips]
        words = ("--upload-mb", str(HUGE_MB / 2), "--queue", str(AT_ONCE))
        with running(arguments.checkpoint.resolve(), Path(home) / "server", *words) as server:
            result = _measure(server, clips, expected)
    result["machine"] = {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "load_before": result.pop("load_before"),
        "load_after": os.getloadavg(),
    }
    result["versions"] = {**versions(), "commit": source_commit()}
    write_json(arguments.out, result)
    times = result["milliseconds"]["good"]
    show(f"{REQUESTS} requests, {AT_ONCE} at a time: {result['right']} right, {len(result['wrong'])} wrong")
    rate = result["requests_per_second"]
    show(f"good ones: p50 {times['p50']:.0f} ms, p95 {times['p95']:.0f} ms; {rate:.1f} requests/s")
    show(f"left over: {result['left_over']}")
    if result["wrong"] or any(result["left_over"].values()):
        raise SystemExit(1)


def _make_clips(folder: Path) -> list[bytes]:
    note("making clips of motions")
    make_motions(folder, clips=CLIPS, workers=0)
    return [path.read_bytes() for path in sorted(folder.rglob("*.webm"))]


def _bad(kind: str, clip: bytes, rng: random.Random) -> bytes:
    if kind == "corrupt":
        middle = len(clip) // 2
        return clip[:200] + rng.randbytes(middle)
    if kind == "huge":
        return bytes(int(HUGE_MB * 1e6))
    if kind == "bomb":
        return _png(30_000)
    if kind == "packed":
        return BIG_H264
    return b"" if kind == "empty" else b"only words\n" * 100


def _png(side: int) -> bytes:
    """A picture of one bit a pixel, which deflate makes a thousand times smaller."""
    rows = zlib.compress(bytes((1 + side // 8) * side), 9)
    chunks = ((b"IHDR", struct.pack("!IIBBBBB", side, side, 1, 0, 0, 0, 0)), (b"IDAT", rows), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack("!I", len(data)) + name + data + struct.pack("!I", zlib.crc32(name + data)) for name, data in chunks
    )


BIG_H264 = encode(np.zeros((2, 3200, 3200, 3), np.uint8))


def _plan() -> list[tuple[str, int]]:
    """Kind and clip of every request, in a fixed random order."""
    rng = random.Random(0)
    bad = [(list(EXPECTED)[n % len(EXPECTED)], n) for n in range(REQUESTS // 5)]
    plan = bad + [("good", n) for n in range(REQUESTS - len(bad))]
    rng.shuffle(plan)
    return plan


def _measure(server: Running, clips: list[bytes], expected: list[list[float]]) -> dict[str, Any]:
    bodies = {kind: _bad(kind, clips[0], random.Random(1)) for kind in EXPECTED}

    def ask(client: httpx.Client, kind: str, number: int) -> tuple[str, float, str]:
        number %= len(clips)
        body = clips[number] if kind == "good" else bodies[kind]
        begin = time.perf_counter()
        answer = client.post("/v1/predict", files={"file": (f"{kind}.webm", body)})
        seconds = time.perf_counter() - begin
        if kind == "good":
            problem = _compare(answer, expected[number])
        else:
            found = (answer.status_code, answer.json()["error"]["code"])
            problem = "" if found == EXPECTED[kind] else f"{found}, expected {EXPECTED[kind]}"
        return kind, seconds, problem and f"{kind} {number}: {problem}"

    with server.client() as client:
        for number in range(AT_ONCE):
            ask(client, "good", number)
        wait_until(lambda: len(server.descendants()) == 3, "the processes to be ready")
        before, load_before = _state(server), os.getloadavg()
        begin = time.perf_counter()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = list(pool.map(lambda one: ask(client, *one), _plan()))
        seconds = time.perf_counter() - begin
        time.sleep(3)  # until processes that have ended are noticed
        after = _state(server)
    wrong = [problem for _, _, problem in found if problem]
    left_over = {
        "files": after["files"],
        "processes": after["processes"] - before["processes"],
        "memory_mb": max(0, round(after["memory_mb"] - before["memory_mb"] - 20)),  # allocators keep some megabytes
    }
    return {
        "requests": len(found),
        "at_once": AT_ONCE,
        "kinds": Counter(kind for kind, _, _ in found),
        "right": len(found) - len(wrong),
        "wrong": wrong,
        "seconds": seconds,
        "requests_per_second": len(found) / seconds,
        "milliseconds": {
            "good": _percentiles([1000 * time for kind, time, _ in found if kind == "good"]),
            "bad": _percentiles([1000 * time for kind, time, _ in found if kind != "good"]),
        },
        "before": before,
        "after": after,
        "left_over": left_over,
        "load_before": load_before,
    }


def _compare(answer: httpx.Response, expected: list[float]) -> str:
    if answer.status_code != 200:
        return f"status {answer.status_code}: {answer.text[:200]}"
    shares = [guess["probability"] for guess in answer.json()["top"]]
    return "" if np.allclose(shares, expected, atol=1e-4) else f"{shares}, expected {expected}"


def _percentiles(values: list[float]) -> dict[str, float]:
    return {f"p{share}": round(float(np.percentile(values, share)), 1) for share in (50, 95, 99)}


def _state(server: Running) -> dict[str, Any]:
    """Files of uploads, processes and the memory of all of them, each page counted once."""
    pids = [server.process.pid, *server.descendants()]
    shares = [_proportional_kb(pid) for pid in pids]
    (folder,) = server.log.parent.glob("fixformer-serve-*")
    return {"files": len(os.listdir(folder)), "processes": len(pids), "memory_mb": round(sum(shares) / 1024, 1)}


def _proportional_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


if __name__ == "__main__":
    main()
