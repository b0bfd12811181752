"""Neighbourhood association: part of a token's channels comes from tokens next to it in time and space (appendix A.3).

A shift is a list of `Group`s. Each says which channels come from which neighbour; channels in no group stay the
token's own, and a neighbour outside the clip supplies zeros. The functions below build the lists of the paper and of
the released code, `compose` turns a temporal and a spatial list into the one list that does both in a single pass,
and `shift` applies a list.

Shapes: B batch, T frames, H rows, W columns, C channels (all heads, head after head).
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Group(NamedTuple):
    """Channels [start, stop) of token (t, y, x) come from token (t + dt, y + dy, x + dx)."""

    start: int
    stop: int
    dt: int = 0
    dy: int = 0
    dx: int = 0
    own_at_border: bool = False


Offset = tuple[int, int, int]


def time_groups(channels: int, window: int, keep: float) -> list[Group]:
    """The paper's temporal shift: own channels first, then an equal share from each frame in [-window, window]."""
    frames = [dt for dt in range(-window, window + 1) if dt]
    return _shares(channels, keep, [(dt, 0, 0) for dt in frames])


def cross_groups(channels: int, reach: int, keep: float) -> list[Group]:
    """The paper's spatial shift: `reach` tokens to the left, right, above and below."""
    directions = ((0, -1), (0, 1), (-1, 0), (1, 0))
    return _shares(channels, keep, [(0, n * dy, n * dx) for dy, dx in directions for n in range(1, reach + 1)])


def square_groups(channels: int, radius: int, keep: float) -> list[Group]:
    """The squared kernel the paper compares with: all (2 radius + 1)² - 1 tokens around."""
    side = range(-radius, radius + 1)
    return _shares(channels, keep, [(0, dy, dx) for dy in side for dx in side if dy or dx])


def _shares(channels: int, keep: float, offsets: Sequence[Offset]) -> list[Group]:
    """Equal shares of the last (1 - keep) channels; what does not divide evenly stays the token's own."""
    first = round(keep * channels)
    share = (channels - first) // len(offsets) if offsets else 0
    return _consecutive(first, share, offsets)


def _consecutive(first: int, share: int, offsets: Sequence[Offset], own_at_border: bool = False) -> list[Group]:
    if share == 0:
        return []
    starts = range(first, first + share * len(offsets), share)
    return [Group(s, s + share, *offset, own_at_border) for s, offset in zip(starts, offsets, strict=True)]


