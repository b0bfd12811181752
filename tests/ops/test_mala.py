"""MALA against its definition, and what its weights are: their sum is one, a longer query makes them sharper."""

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

from fixformer.ops import elu1, linear_attention_matrix
from fixformer.ops.linear_attention import PRODUCT_ORDERS, cheaper_product_order
from fixformer.ops.mala import mala_attention, mala_attention_matrix, mala_attention_reference


def features(*shape, **kwargs):
    q, k, v = random_qkv(*shape, **kwargs)
    return elu1(q), elu1(k), v


@settings(deadline=None, max_examples=30)
@given(
    batch=st.integers(1, 2), heads=st.integers(1, 3), queries=st.integers(1, 40), keys=st.integers(1, 40),
    width=st.integers(1, 9), product_order=st.sampled_from(PRODUCT_ORDERS),
)  # fmt: skip
def test_twins_agree(batch, heads, queries, keys, width, product_order):
    fast = partial(mala_attention, product_order=product_order)
    inputs = features(batch, heads, queries, width, keys=keys)
    assert_twins_agree(fast, mala_attention_reference, inputs, tolerance=1e-8)


def test_the_reference_is_the_published_formula():
    """z = s φ(q)·φ(k)̄, y = (s/N) φ(q) Σ φ(k)ᵀ v (1 + 1/z) - z v̄."""
    q, k, v = features(2, 3, 37, 16)
    s = 16**-0.5
    z = s * (q * k.mean(2, keepdim=True)).sum(-1, keepdim=True)
    expected = s / 37 * (q @ (k.mT @ v)) * (1 + 1 / z) - z * v.mean(2, keepdim=True)
    assert_close(mala_attention_reference(q, k, v, eps=0), expected, 1e-12)
    assert_close(mala_attention(q, k, v), expected, 1e-7)  # of sums of hundreds, eps is a millionth


@pytest.mark.parametrize("product_order", PRODUCT_ORDERS)
def test_float32_and_half_precision(product_order):
    qkv = features(2, 2, 37, 16)
    attend = partial(mala_attention, product_order=product_order)
    out = attend(*(x.float() for x in qkv))
    assert out.dtype == torch.float32
    assert_close(out, attend(*qkv), 1e-5)
    assert_half_precision_is_close(attend, qkv, 2e-2)


def test_rows_of_the_matrix_sum_to_one_some_are_negative_and_give_the_fast_result():
    q, k, v = features(2, 3, 37, 16)
    weights = mala_attention_matrix(3 * q, k)
    assert_close(weights.sum(-1), torch.ones(2, 3, 37), 1e-12)
    assert weights.min() < 0
    assert_close(weights @ v, mala_attention(3 * q, k, v), 1e-12)


def test_a_short_query_attends_as_in_linear_attention_and_a_longer_one_more_sharply():
    q, k, _ = features(1, 2, 37, 16)
    assert_close(mala_attention_matrix(1e-4 * q, k, eps=0), linear_attention_matrix(q, k, eps=0), 1e-4)
    spread = [mala_attention_matrix(length * q, k).std(-1) for length in (0.1, 1, 10)]
    assert (spread[0] < spread[1]).all()
    assert (spread[1] < spread[2]).all()


def test_linear_in_the_values_and_blind_to_the_order_of_keys():
    q, k, v = features(2, 3, 37, 16)
    other, order = v.roll(5, dims=2), torch.randperm(37)
    out = mala_attention(q, k, v)
    assert_close(mala_attention(q, k, 2.5 * v + other), 2.5 * out + mala_attention(q, k, other), 1e-12)
    assert_close(mala_attention(q, k[:, :, order], v[:, :, order]), out, 1e-12)
    constant = v[:, :, :1].expand_as(v)
    assert_close(mala_attention(q, k, constant), constant, 1e-12)
    one = [x[:, :, :1] for x in (q, k, v)]
    assert_close(mala_attention(*one), one[2], 1e-12)


@pytest.mark.parametrize("offset", [-200.0, -17.0, 100.0])
def test_vanishing_and_large_features(offset):
    """elu + 1 is exactly zero at -17 and below in float32; then all tokens count alike."""
    q, k, v = (x.requires_grad_() for x in random_qkv(1, 2, 37, 8, dtype=torch.float32))
    out = mala_attention(elu1(q + offset), elu1(k + offset), v)
    gradients = torch.autograd.grad(out.square().sum(), (q, k, v))
    assert all(x.isfinite().all() for x in (out, *gradients))
    if offset == -200:
        assert_close(out, v.mean(2, keepdim=True).expand_as(v), 1e-6)


@pytest.mark.parametrize("product_order", ["keys_values", "queries_keys"])
def test_gradcheck(product_order):
    qkv = tuple(x.requires_grad_() for x in random_qkv(1, 2, 5, 3))
    attend = partial(mala_attention, product_order=product_order)
    assert torch.autograd.gradcheck(lambda q, k, v: attend(elu1(q), elu1(k), v), qkv)


@pytest.mark.parametrize("tokens", [5, 37])
def test_captured(tokens):
    assert cheaper_product_order(tokens, tokens, 8) == ("queries_keys" if tokens == 5 else "keys_values")
    assert_captured(mala_attention, features(1, 2, tokens, 8))
