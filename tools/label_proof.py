"""Show what `fixformer label` promises, on LSA64's test signers, and write it to a JSON file, one part after the other.

    python tools/label_proof.py same|rate|kills|broken|million CHECKPOINT results/label.json

same: eval, predict, the local engine and Ray give the same rows. rate: the local engine beside decoding alone and the
model alone; wants a quiet machine. kills: SIGKILL of local runs, of a Ray worker and of a node. broken: 2,000 videos,
5 % of them damaged in four ways. million: a manifest of a million rows, planned in constant memory.
"""

import argparse
import csv
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

import fixformer
from fixformer.data.listing import load_index
from fixformer.labelling.corpus import Labelled, label
from fixformer.labelling.decoding import Row
from fixformer.labelling.labeller import Labeller, LabelSettings
from fixformer.labelling.row_sources import open_rows
from fixformer.models.checkpoint import find_checkpoint
from fixformer.runtime.files import read_json, write_json
from fixformer.runtime.machine import describe_machine
from fixformer.runtime.pools import processors
from fixformer.runtime.progress import progress

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "lsa64"
TOLERANCE = 1e-6
ROWS_PER_FILE = 8
# A node of the test cluster is declared dead only after so long, because this machine may be busy with other things.
HEALTH = {
    "health_check_initial_delay_ms": 60_000,
    "health_check_timeout_ms": 60_000,
    "health_check_period_ms": 10_000,
    "health_check_failure_threshold": 10,
}


def test_videos() -> list[str]:
    return [sample.path for sample in load_index(DATA, kind="lsa64").split("test")]


def manifest(home: Path, paths: list[str]) -> Path:
    target = home / "manifest.csv"
    with target.open("w", newline="") as file:
        csv.writer(file).writerows([["path"], *([path] for path in paths)])
    return target


def same(checkpoint: str, home: Path) -> dict[str, Any]:
    """The label and its probability of every test video, in four ways."""
    paths = test_videos()
    ways: dict[str, dict[str, tuple[str, float]]] = {}
    seconds: dict[str, float] = {}

    def timed(way: str, work: Callable[[], Iterator[tuple[str, str, float]]]) -> None:
        begin = time.monotonic()
        ways[way] = {path: (name, share) for path, name, share in work()}
        seconds[way] = time.monotonic() - begin
        print(f"{way}: {len(ways[way])} videos in {seconds[way]:.0f} s", flush=True)

    def by_eval() -> Iterator[tuple[str, str, float]]:
        found = fixformer.evaluate(checkpoint, data=DATA, kind="lsa64", split="test", workers=1)
        yield from ((one.path, found.labels[one.predicted], one.probability) for one in found.videos)

    def by_predict() -> Iterator[tuple[str, str, float]]:
        classifier = fixformer.load(checkpoint)
        for one in classifier.predict_each(paths):
            assert not isinstance(one, Exception), one
            yield one.file, one.label, one.guesses[0].probability

    def by_label(**options: Any) -> Callable[[], Iterator[tuple[str, str, float]]]:
        out = home / options.get("engine", "local")
        return lambda: (
            (row["path"], row["label"], row["probability"])
            for row in label(manifest(home, paths), checkpoint, out, rows_per_file=32, **options).rows()
        )

    timed("eval", by_eval)
    timed("predict", by_predict)
    timed("local", by_label())
    timed("ray", by_label(engine="ray"))
    pairs = {f"{a} and {b}": (ways[a], ways[b]) for a, b in itertools.combinations(ways, 2)}
    differences = {name: max(abs(a[path][1] - b[path][1]) for path in paths) for name, (a, b) in pairs.items()}
    labels = {name: sum(a[path][0] != b[path][0] for path in paths) for name, (a, b) in pairs.items()}
    return {
        "videos": len(paths),
        "largest_difference_of_a_probability": differences,
        "different_labels": labels,
        "videos_per_second": {way: round(len(paths) / took, 2) for way, took in seconds.items()},
        "passed": max(differences.values()) <= TOLERANCE and not any(labels.values()),
    }


