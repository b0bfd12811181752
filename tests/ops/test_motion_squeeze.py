"""Correlation and soft-argmax against their definitions, and what they say about frames that really move."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fixformer.ops.motion_squeeze import (
    correlation,
    correlation_reference,
    displacements,
    soft_argmax,
    soft_argmax_reference,
    squeeze_motion,
)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 4))
def test_correlation_equals_its_reference(H: int, W: int, radius: int) -> None:
    first, second = torch.randn(2, 2, 3, H, W, dtype=torch.float64)
    torch.testing.assert_close(
        correlation(first, second, radius), correlation_reference(first, second, radius), atol=1e-12, rtol=0
    )


def test_gradients_equal_those_of_the_references() -> None:
    frames = torch.randn(2, 1, 3, 4, 3, dtype=torch.float64, requires_grad=True)

    def gradient(correlate, argmax) -> torch.Tensor:
        flow = argmax(correlate(frames[0], frames[1], 2).relu(), 10.0, 2.0)
        return torch.autograd.grad((flow * torch.arange(flow.numel()).view_as(flow)).sum(), frames)[0]

    fast, slow = gradient(correlation, soft_argmax), gradient(correlation_reference, soft_argmax_reference)
    torch.testing.assert_close(fast, slow, atol=1e-10, rtol=1e-10)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 2), st.floats(1, 100), st.floats(0.5, 5))
def test_soft_argmax_equals_its_reference(radius: int, temperature: float, sigma: float) -> None:
    scores = torch.rand(2, (2 * radius + 1) ** 2, 2, 3, dtype=torch.float64)
    torch.testing.assert_close(
        soft_argmax(scores, temperature, sigma), soft_argmax_reference(scores, temperature, sigma), atol=1e-12, rtol=0
    )


def test_displacements_are_in_raster_order() -> None:
    dx, dy = displacements(9, torch.zeros(())).tolist()
    assert dx == [-1, 0, 1] * 3
    assert dy == [-1, -1, -1, 0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(("dx", "dy"), [(0, 0), (2, 0), (0, -3), (-1, 1)])
def test_a_moved_picture_has_that_motion(dx: int, dy: int) -> None:
    generator = torch.Generator().manual_seed(0)
    picture = torch.randn(1, 32, 12, 12, generator=generator)
    clip_BTCHW = torch.stack([picture, picture.roll((dy, dx), dims=(2, 3))], dim=1)
    motion = squeeze_motion(clip_BTCHW, radius=3)[0, 0, :, 4:8, 4:8]
    expected = torch.tensor([dx, dy])[:, None, None] / 3
    torch.testing.assert_close(motion[:2], expected.expand_as(motion[:2]).float(), atol=1e-3, rtol=0)
    torch.testing.assert_close(motion[2], torch.ones(4, 4), atol=1e-4, rtol=0)


def test_the_last_frame_repeats_the_motion_before_it() -> None:
    motion = squeeze_motion(torch.randn(2, 4, 8, 5, 5), radius=2)
    assert motion.shape == (2, 4, 3, 5, 5)
    assert torch.equal(motion[:, 3], motion[:, 2])


def test_a_single_frame_does_not_move() -> None:
    motion = squeeze_motion(torch.randn(1, 1, 64, 6, 6), radius=2)
    assert motion.shape == (1, 1, 3, 6, 6)
    assert motion[:, :, :2].abs().max() < 1e-3


def test_half_precision_is_computed_in_float32() -> None:
    clip = torch.randn(1, 2, 16, 6, 6).bfloat16()
    motion = squeeze_motion(clip, radius=2)
    assert motion.dtype == torch.bfloat16
    torch.testing.assert_close(motion.float(), squeeze_motion(clip.float(), radius=2), atol=1e-2, rtol=0)
