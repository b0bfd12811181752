"""Run by test_ray_engine.py in a process of its own, because Ray keeps threads and signal handlers in its process.

python ray_run.py COMMAND MANIFEST CHECKPOINT OUT: starts a cluster of two nodes, runs the command of docs/deploy.md on
it, kills the process of an actor meanwhile, and prints what is left of this process's own handlers.
"""

import os
import shlex
import signal
import sys
import threading
import time
from pathlib import Path

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
# a busy machine must not lose a node because it was slow to answer
HEALTH = {"health_check_initial_delay_ms": 120_000, "health_check_timeout_ms": 120_000}


def actors_of_this_process() -> list[int]:
    """Processes that Ray named after our actor and that descend from this one."""
    parents, names = {}, {}
    for folder in Path("/proc").iterdir():
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            names[int(folder.name)] = (folder / "cmdline").read_text()
        except (ValueError, OSError):
            continue
    own = {os.getpid()}
    for _ in range(6):
        own |= {pid for pid, parent in parents.items() if parent in own}
    return [pid for pid in own if names.get(pid, "").startswith("ray::MapWorker")]


def kill_an_actor(rows: Path) -> None:
    while not list(rows.glob("*.parquet")):
        time.sleep(0.05)
    for pid in actors_of_this_process()[:1]:
        os.kill(pid, signal.SIGKILL)
        print("killed", pid, flush=True)


def main() -> None:
    command, manifest, checkpoint, out = sys.argv[1:]
    from ray.cluster_utils import Cluster

    from fixformer.cli.app import main as fixformer

    small = {"num_cpus": 1, "object_store_memory": 80 << 20}
    cluster = Cluster(True, head_node_args={**small, "include_dashboard": False, "_system_config": HEALTH})
    try:
        cluster.add_node(**small)
        places = {"manifest.parquet": manifest, "runs/signs": checkpoint, "labels": out, "host0:6379": cluster.address}
        words = [places.get(word, word) for word in shlex.split(command)[1:]]
        threading.Thread(target=kill_an_actor, args=(Path(out) / "rows",), daemon=True).start()
        before = signal.getsignal(signal.SIGTERM)
        fixformer([*words, "--rows-per-file", "4", "--views", "1x1"])
        print("handlers kept", signal.getsignal(signal.SIGTERM) is before)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
