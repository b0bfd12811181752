"""Dropout and other noise that depends on the clip, not on the process or micro-batch that the clip is in.

Everything random in a forward pass is drawn for the whole batch of the step, from one seed, and each part of the batch
takes its own rows: on one process or eight, at once or in micro-batches, a clip meets the same dropout. Nearly all that
is drawn is small (pooled features, one number per clip and block), so drawing it for all clips costs next to nothing.

Legend: B clips of the part that passes through the model.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class BatchPart:
    """Which clips of a batch of `total` pass through the model."""

    rows_B: Tensor
    total: int


# Empty outside of `share_of_batch`. A context variable would be lost where checkpointed blocks draw again: autograd
# runs the backward pass of a GPU in threads of its own; and torch.compile cannot read one. So the part is the
# process's, and the lock lets one thread at a time have one.
_parts: list[BatchPart] = []
_lock = RLock()


@contextmanager
def share_of_batch(start: int, stop: int, total: int, device: torch.device | None = None) -> Iterator[None]:
    """Within, models in training are given clips `start` to `stop` of a batch of `total`.

    It must enclose the backward pass, too, which may draw again. Another thread that trains waits for its turn.
    """
    with _lock:
        _parts.append(BatchPart(torch.arange(start, stop, device=device), total))
        try:
            yield
        finally:
            _parts.pop()


def clip_noise(draw: Callable[[int], Tensor], rows: int) -> Tensor:
    """`rows` rows of noise, the same number for each clip of the current part; `draw(n)` gives n rows."""
    if not _parts:
        return draw(rows)
    part = _parts[-1]
    each, rest = divmod(rows, len(part.rows_B))
    assert rest == 0, f"{rows} rows of noise for {len(part.rows_B)} clips of share_of_batch"
    return draw(part.total * each).unflatten(0, (part.total, each))[part.rows_B].flatten(0, 1)


class Dropout(nn.Module):
    """Zeros at random in training, the rest scaled up; clips are the first axis."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        return drop(x, self.rate, tuple(x.shape[1:])) if self.training else x


class DropPath(nn.Module):
    """Drop a residual branch for whole clips, in training only."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def factor(self, x: Tensor) -> Tensor | None:
        """What each clip of the branch is multiplied by, `[B, 1, ...]`; None where nothing is dropped."""
        return keep_factor(x, self.rate, (1,) * (x.ndim - 1)) if self.training and self.rate else None

    def forward(self, x: Tensor) -> Tensor:
        factor = self.factor(x)
        return x if factor is None else x * factor


def drop(x: Tensor, rate: float, shape: tuple[int, ...]) -> Tensor:
    """`x` times a mask of `shape` for every row."""
    return x * keep_factor(x, rate, shape) if rate else x


def keep_factor(x: Tensor, rate: float, shape: tuple[int, ...]) -> Tensor:
    """0 at random, 1 / (1 - rate) elsewhere, of `shape` for every row of `x`."""
    chance = clip_noise(lambda rows: torch.rand(rows, *shape, device=x.device), len(x))
    return ((chance >= rate) / (1 - rate)).to(x.dtype)
