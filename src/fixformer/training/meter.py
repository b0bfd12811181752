"""Loss, speed and memory between two rows of the log. Losses stay on their device until the row is written."""

import math
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from torch import Tensor

from fixformer.runtime.distributed import World
from fixformer.runtime.memory import peak_memory

T = TypeVar("T")


class Meter:
    """Measurements of the steps since the last row."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self.losses: list[Tensor] = []
        self.batches: list[Tensor] = []
        self.clips = 0
        self.waited = 0.0
        self._begin = time.perf_counter()

    def timed(self, batches: Iterable[T]) -> Iterator[T]:
        """The same batches; measures the time spent waiting for each."""
        iterator = iter(batches)
        while True:
            begin = time.perf_counter()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            self.waited += time.perf_counter() - begin
            yield batch

    def add(self, loss: Tensor, index_B: Tensor, clips: int) -> None:
        self.losses.append(loss.detach())
        self.batches.append(index_B)
        self.clips += clips

    def first_not_finite(self) -> Tensor | None:
        """The samples of the first batch whose loss is not finite."""
        values = [float(loss) for loss in self.losses]
        return next(
            (batch for value, batch in zip(values, self.batches, strict=True) if not math.isfinite(value)), None
        )

    def row(self, world: World) -> dict[str, float]:
        """Means over the steps and the processes; resets the meter."""
        seconds = time.perf_counter() - self._begin
        own = [float(loss) for loss in self.losses]
        by_rank = world.all_gather(own)
        by_step = [sum(losses) / len(losses) for losses in zip(*by_rank, strict=True)]
        row = {
            "loss": sum(by_step) / len(by_step),
            "clips_per_second": self.clips / seconds,
            "data_wait": self.waited / seconds,
            "memory_mb": peak_memory(world.device) / 2**20,
        }
        self._reset()
        return row
