"""Which samples make which batch, on which process. The order follows from (seed, epoch) alone.

A training epoch is a list of global batches, equal in number on every process; each process takes its contiguous part
of every batch, so the global batches are the same for any number of processes. A test pass deals the videos out one by
one: none is dropped and none repeated, so the shares may differ by one.
"""

from collections.abc import Iterator

import numpy as np
from torch.utils.data import Sampler

from fixformer.errors import SettingsConflict, UserError
from fixformer.runtime.seeds import generator

# what a training data set is asked for: the epoch decides the augmentation, so it travels with the index
Key = tuple[int, int]


class TrainSampler(Sampler[list[Key]]):
    """Batches of (epoch, index); `epoch` and `start` (batches already consumed) are set before iterating."""

    def __init__(self, samples: int, batch_size: int, seed: int, rank: int = 0, world: int = 1) -> None:
        if batch_size < 1:
            raise UserError(f"batch size {batch_size}: at least 1 is needed.")
        if batch_size > samples:
            raise UserError(f"batch size {batch_size} is larger than the training set of {samples} videos.")
        if batch_size % world:
            raise SettingsConflict(f"batch size {batch_size} cannot be divided between {world} processes.")
        assert 0 <= rank < world, (rank, world)
        self.samples, self.batch_size, self.seed = samples, batch_size, seed
        self.rank, self.world = rank, world
        self.epoch, self.start = 0, 0

    @property
    def steps(self) -> int:
        """Batches in a whole epoch. The remainder that fills no batch is another one in every epoch."""
        return self.samples // self.batch_size

    def __len__(self) -> int:
        return self.steps - self.start

    def __iter__(self) -> Iterator[list[Key]]:
        epoch, order = self.epoch, self.order(self.epoch)
        share = self.batch_size // self.world
        for step in range(self.start, self.steps):
            begin = step * self.batch_size + self.rank * share
            yield [(epoch, int(index)) for index in order[begin : begin + share]]

    def order(self, epoch: int) -> np.ndarray:
        return generator(self.seed, epoch, "order").permutation(self.samples)


class TestSampler(Sampler[list[int]]):
    """Every index exactly once over all processes."""

    __test__ = False  # not a pytest class

    def __init__(self, samples: int, batch_size: int, rank: int = 0, world: int = 1) -> None:
        assert 0 <= rank < world, (rank, world)
        self._own = range(rank, samples, world)
        self._batch_size = batch_size

    def __len__(self) -> int:
        return (len(self._own) + self._batch_size - 1) // self._batch_size

    def __iter__(self) -> Iterator[list[int]]:
        for begin in range(0, len(self._own), self._batch_size):
            yield list(self._own[begin : begin + self._batch_size])
