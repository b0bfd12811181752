"""Maps over worker processes, in order of completion."""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def processors() -> int:
    """Those that this process may use; macOS and Windows do not say, there it is all of them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def unordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Iterator[tuple[Item, Result]]:
    """(item, result) pairs as they complete; runs in this process if `workers` is less than 2."""
    if workers < 2:
        for item in items:
            yield item, function(item)
        return
    # fork where it exists: with spawn, a user's script without a main guard would start itself again
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker) as pool:
        futures = {pool.submit(function, item): item for item in items}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _start_worker() -> None:
    """One thread per worker: more would compete with the other workers, and may deadlock after a fork."""
    import torch

    torch.set_num_threads(1)


def crash_safe_map(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int
) -> Iterator[tuple[Item, Result | None]]:
    """Like `unordered_map`, but survives native code that crashes a worker: the result of that item is None.

    With fewer than two workers everything runs in this process, which then crashes itself.
    """
    remaining = list(items)
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
