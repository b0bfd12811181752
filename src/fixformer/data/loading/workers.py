"""What loaders and their worker processes owe each other: how workers are started, and how errors come home."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import torch

from fixformer.errors import UserError

Item = TypeVar("Item")
Batch = TypeVar("Batch")


def worker_options(workers: int, prefetch: int, *, persistent: bool, pin_memory: bool) -> dict[str, Any]:
    """Of a `DataLoader`."""
    if workers == 0:
        return {"num_workers": 0, "pin_memory": pin_memory}
    return {
        "num_workers": workers,
        "prefetch_factor": prefetch,
        "persistent_workers": persistent,
        "pin_memory": pin_memory,
        "worker_init_fn": _start_worker,
    }


def _start_worker(worker: int) -> None:
    torch.set_num_threads(1)


def collating(collate: Callable[[list[Item]], Batch]) -> Callable[[list[Item | UserError]], Batch | UserError]:
    """`collate` for items of which one may be an error; that one is then the batch.

    Errors travel as items, because raised in a worker they would arrive wrapped in the worker's traceback.
    """
    return _Collate(collate)


class _Collate:
    """A class, because a closure cannot be sent to a worker."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self.collate = collate

    def __call__(self, items: list[Any]) -> Any:
        error = next((item for item in items if isinstance(item, UserError)), None)
        return self.collate(items) if error is None else error


def raising(batches: Iterable[Batch | UserError]) -> Iterator[Batch]:
    """The batches, up to one that is an error, which is raised here."""
    for batch in batches:
        if isinstance(batch, UserError):
            try:
                raise batch
            finally:
                # an error that knows the frame that knows it would keep the workers alive and stop them badly
                del batch
        yield batch