def released_time_groups(channels: int, divisor: int) -> list[Group]:
    """The released temporal shift: C/divisor channels from the next frame, as many from the previous, then its own."""
    return _consecutive(0, channels // divisor, [(1, 0, 0), (-1, 0, 0)])


_RELEASED_CROSS = ((1, 0), (-1, 0), (0, 1), (0, -1))
_RELEASED_DIAGONALS = ((-1, -1), (1, 1), (-1, 1), (1, -1))
_RELEASED_KNIGHTS = ((-2, -1), (-2, 1), (-1, -2), (1, -2), (2, -1), (2, 1), (-1, 2), (1, 2))


def released_cross_groups(channels: int, size: int) -> list[Group]:
    """The released four-neighbour shift: C/8 channels from each token at distance exactly `size`."""
    return _consecutive(0, channels // 8, [(0, dy * size, dx * size) for dy, dx in _RELEASED_CROSS])


def released_square_groups(channels: int, size: int) -> list[Group]:
    """The released eight-neighbour shift: only the first four groups are zero-filled; size 2 also fills the ring in."""
    share = channels // (2 * ((2 * size + 1) ** 2 - 1))
    cross = [(0, dy * size, dx * size) for dy, dx in _RELEASED_CROSS]
    rest = [(0, dy * size, dx * size) for dy, dx in _RELEASED_DIAGONALS]
    if size == 2:
        rest += [(0, dy, dx) for dy, dx in (*_RELEASED_KNIGHTS, *_RELEASED_CROSS, *_RELEASED_DIAGONALS)]
    return _consecutive(0, share, cross) + _consecutive(len(cross) * share, share, rest, own_at_border=True)


def compose(first: Sequence[Group], second: Sequence[Group]) -> list[Group]:
    """One list equal to applying `first`, then `second`, where one moves in time only and the other in space only.

    Offsets of a channel add up, and a token outside on either axis is outside: zeros compose with zeros.
    """
    assert not any(group.own_at_border for group in (*first, *second))
    edges = sorted({edge for group in (*first, *second) for edge in (group.start, group.stop)})
    groups = []
    for start, stop in pairwise(edges):
        moves = [group for group in (*first, *second) if group.start <= start < group.stop]
        offset = (sum(g.dt for g in moves), sum(g.dy for g in moves), sum(g.dx for g in moves))
        if offset != (0, 0, 0):
            groups.append(Group(start, stop, *offset))
    return groups


def shift(x_BTHWC: Tensor, groups: Sequence[Group]) -> Tensor:
    """Apply a list of groups, zero-filled at the borders; any T, H, W including 1."""
    if not groups:
        return x_BTHWC
    # One split and one cat: their gradients are a cat and a split, where slicing would fill a whole tensor per group.
    parts = _with_gaps(groups, x_BTHWC.shape[-1])
    pieces = x_BTHWC.split([group.stop - group.start for group in parts], dim=-1)
    return torch.cat([_moved(piece, group) for piece, group in zip(pieces, parts, strict=True)], dim=-1)


def _with_gaps(groups: Sequence[Group], channels: int) -> list[Group]:
    """The groups in channel order, and between them groups that stay in place."""
    parts: list[Group] = []
    position = 0
    for group in sorted(groups):
        if position < group.start:
            parts.append(Group(position, group.start))
        parts.append(group)
        position = group.stop
    if position < channels:
        parts.append(Group(position, channels))
    return parts


def _moved(x_BTHWC: Tensor, group: Group) -> Tensor:
    offset = (group.dt, group.dy, group.dx)
    if offset == (0, 0, 0):
        return x_BTHWC
    moved = _translate(x_BTHWC, offset)
    if group.own_at_border:
        inside = _translate(torch.ones_like(x_BTHWC[:1, ..., :1]), offset)
        moved = moved + x_BTHWC * (1 - inside)
    return moved


def _translate(x_BTHWC: Tensor, offset: Offset) -> Tensor:
    sizes = x_BTHWC.shape[1:4]
    if any(abs(d) >= size for d, size in zip(offset, sizes, strict=True)):
        return torch.zeros_like(x_BTHWC)
    # Padding runs from the last axis backwards; a negative pad crops, so crop and zero-fill are one call.
    padding = [0, 0]
    for d in reversed(offset):
        padding += [-d, d]
    return F.pad(x_BTHWC, padding)


def shift_(x_BTHWC: Tensor, groups: Sequence[Group]) -> None:
    """`shift` in place and without gradient; only channels that move are read and written."""
    for group in groups:
        offset = (group.dt, group.dy, group.dx)
        target = x_BTHWC[..., group.start : group.stop]
        source = target.clone()
        for axis, d in enumerate(offset, 1):
            size = x_BTHWC.shape[axis]
            if d and not group.own_at_border:
                target.narrow(axis, max(size - d, 0) if d > 0 else 0, min(abs(d), size)).zero_()
        _with_neighbour(target, offset).copy_(_with_neighbour(source, (-group.dt, -group.dy, -group.dx)))


def unshift_(g_BTHWC: Tensor, groups: Sequence[Group]) -> None:
    """From the gradient of what `shift` returns to that of what it was given, in place: the opposite shift."""
    for group in groups:
        target = g_BTHWC[..., group.start : group.stop]
        kept = target.clone() if group.own_at_border else None
        opposite = Group(group.start, group.stop, -group.dt, -group.dy, -group.dx)
        shift_(g_BTHWC, [opposite])
        if kept is not None:  # tokens at the border that stayed as they were
            _with_neighbour(kept, (group.dt, group.dy, group.dx)).zero_()
            target.add_(kept)


def _with_neighbour(x_BTHWC: Tensor, offset: Offset) -> Tensor:
    """A view of the tokens whose neighbour at this offset lies in the clip."""
    for axis, d in enumerate(offset, 1):
        size = x_BTHWC.shape[axis]
        x_BTHWC = x_BTHWC.narrow(axis, min(max(-d, 0), size), max(size - abs(d), 0))
    return x_BTHWC


def shift_reference(x_BTHWC: Tensor, groups: Sequence[Group]) -> Tensor:
    """The definition, token by token."""
    _, T, H, W, _ = x_BTHWC.shape
    out = x_BTHWC.clone()
    for start, stop, dt, dy, dx, own_at_border in groups:
        for t, y, x in ((t, y, x) for t in range(T) for y in range(H) for x in range(W)):
            inside = 0 <= t + dt < T and 0 <= y + dy < H and 0 <= x + dx < W
            if inside:
                out[:, t, y, x, start:stop] = x_BTHWC[:, t + dt, y + dy, x + dx, start:stop]
            elif not own_at_border:
                out[:, t, y, x, start:stop] = 0
    return out
