from functools import partial

import pytest
import torch
import torch.nn.functional as F
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

from fixformer.ops.nystrom import iterative_pinv, nystrom_attention, nystrom_attention_reference


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_golden(golden_dir, dtype):
    golden = load_golden(golden_dir, "op_nystrom", dtype)
    assert_matches_golden(golden, partial(nystrom_attention, num_landmarks=5, per_matrix_start=False))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_golden_start_per_matrix_and_uneven_segments(golden_dir, dtype):
    golden = load_golden(golden_dir, "op_nystrom", dtype)
    q, k, v = (golden[name] for name in "qkv")
    assert_close(nystrom_attention(q, k, v, 5), golden["exact_init.out"], GOLDEN_TOLERANCE[dtype])
    shorter = (x[:, :, :19] for x in (q, k, v))
    assert_close(nystrom_attention(*shorter, 5), golden["uneven.out"], GOLDEN_TOLERANCE[dtype])


@settings(deadline=None, max_examples=25)
@given(
    batch=st.integers(1, 2), heads=st.integers(1, 3), queries=st.integers(1, 40), keys=st.integers(1, 40),
    width=st.integers(1, 9), landmarks=st.integers(1, 9), iterations=st.integers(0, 6), per_matrix=st.booleans(),
)  # fmt: skip
def test_twins_agree(batch, heads, queries, keys, width, landmarks, iterations, per_matrix):
    options = {"num_landmarks": landmarks, "iterations": iterations, "per_matrix_start": per_matrix}
    fast, naive = partial(nystrom_attention, **options), partial(nystrom_attention_reference, **options)
    assert_twins_agree(fast, naive, random_qkv(batch, heads, queries, width, keys=keys), tolerance=1e-9)


def test_float32_and_half_precision():
    # Few landmarks: the pseudo-inverse of a larger, nearly singular matrix magnifies any rounding of its input.
    qkv = random_qkv(2, 2, 37, 16)
    attend = partial(nystrom_attention, num_landmarks=3)
    out = attend(*(x.float() for x in qkv))
    assert out.dtype == torch.float32
    assert_close(out, attend(*qkv), 1e-4)
    assert_half_precision_is_close(attend, qkv, 1e-1)


@pytest.mark.parametrize("tokens", [1, 37])
def test_as_many_landmarks_as_tokens_give_softmax_attention(tokens):
    q, k, v = random_qkv(2, 3, tokens, 16)
    assert_close(nystrom_attention(q, k, v, 37), F.scaled_dot_product_attention(q, k, v), 1e-12)


def test_linear_in_values():
    q, k, v = random_qkv(2, 3, 37, 16)
    other = v.roll(5, dims=2)
    separate = 2.5 * nystrom_attention(q, k, v, 5) + nystrom_attention(q, k, other, 5)
    assert_close(nystrom_attention(q, k, 2.5 * v + other, 5), separate, 1e-11)


def test_order_of_keys_matters():
    q, k, v = random_qkv(2, 3, 37, 16)
    order = torch.randperm(37, generator=torch.Generator().manual_seed(0))
    difference = nystrom_attention(q, k[:, :, order], v[:, :, order], 5) - nystrom_attention(q, k, v, 5)
    assert difference.abs().max() > 1e-2


def test_only_the_original_start_couples_the_batch():
    q, k, v = random_qkv(2, 2, 20, 8)
    q[1] *= 3
    for per_matrix_start, coupled in ((True, False), (False, True)):
        both = nystrom_attention(q, k, v, 5, per_matrix_start=per_matrix_start)[:1]
        alone = nystrom_attention(q[:1], k[:1], v[:1], 5, per_matrix_start=per_matrix_start)
        assert bool((both - alone).abs().max() > 1e-6) == coupled


def test_iterations_converge_to_the_pseudo_inverse():
    generator = torch.Generator().manual_seed(0)
    a = (
        4 * torch.eye(6, dtype=torch.float64) + torch.rand(2, 3, 6, 6, generator=generator, dtype=torch.float64)
    ).softmax(-1)
    assert_close(iterative_pinv(a, iterations=12), torch.linalg.pinv(a), 1e-10)


def test_captured():
    assert_captured(partial(nystrom_attention, num_landmarks=5, iterations=2), random_qkv(1, 2, 37, 8))
