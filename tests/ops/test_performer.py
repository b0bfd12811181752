from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from op_checks import (
    assert_captured,
    assert_close,
    assert_half_precision_is_close,
    assert_matches_golden,
    assert_twins_agree,
    load_golden,
    random_qkv,
)

from fixformer.ops.performer import (
    key_features,
    orthogonal_projection,
    performer_attention,
    performer_attention_reference,
    query_features,
)


def draw(num_features: int, head_dim: int, seed: int = 0, **kwargs: str) -> torch.Tensor:
    return orthogonal_projection(
        num_features, head_dim, torch.Generator().manual_seed(seed), dtype=torch.float64, **kwargs
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("product_order", ["keys_values", "queries_keys"])
def test_golden(golden_dir, dtype, product_order):
    golden = load_golden(golden_dir, "op_performer", dtype)
    attend = partial(performer_attention, projection_RE=golden["projection_matrix"], product_order=product_order)
    assert_matches_golden(golden, attend)


def test_golden_features(golden_dir):
    golden = load_golden(golden_dir, "op_performer")
    assert_close(query_features(golden["q"], golden["projection_matrix"]), golden["phi_q"], 1e-11)
    assert_close(key_features(golden["k"], golden["projection_matrix"]), golden["phi_k"], 1e-11)


@settings(deadline=None, max_examples=25)
@given(
    batch=st.integers(1, 2), heads=st.integers(1, 3), queries=st.integers(1, 40), keys=st.integers(1, 40),
    width=st.integers(1, 9), features=st.integers(1, 20),
)  # fmt: skip
def test_twins_agree(batch, heads, queries, keys, width, features):
    qkv = random_qkv(batch, heads, queries, width, keys=keys)
    projection = draw(features, width)
    fast = partial(performer_attention, projection_RE=projection)
    assert_twins_agree(fast, partial(performer_attention_reference, projection_RE=projection), qkv)


def test_twins_agree_with_one_projection_per_head():
    projection = torch.stack([draw(11, 16, seed) for seed in range(3)])
    fast = partial(performer_attention, projection_RE=projection)
    naive = partial(performer_attention_reference, projection_RE=projection)
    assert_twins_agree(fast, naive, random_qkv(2, 3, 37, 16))


@pytest.mark.parametrize("product_order", ["keys_values", "queries_keys"])
def test_equals_the_explicit_attention_matrix(product_order):
    inputs = (*random_qkv(2, 3, 37, 16), draw(64, 16))
    assert_close(
        performer_attention(*inputs, product_order=product_order), performer_attention_reference(*inputs), 1e-12
    )


def test_float32_and_half_precision():
    q, k, v = random_qkv(2, 2, 37, 16)
    projection = draw(64, 16)
    expected = performer_attention(q, k, v, projection)
    out = performer_attention(q.float(), k.float(), v.float(), projection.float())
    assert out.dtype == torch.float32
    assert_close(out, expected, 1e-5)
    # The projection is kept in float32, as a model's buffer would be.
    exact = partial(performer_attention, projection_RE=projection.float())
    rounded = tuple(x.bfloat16() for x in (q, k, v))
    assert_close(exact(*rounded).double(), exact(*(x.float() for x in rounded)), 2e-2)
    assert_half_precision_is_close(performer_attention, (q, k, v, projection), 2e-2)


def test_rows_sum_to_one_and_linear_in_values():
    q, k, v = random_qkv(2, 3, 37, 16)
    projection = draw(64, 16)
    constant = torch.randn(16, dtype=torch.float64).expand_as(v)
    assert_close(performer_attention(q, k, constant, projection), constant, 1e-12)
    other = v.roll(5, dims=2)
    mixed = performer_attention(q, k, 2.5 * v + other, projection)
    separate = 2.5 * performer_attention(q, k, v, projection) + performer_attention(q, k, other, projection)
    assert_close(mixed, separate, 1e-12)


def test_permutations():
    q, k, v = random_qkv(2, 3, 37, 16)
    projection = draw(64, 16)
    out = performer_attention(q, k, v, projection)
    order = torch.randperm(37, generator=torch.Generator().manual_seed(0))
    assert_close(performer_attention(q, k[:, :, order], v[:, :, order], projection), out, 1e-12)
    assert_close(performer_attention(q[:, :, order], k, v, projection), out[:, :, order], 1e-12)


def test_scaling_a_query_changes_the_result():
    q, k, v = random_qkv(1, 1, 37, 16)
    projection = draw(64, 16)
    difference = performer_attention(3 * q, k, v, projection) - performer_attention(q, k, v, projection)
    assert difference.abs().max() > 1e-2


def test_estimates_the_softmax_kernel():
    """The mean over draws of unnormalised, unstabilised features is exp(q·k / √E)."""
    E, m = 16, 64
    q, k = (torch.nn.functional.normalize(x, dim=-1) for x in random_qkv(1, 1, 8, E)[:2])
    total = torch.zeros(1, 1, 8, 8, dtype=torch.float64)
    for seed in range(200):
        projection = draw(m, E, seed)
        q_largest = (q @ projection.T * E**-0.25).amax(-1, keepdim=True).exp()
        k_largest = (k @ projection.T * E**-0.25).amax((-2, -1), keepdim=True).exp()
        phi_q = query_features(q, projection, eps=0.0) * q_largest
        phi_k = key_features(k, projection, eps=0.0) * k_largest
        total += phi_q @ phi_k.mT
    expected = (q @ k.mT / E**0.5).exp()
    assert ((total / 200 - expected) / expected).abs().max() < 0.05


def test_more_features_come_closer_to_softmax():
    q, k, v = random_qkv(1, 4, 32, 16)
    q, k = 0.5 * q, 0.5 * k
    exact = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    errors = [(performer_attention(q, k, v, draw(m, 16)) - exact).abs().mean() for m in (32, 512, 8192)]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


@settings(deadline=None, max_examples=20)
@given(features=st.integers(1, 40), width=st.integers(1, 16))
def test_projection_rows_are_orthogonal_in_blocks(features, width):
    rows = draw(features, width, scaling="sqrt")
    assert rows.shape == (features, width)
    for block in rows.split(width):
        assert_close(block @ block.T, width * torch.eye(len(block), dtype=torch.float64), 1e-10)
    directions = draw(features, width, scaling="chi")
    assert_close(torch.nn.functional.normalize(directions, dim=1), rows / width**0.5, 1e-10)


def test_projection_has_no_preferred_direction():
    rows = torch.stack([draw(8, 8, seed) for seed in range(400)])
    standard_error = 400**-0.5
    assert rows.mean(0).abs().max() < 5 * standard_error
    assert (rows.norm(dim=-1).square().mean() - 8).abs() < 5 * (2 * 8 / 3200) ** 0.5


def test_projection_follows_its_generator():
    assert torch.equal(draw(20, 8, seed=3), draw(20, 8, seed=3))
    assert not torch.equal(draw(20, 8, seed=3), draw(20, 8, seed=4))


def test_large_inputs_stay_finite():
    q, k, v = (100 * x for x in random_qkv(1, 2, 37, 16, dtype=torch.float32))
    assert performer_attention(q, k, v, draw(64, 16).float()).isfinite().all()


def test_captured():
    assert_captured(performer_attention, (*random_qkv(1, 2, 37, 8), draw(16, 8)), batched=3)
