"""Maps over worker processes, in order of completion."""

import math
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar

from fixformer.runtime.console import note
from fixformer.runtime.parent import end_with_parent

Item = TypeVar("Item")
Result = TypeVar("Result")


CGROUPS, OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def processors() -> int:
    """Those that this process may use; macOS and Windows do not say, there it is all of them."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min(found, *_quotas(), math.inf)))


def _quotas() -> Iterator[float]:
    """How many processors' time a container or service may use: the limits of its cgroup and of those around it."""
    own = ""
    with suppress(OSError):  # in a container, where its cgroup is the outermost that can be seen, this says "/"
        own = next((line[3:].strip() for line in OWN_CGROUP.read_text().splitlines() if line.startswith("0::")), "")
    place = CGROUPS / own.lstrip("/")
    for folder in (place, *place.parents):
        with suppress(OSError, ValueError, ZeroDivisionError):  # "max" is no number: there is no limit
            quota, period = (folder / "cpu.max").read_text().split()
            yield int(quota) / int(period)
        if folder == CGROUPS:
            return


# More processes than this only take turns and memory. Some more than there are processors help where a worker waits for
# a slow disk or the network.
WORKERS_PER_PROCESSOR = 4
MIN_WORKERS = 16


@cache  # the note is printed once
def affordable_workers(wanted: int) -> int:
    """As many workers as wanted, or as this machine can use; a command may come from a larger one."""
    limit = max(MIN_WORKERS, WORKERS_PER_PROCESSOR * processors())
    if wanted > limit:
        reason = f"more would not be faster on {processors()} processors"
        note(f"note: {limit} workers instead of {wanted}: {reason}")
    return min(wanted, limit)


def unordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Iterator[tuple[Item, Result]]:
    """(item, result) pairs as they complete; runs in this process if `workers` is less than 2."""
    if workers < 2:
        for item in items:
            yield item, function(item)
        return
    waiting = list(items)
    count = max(1, min(affordable_workers(workers), len(waiting)))
    # fork where it exists: with spawn, a user's script without a main guard would start itself again
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(count, mp_context=context, initializer=start_worker) as pool:
        futures = {pool.submit(function, item): item for item in waiting}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def start_worker() -> None:
    """What every worker process does first: it ends with its parent, prints by itself, and computes in one thread.

    More threads would compete with the other workers, and may deadlock after a fork. So does printing above a live
    progress bar, if the thread that draws it had the console's lock at the fork.
    """
    import torch

    end_with_parent()
    # what rich puts in their place knows them by this name
    sys.stdout = getattr(sys.stdout, "rich_proxied_file", sys.stdout)
    sys.stderr = getattr(sys.stderr, "rich_proxied_file", sys.stderr)
    torch.set_num_threads(1)


def crash_safe_map(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int
) -> Iterator[tuple[Item, Result | None]]:
    """Like `unordered_map`, but survives native code that crashes a worker: the result of that item is None.

    With fewer than two workers everything runs in this process, which then crashes itself.
    """
    remaining, workers = list(items), affordable_workers(workers)
    while remaining:
        unfinished = dict(enumerate(remaining))
        try:
            for (number, item), result in unordered_map(_OnItem(function), enumerate(remaining), workers):
                del unfinished[number]
                yield item, result
            return
        except BrokenProcessPool:
            # The pool does not say which item crashed. It hands items out in order: at most 2 * workers + 1 are running
            # or queued, and the results of `workers` more may be lost on their way. So the culprit is among the first
            # unfinished ones: try those one by one.
            left = list(unfinished.values())
            suspects, remaining = left[: 3 * workers + 1], left[3 * workers + 1 :]
            for item in suspects:
                yield item, _isolated(function, item)


class _OnItem(Generic[Item, Result]):
    """Applies a function to the item of a (number, item) pair; a class, because a closure cannot be pickled."""

    def __init__(self, function: Callable[[Item], Result]) -> None:
        self._function = function

    def __call__(self, pair: tuple[int, Item]) -> Result:
        return self._function(pair[1])


def _isolated(function: Callable[[Item], Result], item: Item) -> Result | None:
    """The result of one item in a pool of its own; of two workers, because fewer would mean this process."""
    try:
        return next(result for _, result in unordered_map(function, [item], 2))
    except BrokenProcessPool:
        return None
