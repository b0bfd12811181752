"""The temporal shift against golden data, its definition, and what a shift may and may not move."""

from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from fixformer.ops.temporal_shift import temporal_shift, temporal_shift_reference


def test_matches_the_golden_shift(golden_dir: Path) -> None:
    golden = load_file(golden_dir / "shifts.safetensors")
    x_BTCHW = golden["tsm.x"]
    T, C = x_BTCHW.shape[1:3]
    out = temporal_shift(x_BTCHW.flatten(0, 1), T, C // 8)
    assert torch.equal(out.view_as(x_BTCHW), golden["tsm.div8"])


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 9), st.data())
def test_equals_its_reference(B: int, T: int, C: int, data: st.DataObject) -> None:
    fold = data.draw(st.integers(0, C // 2))
    x_NCHW = torch.arange(1.0, B * T * C * 4 + 1).view(B * T, C, 2, 2)
    assert torch.equal(temporal_shift(x_NCHW, T, fold), temporal_shift_reference(x_NCHW, T, fold))


def test_shifting_back_restores_the_interior() -> None:
    x_NCHW = torch.randn(2 * 6, 8, 3, 3)
    shifted = temporal_shift(x_NCHW, 6, 4)
    back = temporal_shift(shifted.roll(4, dims=1), 6, 4).roll(4, dims=1)
    assert torch.equal(back.view(2, 6, 8, 3, 3)[:, 1:-1], x_NCHW.view(2, 6, 8, 3, 3)[:, 1:-1])


def test_a_single_frame_loses_its_shifted_channels() -> None:
    out = temporal_shift(torch.ones(3, 8, 2, 2), 1, 2)
    assert out[:, :4].abs().sum() == 0
    assert torch.equal(out[:, 4:], torch.ones(3, 4, 2, 2))


def test_gradient_is_that_of_the_reference() -> None:
    x = torch.randn(2 * 3, 6, 2, 2, dtype=torch.float64, requires_grad=True)
    cotangent = torch.randn_like(x)
    (fast,) = torch.autograd.grad((temporal_shift(x, 3, 2) * cotangent).sum(), x)
    (slow,) = torch.autograd.grad((temporal_shift_reference(x, 3, 2) * cotangent).sum(), x)
    assert torch.equal(fast, slow)