def rate(checkpoint: str, home: Path) -> dict[str, Any]:
    """Decoding alone, the model alone, and both, with the same processes and threads, in turns; medians count."""
    listed = open_rows(str(manifest(home, test_videos()))).rows
    rows = [{**row, "row": number, "escaped_cells": False} for number, row in enumerate(listed)]
    many = processors()
    found: dict[str, Any] = {
        "videos": len(rows),
        "default": _rates(checkpoint, rows, many, rounds=3),
        "one_core_each": _rates(checkpoint, rows[::4], 1, rounds=1),
    }
    done = label(home / "manifest.csv", checkpoint, home / "all")
    found["whole_command"] = {"videos_per_second": done.summary.rate, "real_time_factor": done.summary.real_time_factor}
    default = found["default"]
    found["passed"] = default["of_the_slower"] >= 0.9 and default["cores_busy"] >= 0.9 * many
    return found


def _rates(checkpoint: str, rows: list[Row], many: int, rounds: int) -> dict[str, Any]:
    settings = LabelSettings(str(find_checkpoint(checkpoint)), workers=many, threads=many, device="cpu")
    videos, busy, wall = len(rows), 0.0, 0.0
    turns: dict[str, list[float]] = {"decode_only": [], "model_only": [], "label_rows": []}
    with Labeller(settings, "") as labeller:
        list(labeller.label_rows(rows[:32]))  # the first batches allocate
        for _ in range(rounds):
            turns["decode_only"].append(_rate(videos, partial(_decode_only, labeller, rows)))
            turns["model_only"].append(_rate(videos, partial(_model_only, labeller, videos)))
            before = _cpu_seconds(labeller)
            turns["label_rows"].append(_rate(videos, partial(list, labeller.label_rows(rows))))
            busy += _cpu_seconds(labeller) - before
            wall += videos / turns["label_rows"][-1]
    decode, model, both = (median(turns[name]) for name in turns)
    # each alone had all the cores; when both run, a video needs the processor time of both
    together = 1 / (1 / decode + 1 / model)
    return {
        "decoding_processes": many,
        "model_threads": many,
        **{name: [round(one, 2) for one in rates] for name, rates in turns.items()},
        "of_the_slower": round(both / min(decode, model), 3),
        "cores_busy": round(busy / wall, 2),
        "limit_if_the_cores_are_shared": round(together, 2),
        "of_that_limit": round(both / together, 3),
    }


def _rate(videos: int, work: Callable[[], object]) -> float:
    begin = time.monotonic()
    work()
    return videos / (time.monotonic() - begin)


def _decode_only(labeller: Labeller, rows: list[Row]) -> None:
    for one in labeller._pool.decode(rows):
        labeller._pool.release(one.slot)


