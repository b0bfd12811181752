"""Polarity-aware attention against its definition, and what its signs and powers do."""

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

from fixformer.ops.linear_attention import PRODUCT_ORDERS, cheaper_product_order
from fixformer.ops.polar import (
    polar_attention,
    polar_attention_matrices,
    polar_attention_reference,
    polar_features,
    same_sign_channels,
)


def powers(heads, width):
    """Between 1 and 5, none equal to another."""
    return 1 + 4 * torch.linspace(-3, 3, heads * width, dtype=torch.float64).sigmoid().view(heads, width)


def inputs(*shape, **kwargs):
    return *random_qkv(*shape, **kwargs), powers(shape[1], shape[3])


@settings(deadline=None, max_examples=30)
@given(
    batch=st.integers(1, 2), heads=st.integers(1, 3), queries=st.integers(1, 30), keys=st.integers(1, 30),
    width=st.integers(1, 9), product_order=st.sampled_from(PRODUCT_ORDERS),
)  # fmt: skip
def test_twins_agree(batch, heads, queries, keys, width, product_order):
    """With a larger eps: a query may meet no channel of the same sign, and its gradient is then a division by eps."""
    fast = partial(polar_attention, eps=0.1, product_order=product_order)
    naive = partial(polar_attention_reference, eps=0.1)
    assert_twins_agree(fast, naive, inputs(batch, heads, queries, width, keys=keys), tolerance=1e-9)


@pytest.mark.parametrize("product_order", PRODUCT_ORDERS)
@pytest.mark.parametrize("width", [15, 16])
def test_twins_agree_as_it_is_used(product_order, width):
    fast = partial(polar_attention, product_order=product_order)
    assert_twins_agree(fast, polar_attention_reference, inputs(2, 3, 37, width), tolerance=1e-9)


@pytest.mark.parametrize("product_order", PRODUCT_ORDERS)
def test_float32_and_half_precision(product_order):
    arguments = inputs(2, 2, 37, 16)
    attend = partial(polar_attention, product_order=product_order)
    out = attend(*(x.float() for x in arguments))
    assert out.dtype == torch.float32
    assert_close(out, attend(*arguments), 1e-5)
    assert_half_precision_is_close(attend, arguments, 2e-2)


def test_rows_of_both_matrices_sum_to_one_and_give_the_fast_result():
    q, k, v, power = inputs(2, 3, 37, 5)
    same, opposite = polar_attention_matrices(q, k, power)
    for weights in (same, opposite):
        assert (weights >= 0).all()
        assert_close(weights.sum(-1), torch.ones(2, 3, 37), 1e-4)
    half = same_sign_channels(5)
    assert half == 3
    expected = torch.cat([same @ v[..., :half], opposite @ v[..., half:]], dim=-1)
    assert_close(polar_attention(q, k, v, power), expected, 1e-12)


@pytest.mark.parametrize("size", [1e-3, 1e3])
def test_small_and_large_queries_and_keys_have_weights_that_sum_to_one(size):
    """In a narrow fresh network queries are about 0.1, and a gate halves them: to the fifth power 3e-7."""
    q, k, _, power = inputs(2, 3, 37, 16, dtype=torch.float32)
    for weights in polar_attention_matrices(size * q, size * k, power.float()):
        assert_close(weights.sum(-1), torch.ones(2, 3, 37), 1e-3)


def test_the_halves_are_exchanged_by_the_sign_of_the_keys():
    q, k, v, power = inputs(2, 3, 37, 16)
    one, other = polar_attention(q, k, v, power), polar_attention(q, -k, v.roll(8, dims=-1), power)
    assert_close(one, other.roll(8, dims=-1), 1e-12)


def test_features_are_powers_of_the_parts_of_either_sign():
    x, power = torch.tensor([[[[2.0, -3.0, 0.0]]]]), torch.tensor([[1.0, 2.0, 3.0]])
    assert polar_features(x, power).tolist() == [[[[2, 0, 0, 0, 9, 0]]]]


def test_a_larger_power_concentrates_the_weights():
    q, k, _, _ = inputs(1, 2, 37, 16)
    entropies = []
    for power in (1.0, 2.0, 4.0):
        weights = polar_attention_matrices(q, k, torch.full((2, 16), power).double())[0]
        entropies.append(torch.special.entr(weights).sum(-1).mean())
    assert entropies[0] > entropies[1] > entropies[2]


@pytest.mark.parametrize("power", [1.0, 1.0001, 3.0, 5.0])
def test_gradients_at_zero_are_finite(power):
    """Zeros are what a shift brings in at the border; there x^p has a logarithm in its derivative by p."""
    x = torch.tensor([[[[0.0, -0.0, 1e-30, -1e-30, 1.0]]]], requires_grad=True)
    exponent = torch.full((1, 5), power, requires_grad=True)
    of_x, of_power = torch.autograd.grad(polar_features(x, exponent).sum(), (x, exponent))
    assert of_x.isfinite().all()
    assert of_power.isfinite().all()
    assert of_x[..., :2].tolist() == [[[[0, 0]]]]
    zeros = [torch.zeros(1, 2, 7, 4, requires_grad=True) for _ in range(2)]
    for q, k in (zeros, [zeros[0], torch.randn(1, 2, 7, 4, requires_grad=True)]):
        leaves = [q, k, torch.randn(1, 2, 7, 4, requires_grad=True), torch.full((2, 4), power, requires_grad=True)]
        out = polar_attention(*leaves)
        assert all(x.isfinite().all() for x in (out, *torch.autograd.grad(out.sum(), leaves)))


def test_linear_in_the_values_and_blind_to_the_order_of_keys_and_the_length_of_queries():
    q, k, v, power = inputs(2, 3, 37, 16)
    other, order = v.roll(5, dims=2), torch.randperm(37)
    out = polar_attention(q, k, v, power)
    assert_close(polar_attention(q, k, 2.5 * v + other, power), 2.5 * out + polar_attention(q, k, other, power), 1e-12)
    assert_close(polar_attention(q, k[:, :, order], v[:, :, order], power), out, 1e-12)
    same_power = torch.full_like(power, 3.0)
    assert_close(polar_attention(2 * q, k, v, same_power), polar_attention(q, k, v, same_power), 1e-4)


def test_the_order_of_the_products_is_the_cheaper_one_for_features_wider_than_values():
    """(N + M)·2E·E/2 against N·M·(2E + E/2)."""
    assert cheaper_product_order(50, 50, 128, 32) == "queries_keys"
    assert cheaper_product_order(52, 52, 128, 32) == "keys_values"


@pytest.mark.parametrize("product_order", ["keys_values", "queries_keys"])
def test_gradcheck(product_order):
    """With a smaller eps: the features' divisors, constants for the gradient, cancel up to eps."""
    q, k, v, power = inputs(1, 2, 5, 3)
    q, k = (x + 0.2 * x.sign() for x in (q, k))
    leaves = tuple(x.detach().requires_grad_() for x in (q, k, v, power))
    assert torch.autograd.gradcheck(partial(polar_attention, eps=1e-12, product_order=product_order), leaves)


@pytest.mark.parametrize("tokens", [3, 37])
def test_captured(tokens):
    assert_captured(polar_attention, inputs(1, 2, tokens, 8), batched=3)
