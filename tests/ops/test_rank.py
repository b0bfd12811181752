"""Rank-augmented attention against its definition, and what the weights of the keys do."""

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

from fixformer.ops import KERNELS, elu1, linear_attention, relu
from fixformer.ops.linear_attention import PRODUCT_ORDERS
from fixformer.ops.rank import rank_attention, rank_attention_matrix, rank_attention_reference, weigh_keys


def features(*shape, kernel=elu1, **kwargs):
    q, k, v = random_qkv(*shape, **kwargs)
    return kernel(q), kernel(k), v


@settings(deadline=None, max_examples=30)
@given(
    batch=st.integers(1, 2), heads=st.integers(1, 3), queries=st.integers(1, 40), keys=st.integers(1, 40),
    width=st.integers(1, 9), kernel=st.sampled_from(list(KERNELS.values())),
    product_order=st.sampled_from(PRODUCT_ORDERS),
)  # fmt: skip
def test_twins_agree(batch, heads, queries, keys, width, kernel, product_order):
    fast = partial(rank_attention, product_order=product_order)
    inputs = features(batch, heads, queries, width, keys=keys, kernel=kernel)
    assert_twins_agree(fast, rank_attention_reference, inputs, tolerance=1e-9)


def test_keys_are_weighted_by_a_softmax_whose_mean_is_one():
    q, k, _ = features(2, 3, 37, 16)
    weights = weigh_keys(q, k) / k
    expected = 37 * torch.softmax(torch.einsum("bhe,bhme->bhm", q.mean(2), k) * 16**-0.5, dim=-1)
    assert_close(weights, expected[..., None].expand_as(k), 1e-12)
    assert_close(weights.mean(2), torch.ones(2, 3, 16), 1e-12)


@pytest.mark.parametrize("product_order", PRODUCT_ORDERS)
def test_float32_and_half_precision(product_order):
    qkv = features(2, 2, 37, 16)
    attend = partial(rank_attention, product_order=product_order)
    out = attend(*(x.float() for x in qkv))
    assert out.dtype == torch.float32
    assert_close(out, attend(*qkv), 1e-5)
    assert_half_precision_is_close(attend, qkv, 2e-2)


def test_rows_of_the_matrix_sum_to_one_and_give_the_fast_result():
    q, k, v = features(2, 3, 37, 16)
    weights = rank_attention_matrix(q, k)
    assert (weights >= 0).all()
    assert_close(weights.sum(-1), torch.ones(2, 3, 37), 1e-6)
    assert_close(weights @ v, rank_attention(q, k, v), 1e-12)


def test_equal_keys_have_weights_of_one():
    q, k, v = features(2, 3, 37, 16)
    k = k[:, :, :1].expand_as(k)
    assert_close(rank_attention(q, k, v), linear_attention(q, k, v), 1e-12)


def test_a_key_that_all_queries_resemble_counts_more():
    q, k, _ = features(1, 1, 37, 16, kernel=relu)
    k[:, :, 4] = 4 * q.mean(2)
    share = rank_attention_matrix(q, k)[..., 4]
    assert (share > (q @ k.mT / (q @ k.mT).sum(-1, keepdim=True))[..., 4]).all()


def test_linear_in_the_values_and_blind_to_the_order_of_keys():
    q, k, v = features(2, 3, 37, 16)
    other, order = v.roll(5, dims=2), torch.randperm(37)
    out = rank_attention(q, k, v)
    assert_close(rank_attention(q, k, 2.5 * v + other), 2.5 * out + rank_attention(q, k, other), 1e-12)
    assert_close(rank_attention(q, k[:, :, order], v[:, :, order]), out, 1e-12)
    one = [x[:, :, :1] for x in (q, k, v)]
    assert_close(rank_attention(*one), one[2], 1e-5)


def test_large_features_stay_finite():
    q, k, v = (x.requires_grad_() for x in random_qkv(1, 2, 37, 8, dtype=torch.float32))
    out = rank_attention(relu(1e4 * q), relu(1e4 * k), v)
    assert all(x.isfinite().all() for x in (out, *torch.autograd.grad(out.square().sum(), (q, k, v))))


@pytest.mark.parametrize("product_order", ["keys_values", "queries_keys"])
def test_gradcheck(product_order):
    qkv = tuple(x.requires_grad_() for x in random_qkv(1, 2, 5, 3))
    attend = partial(rank_attention, product_order=product_order)
    assert torch.autograd.gradcheck(lambda q, k, v: attend(elu1(q), elu1(k), v), qkv)


@pytest.mark.parametrize("tokens", [5, 37])
def test_captured(tokens):
    assert_captured(rank_attention, features(1, 2, tokens, 8))
