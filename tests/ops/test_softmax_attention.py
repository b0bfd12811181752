"""Softmax attention against its definition and the golden vectors."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from fixformer.ops import softmax_attention, softmax_attention_matrix, softmax_attention_reference


@pytest.mark.parametrize("attend", [softmax_attention, softmax_attention_reference])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 1e-5)])
def test_golden(golden_dir: Path, attend, dtype: torch.dtype, tolerance: float) -> None:
    golden = load_file(golden_dir / "op_softmax.safetensors")
    q, k, v = (golden[name].to(dtype).requires_grad_() for name in "qkv")
    out = attend(q, k, v)
    torch.testing.assert_close(out.double(), golden["out"], atol=tolerance, rtol=0)
    grads = torch.autograd.grad((out * golden["cotangent"].to(dtype)).sum(), (q, k, v))
    for name, grad in zip("qkv", grads, strict=True):
        torch.testing.assert_close(grad.double(), golden[f"grad_{name}"], atol=tolerance, rtol=0)


@given(st.integers(1, 3), st.integers(1, 40), st.sampled_from([1, 5, 16]))
@settings(max_examples=25, deadline=None)
def test_equals_the_reference(heads: int, tokens: int, width: int) -> None:
    q, k, v = (torch.randn(2, heads, tokens, width, dtype=torch.float64) for _ in range(3))
    torch.testing.assert_close(softmax_attention(q, k, v), softmax_attention_reference(q, k, v), atol=1e-12, rtol=0)
    torch.testing.assert_close(softmax_attention_matrix(q, k).sum(-1), torch.ones(2, heads, tokens).double())


def test_output_lies_between_the_values() -> None:
    q, k, v = (torch.randn(1, 2, 30, 8) for _ in range(3))
    y = softmax_attention(q, k, v)
    assert (y <= v.amax(2, keepdim=True) + 1e-6).all()
    assert (y >= v.amin(2, keepdim=True) - 1e-6).all()


def test_a_longer_query_matters() -> None:
    """systems.md F2: it sharpens the weights."""
    q, k, v = (torch.randn(1, 2, 37, 16, dtype=torch.float64) for _ in range(3))
    assert (softmax_attention(3 * q, k, v) - softmax_attention(q, k, v)).abs().max() > 1e-2


def test_linear_in_the_values_and_blind_to_the_order_of_keys() -> None:
    """systems.md F3, F4 and F5."""
    q, k, v, other = (torch.randn(1, 2, 37, 16, dtype=torch.float64) for _ in range(4))
    attend, exact = softmax_attention, {"atol": 1e-12, "rtol": 0}
    torch.testing.assert_close(attend(q, k, 3 * v + other), 3 * attend(q, k, v) + attend(q, k, other), **exact)
    order = torch.randperm(37)
    torch.testing.assert_close(attend(q, k[:, :, order], v[:, :, order]), attend(q, k, v), **exact)
    torch.testing.assert_close(attend(q[:, :, order], k, v), attend(q, k, v)[:, :, order], **exact)
    constant = v[:, :, :1].expand_as(v)
    torch.testing.assert_close(attend(q, k, constant), constant, **exact)


def test_bfloat16() -> None:
    q, k, v = (torch.randn(1, 2, 30, 8) for _ in range(3))
    low = softmax_attention(q.bfloat16(), k.bfloat16(), v.bfloat16())
    torch.testing.assert_close(low.float(), softmax_attention_reference(q, k, v), atol=3e-2, rtol=3e-2)
