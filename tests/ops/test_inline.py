"""InLine attention against its definition, and what its weights are: their sum is one for any queries and keys."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from op_checks import (
    assert_captured,
    assert_close,
    assert_half_precision_is_close,
    assert_twins_agree,
    random_qkv,
)

from fixformer.ops.inline import inline_attention, inline_attention_matrix, inline_attention_reference
from fixformer.ops.linear_attention import PRODUCT_ORDERS


@settings(deadline=None, max_examples=30)
@given(
    batch=st.integers(1, 2), heads=st.integers(1, 3), queries=st.integers(1, 40), keys=st.integers(1, 40),
    width=st.integers(1, 9), product_order=st.sampled_from(PRODUCT_ORDERS),
)  # fmt: skip
def test_twins_agree(batch, heads, queries, keys, width, product_order):
    fast = partial(inline_attention, product_order=product_order)
    assert_twins_agree(fast, inline_attention_reference, random_qkv(batch, heads, queries, width, keys=keys))


def test_the_reference_is_the_published_formula():
    """y = (s/N) q Σ kᵀ v + (1 - s q·k̄) v̄."""
    q, k, v = random_qkv(2, 3, 37, 16)
    s = 16**-0.5
    rest = 1 - s * (q @ k.mean(2, keepdim=True).mT)
    expected = s / 37 * (q @ (k.mT @ v)) + rest * v.mean(2, keepdim=True)
    assert_close(inline_attention_reference(q, k, v), expected, 1e-12)


@pytest.mark.parametrize("product_order", PRODUCT_ORDERS)
def test_float32_and_half_precision(product_order):
    qkv = random_qkv(2, 2, 37, 16)
    attend = partial(inline_attention, product_order=product_order)
    out = attend(*(x.float() for x in qkv))
    assert out.dtype == torch.float32
    assert_close(out, attend(*qkv), 1e-5)
    assert_half_precision_is_close(attend, qkv, 2e-2)


@pytest.mark.parametrize("length", [0.0, 1.0, 100.0])
def test_rows_of_the_matrix_sum_to_one_and_give_the_fast_result(length):
    q, k, v = random_qkv(2, 3, 37, 16)
    weights = inline_attention_matrix(length * q, k)
    assert_close(weights.sum(-1), torch.ones(2, 3, 37), 1e-12)
    assert_close(weights @ v, inline_attention(length * q, k, v), 1e-11)
    assert (weights.min() < 0) == (length > 0)


def test_linear_in_the_values_and_blind_to_the_order_of_keys():
    q, k, v = random_qkv(2, 3, 37, 16)
    other, order = v.roll(5, dims=2), torch.randperm(37)
    out = inline_attention(q, k, v)
    assert_close(inline_attention(q, k, 2.5 * v + other), 2.5 * out + inline_attention(q, k, other), 1e-12)
    assert_close(inline_attention(q, k[:, :, order], v[:, :, order]), out, 1e-12)
    constant = v[:, :, :1].expand_as(v)
    assert_close(inline_attention(q, k, constant), constant, 1e-12)
    one = [x[:, :, :1] for x in (q, k, v)]
    assert_close(inline_attention(*one), one[2], 1e-12)


def test_what_all_keys_share_does_not_matter():
    """Softmax, too, does not see it; linear attention does."""
    q, k, v = random_qkv(2, 3, 37, 16)
    assert_close(inline_attention(q, k + 2 * k[:, :, :1], v), inline_attention(q, k, v), 1e-12)


@pytest.mark.parametrize("product_order", ["keys_values", "queries_keys"])
def test_gradcheck(product_order):
    qkv = tuple(x.requires_grad_() for x in random_qkv(1, 2, 5, 3))
    assert torch.autograd.gradcheck(partial(inline_attention, product_order=product_order), qkv)


@pytest.mark.parametrize("tokens", [5, 37])
def test_captured(tokens):
    assert_captured(inline_attention, random_qkv(1, 2, tokens, 8))
