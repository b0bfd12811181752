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
    assert_twins_agree,
    load_golden,
    random_qkv,
)
from torch import Tensor

from fixformer.ops.lara import lara_trajectories
from fixformer.ops.orthoformer import orthoformer_trajectories
from fixformer.ops.pooling import grid_means
from fixformer.ops.trajectory import (
    TrajectoryWeights,
    points_in_own_frame,
    softmax_trajectories,
    trajectory_attention,
    trajectory_attention_reference,
    trajectory_attention_with_class_token,
)


def random_weights(dim: int, variant: str, dtype: torch.dtype = torch.float64) -> TrajectoryWeights:
    generator = torch.Generator().manual_seed(3)
    shapes = [(dim, dim), (dim,)] * (3 if variant == "fixed" else 2)
    return TrajectoryWeights(*(torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes))


def golden_weights(golden: dict[str, Tensor], variant: str) -> TrajectoryWeights:
    k_weight, v_weight = golden["weights.proj_kv.weight"].chunk(2)
    k_bias, v_bias = golden["weights.proj_kv.bias"].chunk(2)
    values = (v_weight, v_bias) if variant == "fixed" else ()
    return TrajectoryWeights(golden["weights.proj_q.weight"], golden["weights.proj_q.bias"], k_weight, k_bias, *values)


def lara_stage(q: Tensor, k: Tensor, v: Tensor, num_frames: int) -> Tensor:
    return lara_trajectories(q, k, v, num_frames, *(grid_means(x, (3, 2, 2), (1, 2, 2)) for x in (q, k)))


