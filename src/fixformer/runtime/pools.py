"""Work spread over processes."""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def processors() -> int:
    """Those that this process may use; macOS and Windows do not say, there it is all of them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def unordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Iterator[tuple[Item, Result]]:
    """(item, result) as they are done; in this process if `workers` is less than 2."""
    if workers < 2:
        for item in items:
            yield item, function(item)
        return
    # fork where it exists: with spawn, a user's script without a main guard would start itself again
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(workers, mp_context=context, initializer=one_thread) as pool:
        futures = {pool.submit(function, item): item for item in items}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def one_thread() -> None:
    """A worker that starts threads of its own fights its siblings, and after a fork they may hang."""
    import torch

    torch.set_num_threads(1)
