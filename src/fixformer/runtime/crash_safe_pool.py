"""Work spread over processes that goes on when native code takes one of them down."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Generic, TypeVar

from fixformer.runtime.pools import unordered_map

Item = TypeVar("Item")
Result = TypeVar("Result")


def surviving_map(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int
) -> Iterator[tuple[Item, Result | None]]:
    """(item, result) as they are done; the result of an item whose process died is None.

    With fewer than two workers everything happens in this process, which then dies itself.
    """
    waiting = list(items)
    while waiting:
        done = set()
        try:
            for (place, item), result in unordered_map(_OfPair(function), enumerate(waiting), workers):
                done.add(place)
                yield item, result
        except BrokenProcessPool:
            left = [item for place, item in enumerate(waiting) if place not in done]
            # work is handed out in order, so what killed its process is among the first
            suspects, waiting = left[: 3 * workers + 1], left[3 * workers + 1 :]
            for item in suspects:
                yield item, _alone(function, item)
        else:
            return


class _OfPair(Generic[Item, Result]):
    """Applies a function to the item of a (place, item)."""

    def __init__(self, function: Callable[[Item], Result]) -> None:
        self._function = function

    def __call__(self, pair: tuple[int, Item]) -> Result:
        return self._function(pair[1])


def _alone(function: Callable[[Item], Result], item: Item) -> Result | None:
    """In a pool of its own; two workers, because fewer would mean this process."""
    try:
        return next(result for _, result in unordered_map(function, [item], 2))
    except BrokenProcessPool:
        return None