def orthoformer_stage(q: Tensor, k: Tensor, v: Tensor, num_frames: int) -> Tensor:
    return orthoformer_trajectories(q, k, v, num_frames, q.new_zeros(q.shape[:2], dtype=torch.long), num_landmarks=5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("variant", ["original", "fixed"])
@pytest.mark.parametrize(
    ("suffix", "frames", "trajectories"),
    [
        ("out", 3, softmax_trajectories),
        ("orthoformer.out", 3, orthoformer_stage),
        ("one_frame.out", 1, softmax_trajectories),
    ],
)
def test_golden(golden_dir, suffix, frames, trajectories, variant, dtype):
    golden = load_golden(golden_dir, "op_trajectory", dtype)
    x = golden["x"][:, : 1 + frames * 6]
    qkv = F.linear(x, golden["weights.qkv.weight"], golden["weights.qkv.bias"])
    q, k, v = qkv.unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
    y = trajectory_attention_with_class_token(q, k, v, golden_weights(golden, variant), frames, trajectories)
    out = F.linear(y, golden["weights.proj.weight"], golden["weights.proj.bias"])
    assert_close(out, golden[f"{variant}.{suffix}"], GOLDEN_TOLERANCE[dtype])


@settings(deadline=None, max_examples=25)
@given(
    batch=st.integers(1, 2), heads=st.integers(1, 3), frames=st.integers(1, 4), patches=st.integers(1, 7),
    width=st.integers(1, 5), variant=st.sampled_from(["original", "fixed"]),
)  # fmt: skip
def test_twins_agree(batch, heads, frames, patches, width, variant):
    inputs = (*random_qkv(batch, heads, frames * patches, width), *random_weights(heads * width, variant))
    inputs = tuple(x for x in inputs if x is not None)

    def run(attend, q, k, v, *weights):
        return attend(q, k, v, TrajectoryWeights(*weights), frames)

    assert_twins_agree(partial(run, trajectory_attention), partial(run, trajectory_attention_reference), inputs)


@pytest.mark.parametrize("variant", ["original", "fixed"])
def test_float32_and_half_precision(variant):
    qkv = random_qkv(2, 2, 24, 8)

    def attend(q, k, v):
        # Weights of a model under autocast are float32; of a model cast as a whole, like its inputs.
        return trajectory_attention(q, k, v, random_weights(16, variant, q.dtype), 4)

    out = attend(*(x.float() for x in qkv))
    assert out.dtype == torch.float32
    assert_close(out, attend(*qkv), 1e-4)
    rounded = tuple(x.bfloat16() for x in qkv)
    expected = trajectory_attention(*(x.double() for x in rounded), random_weights(16, variant), 4)
    assert_close(attend(*rounded).double(), expected, 0.2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_close(attend(*(x.float() for x in rounded)).double(), expected, 0.2)


def test_stage_one_in_half_precision():
    assert_half_precision_is_close(lambda q, k, v: softmax_trajectories(q, k, v, 4), random_qkv(2, 2, 24, 8), 2e-2)


def test_one_frame_is_softmax_attention_over_the_patches():
    q, k, v = random_qkv(2, 3, 12, 8)
    expected = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    assert_close(trajectory_attention(q, k, v, random_weights(24, "original"), 1), expected, 1e-12)
    assert (trajectory_attention(q, k, v, random_weights(24, "fixed"), 1) - expected).abs().max() > 1e-2


def test_constant_values_pass_through_the_original_variant():
    q, k, v = random_qkv(2, 3, 12, 8)
    constant = v[:, :, :1].expand_as(v)
    out = trajectory_attention(q, k, constant, random_weights(24, "original"), 4)
    assert_close(out, constant.transpose(1, 2).flatten(2), 1e-12)


@pytest.mark.parametrize("trajectories", [softmax_trajectories, orthoformer_stage, lara_stage])
def test_trajectories_are_linear_in_the_values(trajectories):
    """systems.md F3. Stage 1 only: in stage 2 the trajectories, which hold the values, also ask and answer."""
    q, k, v = random_qkv(2, 3, 12, 8)
    other = v.roll(5, dims=2)
    separate = 2.5 * trajectories(q, k, v, 3) + trajectories(q, k, other, 3)
    assert_close(trajectories(q, k, 2.5 * v + other, 3), separate, 1e-12)


def test_both_stages_are_linear_in_the_values_where_no_frame_is_preferred():
    q, k, v = random_qkv(2, 3, 12, 8)
    other = v.roll(5, dims=2)
    weights = random_weights(24, "original")
    indifferent = weights._replace(query_weight=torch.zeros_like(weights.query_weight))
    indifferent = indifferent._replace(query_bias=torch.zeros_like(weights.query_bias))

    def bend(weights: TrajectoryWeights) -> Tensor:
        separate = 2.5 * trajectory_attention(q, k, v, weights, 3) + trajectory_attention(q, k, other, weights, 3)
        return (trajectory_attention(q, k, 2.5 * v + other, weights, 3) - separate).abs().max()

    assert bend(indifferent) < 1e-12
    assert bend(weights) > 1e-2


@pytest.mark.parametrize("variant", ["original", "fixed"])
def test_frames_have_no_order(variant):
    q, k, v = random_qkv(2, 3, 20, 8)
    weights = random_weights(24, variant)
    order = torch.tensor([2, 0, 3, 1])

    def reorder(x: Tensor, dim: int) -> Tensor:
        return x.unflatten(dim, (4, 5)).index_select(dim, order).flatten(dim, dim + 1)

    moved = trajectory_attention(*(reorder(x, 2) for x in (q, k, v)), weights, 4)
    assert_close(moved, reorder(trajectory_attention(q, k, v, weights, 4), 1), 1e-12)


def test_patches_ignore_the_class_token_which_sees_everything():
    q, k, v = random_qkv(2, 3, 13, 8)
    weights = random_weights(24, "original")
    out = trajectory_attention_with_class_token(q, k, v, weights, 4)
    patches = trajectory_attention(*(x[:, :, 1:] for x in (q, k, v)), weights, 4)
    assert_close(out[:, 1:], patches, 1e-12)
    softmax = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    assert_close(out[:, :1], softmax[:, :1], 1e-12)


def test_points_in_own_frame():
    path = torch.arange(2 * 6 * 3).view(1, 12, 3, 1)[:, :6].float()
    assert points_in_own_frame(path).flatten().tolist() == [0, 3, 7, 10, 14, 17]


@pytest.mark.parametrize("variant", ["original", "fixed"])
def test_gradcheck(variant):
    weights = random_weights(4, variant)
    q, k, v = (x.requires_grad_() for x in random_qkv(1, 2, 6, 2))
    assert torch.autograd.gradcheck(lambda *qkv: trajectory_attention(*qkv, weights, 3), (q, k, v))


@pytest.mark.parametrize("trajectories", [softmax_trajectories, orthoformer_stage, lara_stage])
def test_captured(trajectories):
    weights = random_weights(8, "fixed")

    def attend(q, k, v):
        return trajectory_attention_with_class_token(q, k, v, weights, 3, trajectories)

    assert_captured(attend, random_qkv(1, 2, 13, 4))


@pytest.mark.parametrize("trajectories", [orthoformer_stage, lara_stage])
def test_approximate_stages_pass_constant_values_through(trajectories):
    q, k, v = random_qkv(1, 2, 12, 4)
    constant = v[:, :, :1].expand_as(v)
    assert_close(trajectories(q, k, constant, 3), constant.unsqueeze(3).expand(-1, -1, -1, 3, -1), 1e-12)
