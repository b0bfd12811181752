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

from fixformer.ops.orthoformer import (
    orthoformer_attention,
    orthoformer_attention_reference,
    orthoformer_trajectories,
    orthoformer_trajectories_reference,
    select_landmarks,
    select_landmarks_reference,
)


def starts(batch: int, heads: int, tokens: int) -> torch.Tensor:
    return torch.randint(tokens, (batch, heads), generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_golden(golden_dir, dtype):
    golden = load_golden(golden_dir, "op_orthoformer", dtype)
    start = golden["start_index"]
    assert torch.equal(select_landmarks(golden["q"], start, 6), golden["landmark_order"])
    assert_matches_golden(golden, partial(orthoformer_attention, start_BH=start, num_landmarks=6))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_golden_per_frame(golden_dir, dtype):
    golden = load_golden(golden_dir, "op_orthoformer", dtype)
    q, k, v = (golden[name] for name in "qkv")
    start = golden["per_frame.start_index"]
    assert torch.equal(select_landmarks(q, start, 6), golden["per_frame.landmark_order"])
    out = orthoformer_trajectories(q, k, v, 4, start, 6)
    assert_close(out, golden["per_frame.out"], GOLDEN_TOLERANCE[dtype])


@settings(deadline=None, max_examples=25)
@given(
    batch=st.integers(1, 2), heads=st.integers(1, 3), queries=st.integers(1, 24), keys=st.integers(1, 24),
    width=st.integers(2, 9), landmarks=st.integers(1, 30),
)  # fmt: skip
def test_twins_agree(batch, heads, queries, keys, width, landmarks):
    qkv = random_qkv(batch, heads, queries, width, keys=keys)
    options = {"start_BH": starts(batch, heads, queries), "num_landmarks": landmarks}
    fast = partial(orthoformer_attention, **options)
    assert_twins_agree(fast, partial(orthoformer_attention_reference, **options), qkv)


@settings(deadline=None, max_examples=25)
@given(frames=st.integers(1, 5), patches=st.integers(1, 7), width=st.integers(2, 9), landmarks=st.integers(1, 30))
def test_twins_agree_per_frame(frames, patches, width, landmarks):
    tokens = frames * patches
    options = {"num_frames": frames, "start_BH": starts(2, 2, tokens), "num_landmarks": landmarks}
    fast = partial(orthoformer_trajectories, **options)
    naive = partial(orthoformer_trajectories_reference, **options)
    assert_twins_agree(fast, naive, random_qkv(2, 2, tokens, width))


@settings(deadline=None, max_examples=40)
@given(
    batch=st.integers(1, 2), heads=st.integers(1, 3), tokens=st.integers(1, 40), width=st.integers(2, 9),
    landmarks=st.integers(1, 45), seed=st.integers(0, 1000),
)  # fmt: skip
def test_selection_is_the_greedy_one_and_distinct(batch, heads, tokens, width, landmarks, seed):
    q, _, _ = random_qkv(batch, heads, tokens, width, seed=seed)
    start = starts(batch, heads, tokens)
    index = select_landmarks(q, start, landmarks)
    assert index.shape == (batch, heads, min(tokens, landmarks))
    for picks in index.flatten(0, 1):
        assert picks.unique().numel() == picks.numel()
    expected = select_landmarks_reference(q, start, landmarks)
    if landmarks >= tokens:
        index, expected = index.sort(-1)[0], expected.sort(-1)[0]
    assert torch.equal(index, expected)


def test_orthonormal_queries_are_picked_first():
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(6, 6, generator=generator, dtype=torch.float64))[0]
    others = torch.randn(20, 6, generator=generator, dtype=torch.float64)
    order = torch.randperm(26, generator=generator)
    q = torch.cat([basis, others])[order].view(1, 1, 26, 6)
    places = torch.arange(26)[order < 6]
    index = select_landmarks(q, places[2].view(1, 1), 6)
    assert torch.equal(index[0, 0].sort()[0], places.sort()[0])


def test_of_equal_candidates_the_earliest_token_is_picked():
    eye = torch.eye(4, dtype=torch.float64).view(1, 1, 4, 4)
    assert select_landmarks(eye, torch.tensor([[2]]), 3).tolist() == [[[2, 0, 1]]]
    assert select_landmarks(torch.zeros_like(eye), torch.tensor([[1]]), 3).tolist() == [[[1, 0, 2]]]


def test_float32_and_half_precision():
    qkv = random_qkv(2, 2, 36, 16)
    options = {"start_BH": starts(2, 2, 36), "num_landmarks": 6}
    for attend in (
        partial(orthoformer_attention, **options),
        partial(orthoformer_trajectories, num_frames=4, **options),
    ):
        out = attend(*(x.float() for x in qkv))
        assert out.dtype == torch.float32
        assert_close(out, attend(*qkv), 1e-5)
        assert_half_precision_is_close(attend, qkv, 2e-2)


def test_constant_values_linearity_and_permutation():
    q, k, v = random_qkv(2, 3, 37, 16)
    attend = partial(orthoformer_attention, start_BH=starts(2, 3, 37), num_landmarks=9)
    out = attend(q, k, v)
    constant = v[:, :, :1].expand_as(v)
    assert_close(attend(q, k, constant), constant, 1e-12)
    other = v.roll(5, dims=2)
    assert_close(attend(q, k, 2.5 * v + other), 2.5 * out + attend(q, k, other), 1e-12)
    order = torch.randperm(37, generator=torch.Generator().manual_seed(0))
    assert_close(attend(q, k[:, :, order], v[:, :, order]), out, 1e-12)


def test_weights_have_low_rank():
    q, k, _ = random_qkv(1, 1, 37, 16)
    eye = torch.eye(37, dtype=torch.float64)[None, None]
    weights = torch.cat(
        [orthoformer_attention(q, k, columns, starts(1, 1, 37), 5) for columns in eye.split(16, -1)], -1
    )
    assert weights.min() >= 0
    assert_close(weights.sum(-1), torch.ones(1, 1, 37), 1e-12)
    assert torch.linalg.matrix_rank(weights[0, 0]) <= 5


def test_no_gradient_through_landmarks():
    """Only the path from queries to landmarks counts: the gradient equals that with the landmarks given as numbers."""
    q, k, v = random_qkv(1, 2, 12, 4)
    index = select_landmarks(q, starts(1, 2, 12), 3)
    landmarks = q.gather(2, index.unsqueeze(-1).expand(-1, -1, -1, 4))
    attend = torch.nn.functional.scaled_dot_product_attention
    q.requires_grad_()
    (expected,) = torch.autograd.grad(attend(q, landmarks, attend(landmarks, k, v)).square().sum(), q)
    (actual,) = torch.autograd.grad(orthoformer_attention(q, k, v, starts(1, 2, 12), 3).square().sum(), q)
    assert_close(actual, expected, 1e-12)


@pytest.mark.parametrize("landmarks", [5, 20])
def test_captured(landmarks):
    inputs = (*random_qkv(1, 2, 12, 8), starts(1, 2, 12))
    assert_captured(partial(orthoformer_attention, num_landmarks=landmarks), inputs)