def _model_only(labeller: Labeller, videos: int) -> None:
    """The model on slots as the decoders left them."""
    size = labeller.settings.batch_size
    model, device = labeller._models.get()
    labeller._models.put((model, device))
    views_BVCTHW = labeller._pool.views_SVCTHW[:size]

    @torch.inference_mode()
    def batch(_: int) -> None:
        labeller.logits(model, views_BVCTHW.clone().to(device))

    list(labeller._executor.map(batch, range(-(-videos // size))))


def _cpu_seconds(labeller: Labeller) -> float:
    """Processor time so far of this process and of the decoders."""
    ticks = os.sysconf("SC_CLK_TCK")
    total = time.process_time()
    for process in labeller._pool._processes:
        fields = Path(f"/proc/{process._process.pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / ticks
    return total


def kills(checkpoint: str, home: Path) -> dict[str, Any]:
    paths = test_videos()
    rng = random.Random(0)
    local = _kill_local(checkpoint, home, paths[:320], rng)
    ray = _kill_ray(checkpoint, home, paths[:96])
    return {"local": local, **ray, "passed": all(part["passed"] for part in (local, *ray.values()))}


def _command(checkpoint: str, home: Path, out: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "fixformer", "label", str(home / "manifest.csv"), "--checkpoint", checkpoint]
    return subprocess.Popen([*command, "--out", str(out), "--rows-per-file", str(ROWS_PER_FILE), *words])


def _files(out: Path) -> int:
    return len(list((out / "rows").glob("*.parquet")))


def _once_each(out: Path, paths: list[str]) -> dict[str, Any]:
    done = label(out.parent / "manifest.csv", read_json(out.parent / "checkpoint.json"), out)
    return _checked(done, paths)


def _checked(done: Labelled, paths: list[str]) -> dict[str, Any]:
    """Whether every row is there once, in its place."""
    rows = list(done.rows())
    counts = Counter(row["row"] for row in rows)
    lost = [number for number in range(len(paths)) if number not in counts]
    twice = [number for number, count in counts.items() if count > 1]
    wrong = [row["row"] for row in rows if row["path"] != paths[row["row"]] or row["status"] != "ok"]
    return {"rows": len(rows), "lost": len(lost), "twice": len(twice), "passed": not lost and not twice and not wrong}


def _kill_local(checkpoint: str, home: Path, paths: list[str], rng: random.Random) -> dict[str, Any]:
    manifest(home, paths)
    write_json(home / "checkpoint.json", checkpoint)
    out, killed, at = home / "killed", 0, []
    while killed < 10:
        run, before = _command(checkpoint, home, out), _files(out)
        while run.poll() is None and _files(out) <= before:  # it has written something new
            time.sleep(0.05)
        time.sleep(rng.uniform(0, 1.5))
        assert run.poll() is None, "the run ended before it was killed; give it more videos"
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        killed += 1
        at.append(_files(out))
        print(f"kill {killed}: {at[-1]} files written", flush=True)
    assert _command(checkpoint, home, out).wait() == 0
    return {"videos": len(paths), "kills": killed, "files_at_each_kill": at, **_once_each(out, paths)}


def _kill_ray(checkpoint: str, home: Path, paths: list[str]) -> dict[str, Any]:
    from ray.cluster_utils import Cluster

    manifest(home, paths)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    small = {"object_store_memory": 100 << 20, "include_dashboard": False}
    cluster = Cluster(True, head_node_args={"num_cpus": 1, "_system_config": HEALTH, **small})
    found: dict[str, Any] = {}
    try:
        nodes = [cluster.add_node(num_cpus=1, object_store_memory=100 << 20) for _ in range(2)]
        cluster.wait_for_nodes()
        for what in ("ray_worker", "ray_node"):
            out = home / what
            words = ("--engine", "ray", "--address", cluster.address, "--concurrency", "3")
            run = _command(checkpoint, home, out, *words)
            while run.poll() is None and _files(out) < 2:
                time.sleep(0.1)
            assert run.poll() is None, f"{what}: the run ended before anything could be killed"
            written = _files(out)
            if what == "ray_worker":
                victim = _labelling_worker()
                os.kill(victim, signal.SIGKILL)
            else:
                cluster.remove_node(nodes.pop(), allow_graceful=False)
            print(f"{what}: killed with {written} files written", flush=True)
            status = run.wait()
            found[what] = {
                "videos": len(paths),
                "files_at_the_kill": written,
                "of": len(paths) // ROWS_PER_FILE,
                "run_went_on": status == 0,
                **_once_each(out, paths),
            }
    finally:
        cluster.shutdown()
    return found


def _labelling_worker() -> int:
    """The process of an actor that labels, of this program's own cluster."""
    own = {os.getpid()}
    parents = {int(path.name): _parent(path) for path in Path("/proc").iterdir() if path.name.isdecimal()}
    for _ in range(6):  # children of children
        own |= {pid for pid, parent in parents.items() if parent in own}
    names = {pid: _title(pid) for pid in own}
    return next(pid for pid, name in names.items() if name.startswith("ray::MapWorker"))


def _parent(folder: Path) -> int:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def broken(checkpoint: str, home: Path) -> dict[str, Any]:
    """2,000 rows: 95 videos twenty times each, and 100 that cannot be labelled."""
    good = test_videos()[:95]
    bad = list(_broken_files(home / "bad", good))
    paths = good * 20 + bad
    random.Random(0).shuffle(paths)
    classifier = fixformer.load(checkpoint)
    expected = {path: classifier.predict(path) for path in good}
    done = label(manifest(home, paths), checkpoint, home / "out", progress=_shown())
    rows = list(done.rows())
    ok = [row for row in rows if row["status"] == "ok"]
    far = max(abs(row["probability"] - expected[row["path"]].guesses[0].probability) for row in ok)
    others = sum(row["label"] != expected[row["path"]].label for row in ok)
    listed = Counter(Path(row["path"]).stem.partition("-")[0] for row in rows if row["status"] != "ok")
    reasons = {
        Path(row["path"]).stem.partition("-")[0]: f"{row['status']}: {row['error']}" for row in rows if row["error"]
    }
    named = {row["path"] for row in rows if row["error"]} == set(bad)
    return {
        "rows": len(rows),
        "statuses": done.summary.statuses,
        "listed": dict(listed),
        "example": reasons,
        "others_with_another_label": others,
        "others_largest_difference": far,
        "passed": len(rows) == 2000 and named and others == 0 and far <= TOLERANCE and len(ok) == 1900,
    }


def _broken_files(folder: Path, good: list[str]) -> Iterator[str]:
    folder.mkdir()
    for number in range(25):
        data = bytearray(Path(good[number]).read_bytes())
        middle = len(data) // 2
        data[middle : middle + 2000] = random.Random(number).randbytes(2000)
        contents = {"corrupt": bytes(data[: int(len(data) * 0.8)]), "empty": b"", "text": b"this is no video\n" * 50}
        for name, content in contents.items():
            path = folder / f"{name}-{number}.mp4"
            path.write_bytes(content)
            yield str(path)
        yield str(folder / f"missing-{number}.mp4")


def _shown() -> Any:
    return progress("labelling videos").__enter__()


# Prints resident memory before, and the peak after, planning; run in a process of its own.
_PLANNING = """
import sys, time
from fixformer.labelling.row_sources import open_rows
from fixformer.labelling.work_plan import WorkPlan, write_plan
from pathlib import Path
import fixformer.labelling.corpus, pyarrow.parquet
from fixformer.runtime.memory import peak_memory, reset_peak_memory
before, begin = reset_peak_memory(), time.monotonic()
write_plan(open_rows(sys.argv[1]), Path(sys.argv[2]))
print(before, peak_memory(), time.monotonic() - begin, len(WorkPlan(Path(sys.argv[2]))))
"""


def million(checkpoint: str, home: Path) -> dict[str, Any]:
    paths = test_videos()[:8]
    found: dict[str, Any] = {"planning": []}
    for rows in (10_000, 1_000_000):
        for kind in ("csv", "parquet"):
            source = _long_manifest(home, paths, rows, kind)
            words = [sys.executable, "-c", _PLANNING, str(source), str(home / f"plan-{rows}-{kind}.parquet")]
            printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
            row = {
                "rows": int(printed[3]),
                "manifest": kind,
                "before_mib": round(int(printed[0]) / 2**20),
                "peak_mib": round(int(printed[1]) / 2**20),
                "seconds": round(float(printed[2]), 1),
            }
            print(row, flush=True)
            found["planning"].append(row)
    done = label(home / "1000000.parquet", checkpoint, home / "out", limit=64)
    again = label(home / "1000000.parquet", checkpoint, home / "out", limit=96)
    counts = (done.summary.labelled, again.summary.labelled, again.summary.listed)
    found["labelled"] = dict(zip(("limit_64", "then_limit_96", "listed"), counts, strict=True))
    growth = {
        kind: max(row["peak_mib"] - row["before_mib"] for row in found["planning"] if row["manifest"] == kind)
        - min(row["peak_mib"] - row["before_mib"] for row in found["planning"] if row["manifest"] == kind)
        for kind in ("csv", "parquet")
    }
    found["growth_mib_from_10_thousand_to_a_million"] = growth
    found["passed"] = max(growth.values()) < 64 and counts == (64, 96, 1_000_000)
    return found


def _long_manifest(home: Path, paths: list[str], rows: int, kind: str) -> Path:
    target = home / f"{rows}.csv"
    if kind == "csv":
        with target.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["path", "id", "shop", "price"])
            writer.writerows((paths[i % len(paths)], f"video-{i}", f"shop {i % 97}", i % 1000) for i in range(rows))
        return target
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    columns = target.with_suffix(".parquet")
    reader = pyarrow.csv.open_csv(target)
    with pa.parquet.ParquetWriter(columns, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch, row_group_size=10_000)
    return columns


PARTS = {"same": same, "rate": rate, "kills": kills, "broken": broken, "million": million}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("checkpoint")
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="label_proof_"))
    machine, begin = describe_machine(processors()), time.monotonic()
    try:
        found = PARTS[given.part](given.checkpoint, home)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    minutes = round((time.monotonic() - begin) / 60, 1)
    known = read_json(given.out) if given.out.exists() else {}
    load_after = round(os.getloadavg()[0], 1)
    known[given.part] = {**found, "minutes": minutes, "machine": {**machine, "load_average_after": load_after}}
    write_json(given.out, known)
    print(known[given.part])
    sys.exit(0 if found["passed"] else 1)


if __name__ == "__main__":
    main()
