"""Shifts: golden vectors exactly, the fast form against the token-by-token one, and what they promise."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from fixformer.ops.shift import (
    Group,
    compose,
    cross_groups,
    released_cross_groups,
    released_square_groups,
    released_time_groups,
    shift,
    shift_,
    shift_reference,
    square_groups,
    time_groups,
    unshift_,
)

SPACE = {"cross": cross_groups, "square": square_groups}
RELEASED_SPACE = {"four": released_cross_groups, "eight": released_square_groups}
sizes = st.tuples(st.integers(1, 2), *[st.integers(1, 5)] * 3)


def numbered(*shape: int) -> Tensor:
    """All values distinct and non-zero, so that a channel's origin can be told."""
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).view(shape)


def assert_shifts(x: Tensor, groups: list[Group]) -> None:
    """Both fast forms are the reference, and the opposite shift is its gradient."""
    expected, in_place = shift_reference(x, groups), x.clone()
    shift_(in_place, groups)
    assert torch.equal(shift(x, groups), expected)
    assert torch.equal(in_place, expected)
    moved = x.clone().requires_grad_()
    g = numbered(*x.shape)
    # zero times the input: where nothing lies in the clip, what `shift` returns does not depend on it
    (gradient,) = torch.autograd.grad(shift(moved, groups) + 0 * moved, moved, g)
    unshift_(g, groups)
    assert torch.equal(g, gradient)


@pytest.mark.parametrize("segment", [4, 8])
@pytest.mark.parametrize("divisor", [4, 8])
def test_released_temporal_shift_is_golden(golden_dir: Path, segment: int, divisor: int) -> None:
    golden = load_file(golden_dir / "shifts.safetensors")
    x = golden["temporal.x"].float()
    clips = x.view(-1, segment, *x.shape[2:])
    shifted = shift(clips, released_time_groups(x.shape[-1], divisor)).view_as(x)
    assert torch.equal(shifted, golden[f"temporal.segments{segment}_div{divisor}"].float())


@pytest.mark.parametrize(
    ("data", "kind", "size"),
    [("spatial", kind, size) for kind in RELEASED_SPACE for size in (1, 2)]
    + [("spatial4", k, 4) for k in RELEASED_SPACE],
)
def test_released_spatial_shift_is_golden(golden_dir: Path, data: str, kind: str, size: int) -> None:
    golden = load_file(golden_dir / "shifts.safetensors")
    x = golden[f"{data}.x"].float()
    groups = RELEASED_SPACE[kind](x.shape[-1], size)
    expected = golden[f"{data}.{kind}_size{size}"].float()
    assert torch.equal(shift(x, groups), expected)
    assert torch.equal(shift_reference(x, groups), expected)


@given(sizes, st.sampled_from([1, 2, 7, 16]), st.integers(1, 3), st.integers(1, 3), st.sampled_from([0, 0.3, 0.5, 0.9]))
@settings(max_examples=40, deadline=None)
def test_equals_the_reference(size, channels: int, window: int, reach: int, keep: float) -> None:
    x = numbered(*size, channels)
    in_time = time_groups(channels, window, keep)
    for space in SPACE.values():
        in_space = space(channels, reach, keep)
        for groups in (in_time, in_space, compose(in_time, in_space)):
            assert_shifts(x, groups)
        one_after_the_other = shift_reference(shift_reference(x, in_time), in_space)
        assert torch.equal(shift(x, compose(in_time, in_space)), one_after_the_other)


@given(sizes, st.sampled_from([8, 20, 48]), st.sampled_from([1, 2, 3]))
@settings(max_examples=20, deadline=None)
def test_released_shifts_equal_the_reference(size, channels: int, distance: int) -> None:
    x = numbered(*size, channels)
    for groups in (*(make(channels, distance) for make in RELEASED_SPACE.values()), released_time_groups(channels, 4)):
        assert_shifts(x, groups)


def test_gradient_equals_the_reference() -> None:
    x = torch.randn(1, 3, 2, 4, 16, dtype=torch.float64, requires_grad=True)
    cotangent = torch.randn_like(x)
    for groups in (compose(time_groups(16, 1, 0.5), cross_groups(16, 1, 0.5)), released_square_groups(16, 1)):
        fast, slow = (
            torch.autograd.grad((move(x, groups) * cotangent).sum(), x)[0] for move in (shift, shift_reference)
        )
        torch.testing.assert_close(fast, slow)
        assert torch.autograd.gradcheck(lambda x, groups=groups: shift(x, groups), x)


def test_the_papers_shares() -> None:
    """First half own, the rest in equal shares: the previous frame, then the next; left, right, above, below."""
    assert time_groups(512, 1, 0.5) == [Group(256, 384, dt=-1), Group(384, 512, dt=1)]
    assert cross_groups(512, 1, 0.5) == [
        Group(256, 320, dx=-1),
        Group(320, 384, dx=1),
        Group(384, 448, dy=-1),
        Group(448, 512, dy=1),
    ]
    assert len(cross_groups(512, 4, 0.5)) == 16
    assert len(square_groups(512, 2, 0.5)) == 24


@pytest.mark.parametrize(
    ("groups", "moved"),
    [
        (released_cross_groups(512, 1), 256),
        (released_square_groups(512, 1), 256),
        (released_square_groups(512, 2), 240),
        (released_square_groups(512, 4), 24),
        (cross_groups(512, 1, 0.5), 256),
        (cross_groups(512, 2, 0.5), 256),
    ],
)
def test_channels_that_move_at_the_centre_of_a_frame(groups: list[Group], moved: int) -> None:
    x = numbered(1, 1, 17, 17, 512)
    assert int((shift(x, groups)[0, 0, 8, 8] != x[0, 0, 8, 8]).sum()) == moved


def test_whole_heads_move_in_the_released_temporal_shift() -> None:
    """Channels are flattened head after head: with divisor 4 and 8 heads, heads 0-3 move, and move whole."""
    x = numbered(1, 3, 1, 1, 8 * 64)
    moved = (shift(x, released_time_groups(512, 4)) != x)[0, 1, 0, 0].view(8, 64)
    assert moved.all(1).tolist() == moved.any(1).tolist() == [True] * 4 + [False] * 4


def test_shifting_back_restores_the_interior_and_loses_only_the_border() -> None:
    x = numbered(1, 6, 1, 1, 8)
    forth = shift(x, [Group(0, 8, dt=1)])
    assert torch.equal(shift(forth, [Group(0, 8, dt=-1)])[:, 1:], x[:, 1:])
    assert torch.equal(forth.sum(1), x.sum(1) - x[:, 0])


def test_a_single_token_keeps_its_own_channels_only() -> None:
    x = numbered(1, 1, 1, 1, 16)
    shifted = shift(x, compose(time_groups(16, 1, 0.5), cross_groups(16, 1, 0.5)))[0, 0, 0, 0]
    assert torch.equal(shifted[:8], x[0, 0, 0, 0, :8])
    assert (shifted[8:] == 0).all()
