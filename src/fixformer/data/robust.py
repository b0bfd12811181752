"""Work spread over processes that goes on when native code takes one of them down."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Generic, TypeVar

from fixformer.data.parallel import unordered_map

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
            for place, result in unordered_map(_Numbered(function, waiting), range(len(waiting)), workers):
                done.add(place)
                yield waiting[place], result
        except BrokenProcessPool:
            left = [item for place, item in enumerate(waiting) if place not in done]
            # work is handed out in order, so what killed its process is among the first
            suspects, waiting = left[: 3 * workers + 1], left[3 * workers + 1 :]
            for item in suspects:
                yield item, _alone(function, item)
        else:
            return


class _Numbered(Generic[Item, Result]):
    """Applies a function to the item at a place; items themselves need not be hashable."""

    def __init__(self, function: Callable[[Item], Result], items: list[Item]) -> None:
        self._function, self._items = function, items

    def __call__(self, place: int) -> Result:
        return self._function(self._items[place])


def _alone(function: Callable[[Item], Result], item: Item) -> Result | None:
    """In a pool of its own; two workers, because fewer would mean this process."""
    try:
        return next(result for _, result in unordered_map(function, [item], 2))
    except BrokenProcessPool:
        return None
