"""Noise that belongs to a clip, not to the process or the part of a batch that the clip happens to be in.

Everything random in a forward pass is drawn for the whole batch of the step, from one seed, and each share of the batch
takes its own rows: on one process or eight, at once or in parts, a clip meets the same dropout. Nearly all that is
drawn is small (pooled features, one number per clip and block), so drawing it for all clips costs next to nothing.

Legend: B clips of the share at hand.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Share:
    """Which clips of a batch of `total` pass through the model."""

    rows_B: Tensor
    total: int


_at_hand: list[Share] = []


@contextmanager
def share_of_batch(start: int, stop: int, total: int, device: torch.device | None = None) -> Iterator[None]:
    """Until the end of the backward pass, which may draw again: clips `start` to `stop` of a batch of `total`."""
    _at_hand.append(Share(torch.arange(start, stop, device=device), total))
    try:
        yield
    finally:
        _at_hand.pop()


def clip_noise(draw: Callable[[int], Tensor], rows: int) -> Tensor:
    """`draw(n)` gives n rows of noise; returns `rows` of them, as many for each clip of the share at hand."""
    if not _at_hand:
        return draw(rows)
    share = _at_hand[-1]
    each = rows // len(share.rows_B)
    return draw(share.total * each).unflatten(0, (share.total, each))[share.rows_B].flatten(0, 1)


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

    def forward(self, x: Tensor) -> Tensor:
        return drop(x, self.rate, (1,) * (x.ndim - 1)) if self.training else x


def drop(x: Tensor, rate: float, shape: tuple[int, ...]) -> Tensor:
    """`x` times a mask of `shape` for every row."""
    if rate == 0:
        return x
    chance = clip_noise(lambda rows: torch.rand(rows, *shape, device=x.device), len(x))
    return x * ((chance >= rate) / (1 - rate)).to(x.dtype)
