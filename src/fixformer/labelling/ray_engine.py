"""The Ray engine: the rows that are left as Parquet -> `map_batches` with an actor around a `Labeller` -> Parquet.

What is done is what the result's own files hold, so a run that was stopped goes on with either engine. Ray's
`CheckpointConfig(id_column=...)` is not used: it keeps a second record of that, which knows nothing of what the local
engine wrote, and reserves 1 GiB on the cluster for each actor that filters.
"""

import logging
import os
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fixformer.errors import MissingExtra, UserError
from fixformer.labelling.arrow import import_arrow
from fixformer.labelling.label_parts import PartFiles
from fixformer.labelling.labeller import Labeller, LabelSettings
from fixformer.labelling.work_plan import WorkPlan
from fixformer.runtime.files import replacing
from fixformer.runtime.pools import processors
from fixformer.runtime.progress import Report
from fixformer.runtime.signals import HANDLED

# Of a processor: for the tasks that read and write, which must find room beside the actors, also on one processor.
_TASK_CPUS = 0.25
_CONNECT_SECONDS = 5.0
_POLL_SECONDS = 2.0  # between looks at what was written


class LabelBatch:
    """The actor: a batch of rows in, the same rows with their labels out."""

    def __init__(self, settings: LabelSettings, digest: str, schema: Any) -> None:
        self._labeller, self._schema = Labeller(settings, digest), schema

    def __call__(self, table: Any) -> Any:
        rows = sorted(self._labeller.label_rows(table.to_pylist()), key=lambda row: row["row"])
        return import_arrow().Table.from_pylist(rows, self._schema)


def run_ray(
    settings: LabelSettings,
    digest: str,
    plan: WorkPlan,
    todo_N: np.ndarray,
    parts: PartFiles,
    *,
    rows_per_file: int,
    address: str | None,
    num_gpus: float,
    concurrency: int | None,
    progress: Report,
) -> None:
    """Label the rows that are left on a cluster; all of it must see the directory, the checkpoint and the videos."""
    pending = parts.folder.parent / "pending"
    shutil.rmtree(pending, ignore_errors=True)
    files = _write_pending(plan, todo_N, pending, rows_per_file)
    parts.folder.mkdir(exist_ok=True)
    with connected(address) as ray, _watching(parts, int(todo_N.sum()), progress):
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        # the newer reader makes one block of many small files: one file in the end, instead of one a batch
        context.use_datasource_v2 = False
        cpus = max(settings.workers, settings.threads)
        room = actors_with_room(ray.cluster_resources(), cpus, num_gpus)
        actors = min(concurrency or room, len(files))
        rows = ray.data.read_parquet(files, override_num_blocks=len(files), num_cpus=_TASK_CPUS, partitioning=None)
        labelled = rows.map_batches(
            LabelBatch,
            fn_constructor_args=(settings, digest, parts.schema),
            batch_format="pyarrow",
            batch_size=rows_per_file,
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=actors),
            num_cpus=cpus - _TASK_CPUS,
            num_gpus=num_gpus,
        )
        try:
            labelled.write_parquet(str(parts.folder.resolve()), ray_remote_args={"num_cpus": _TASK_CPUS})
        except ray.exceptions.RayError as error:
            raise user_error(error) or error from None
    shutil.rmtree(pending, ignore_errors=True)


def _write_pending(plan: WorkPlan, todo_N: np.ndarray, folder: Path, rows_per_file: int) -> list[str]:
    """The rows that are left, in files as long as those of the result will be: the unit that Ray repeats."""
    pa = import_arrow()
    files: list[str] = []
    for table in plan.tables(todo_N):
        for first in range(0, len(table), rows_per_file):
            path = folder / f"{len(files):09}.parquet"
            with replacing(path) as temporary, pa.OSFile(str(temporary), "wb") as file:
                pa.parquet.write_table(table.slice(first, rows_per_file), file)
            files.append(str(path.resolve()))
    return files


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Ray, on the cluster at an address, or on this machine alone; the handlers of signals stay as they were."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        import ray.data
    except ImportError:
        raise MissingExtra("--engine ray", "ray") from None
    logging.getLogger("ray.data").setLevel(logging.ERROR)  # it describes every execution
    if ray.is_initialized():
        yield ray
        return
    in_main_thread = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in HANDLED}
    local: dict[str, Any] = {} if address else {"num_cpus": processors(), "include_dashboard": False}
    try:
        ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **local)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise UserError(f"no Ray cluster at address={address}: {reason}; start one with `ray start --head`.") from None
    try:
        yield ray
    finally:
        ray.shutdown()
        for number, handler in handlers.items() if in_main_thread else ():
            signal.signal(number, handler)


def require_server(address: str | None) -> None:
    """Fail at once if nothing listens at an address: Ray itself would try for a minute."""
    if address in (None, "auto"):
        return
    place = str(address).removeprefix("ray://")
    host, _, port = place.rpartition(":")
    if not host or not port.isdecimal():
        raise UserError(f"address={address}: expected HOST:PORT, ray://HOST:PORT or auto.")
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(
            f"no Ray cluster at address={address} ({reason}); start one with `ray start --head`, or leave the address "
            "out to use this machine."
        ) from None


def actors_with_room(resources: dict[str, float], cpus: int, num_gpus: float) -> int:
    """How many actors a cluster can have; a `UserError` if it is none, for which Ray would wait for ever."""
    room = resources.get("CPU", 0) / cpus
    if num_gpus:
        room = min(room, resources.get("GPU", 0) / num_gpus)
    if room < 1:
        have = f"{resources.get('CPU', 0):g} processors and {resources.get('GPU', 0):g} GPUs"
        raise UserError(
            f"the Ray cluster has {have}, but an actor needs {cpus} and {num_gpus:g}; use fewer workers, threads or "
            "num_gpus, or a larger cluster."
        )
    return int(room)


def user_error(error: BaseException) -> UserError | None:
    """What a user can do something about, if that is why a task of Ray failed."""
    reason: BaseException | None = error
    while reason is not None:
        cause = getattr(reason, "cause", None)
        if isinstance(cause, UserError):
            return cause
        reason = cause if isinstance(cause, BaseException) else reason.__cause__
    return None


@contextmanager
def _watching(parts: PartFiles, total: int, progress: Report) -> Iterator[None]:
    """Report how many rows the finished files hold; Ray's own bars count blocks."""
    known = {path.name for path in parts.paths()}
    counted: dict[str, int] = {}
    ended = threading.Event()

    def look() -> None:
        parquet = import_arrow().parquet
        for path in parts.paths():
            if path.name not in known and path.name not in counted:
                try:
                    counted[path.name] = parquet.read_metadata(path).num_rows
                except (OSError, ValueError):  # is being written
                    continue
        progress(min(total, sum(counted.values())), total)

    def watch() -> None:
        while not ended.wait(_POLL_SECONDS):
            look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        look()
