from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from op_checks import (
    GOLDEN_TOLERANCE,
    assert_captured,
    assert_close,
    assert_half_precision_is_close,
    assert_matches_golden,
    assert_twins_agree,
    load_golden,
    random_qkv,
)

from fixformer.ops.cosformer import cosformer_attention, cosformer_attention_reference

PRODUCT_ORDERS = ["keys_values", "queries_keys", "auto"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("product_order", PRODUCT_ORDERS)
def test_golden(golden_dir, dtype, product_order):
    golden = load_golden(golden_dir, "op_cosformer", dtype)
    assert_matches_golden(golden, partial(cosformer_attention, product_order=product_order))
    q, k, v = (golden[name] for name in "qkv")
    tolerance = GOLDEN_TOLERANCE[dtype]
    out = cosformer_attention(q[:, :, :11], k[:, :, :7], v[:, :, :7], product_order=product_order)
    assert_close(out, golden["cross_more_queries.out"], tolerance)
    out = cosformer_attention(k[:, :, :7], q[:, :, :11], q[:, :, :11], product_order=product_order)
    assert_close(out, golden["cross_more_keys.out"], tolerance)


@settings(deadline=None, max_examples=30)
@given(
    batch=st.integers(1, 2), heads=st.integers(1, 3), queries=st.integers(1, 40), keys=st.integers(1, 40),
    width=st.integers(1, 9), product_order=st.sampled_from(PRODUCT_ORDERS),
)  # fmt: skip
def test_twins_agree(batch, heads, queries, keys, width, product_order):
    # Values far below the clamp on denominators would be compared through a division by 1e-6.
    q, k, v = random_qkv(batch, heads, queries, width, keys=keys)
    fast = partial(cosformer_attention, product_order=product_order)
    assert_twins_agree(fast, cosformer_attention_reference, (q, k.abs() + 0.1, v), tolerance=1e-10)


@pytest.mark.parametrize("product_order", PRODUCT_ORDERS)
def test_equals_the_explicit_attention_matrix(product_order):
    qkv = random_qkv(2, 3, 37, 16)
    assert_close(cosformer_attention(*qkv, product_order=product_order), cosformer_attention_reference(*qkv), 1e-12)


@pytest.mark.parametrize("product_order", PRODUCT_ORDERS)
def test_float32_and_half_precision(product_order):
    qkv = random_qkv(2, 2, 37, 16)
    attend = partial(cosformer_attention, product_order=product_order)
    out = attend(*(x.float() for x in qkv))
    assert out.dtype == torch.float32
    assert_close(out, attend(*qkv), 1e-5)
    assert_half_precision_is_close(attend, qkv, 2e-2)


@pytest.mark.parametrize("product_order", PRODUCT_ORDERS)
def test_rows_sum_to_one_except_for_queries_without_a_positive_entry(product_order):
    q, k, v = random_qkv(2, 3, 37, 16)
    q[:, 0, 3] = -q[:, 0, 3].abs()
    out = cosformer_attention(q, k, torch.ones_like(v), product_order=product_order)
    expected = torch.ones_like(out)
    expected[:, 0, 3] = 0
    assert_close(out, expected, 1e-12)


@pytest.mark.parametrize("product_order", PRODUCT_ORDERS)
def test_linear_in_values_and_homogeneous_in_queries(product_order):
    attend = partial(cosformer_attention, product_order=product_order)
    q, k, v = random_qkv(2, 3, 37, 16)
    out = attend(q, k, v)
    other = v.roll(5, dims=2)
    assert_close(attend(q, k, 2.5 * v + other), 2.5 * out + attend(q, k, other), 1e-12)
    assert_close(attend(3 * q, k, v), out, 1e-12)


def test_position_matters_but_direction_does_not():
    q, k, v = random_qkv(2, 3, 37, 16)
    out = cosformer_attention(q, k, v)
    order = torch.randperm(37, generator=torch.Generator().manual_seed(0))
    assert (cosformer_attention(q, k[:, :, order], v[:, :, order]) - out).abs().max() > 1e-3
    assert (cosformer_attention(q[:, :, order], k, v) - out[:, :, order]).abs().max() > 1e-3
    backwards = cosformer_attention(*(x.flip(2) for x in (q, k, v)))
    assert_close(backwards.flip(2), out, 1e-12)


def test_one_token_returns_its_value():
    q, k, v = random_qkv(2, 2, 1, 8)
    assert_close(cosformer_attention(q.abs() + 0.1, k.abs() + 0.1, v), v, 1e-12)


@pytest.mark.parametrize("product_order", ["keys_values", "queries_keys"])
def test_gradcheck(product_order):
    q, k, v = random_qkv(1, 2, 5, 3)
    away_from_kink = [(x + 0.2 * x.sign()).requires_grad_() for x in (q, k)]
    attend = partial(cosformer_attention, product_order=product_order)
    assert torch.autograd.gradcheck(attend, (*away_from_kink, v.requires_grad_()))


@pytest.mark.parametrize("tokens", [5, 37])
def test_captured(tokens):
    assert_captured(cosformer_attention, random_qkv(1, 2, tokens, 8))
