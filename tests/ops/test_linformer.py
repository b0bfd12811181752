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

from fixformer.errors import InputError
from fixformer.ops.linformer import linformer_attention, linformer_attention_reference, resize_projection


def random_projections(tokens: int, slots: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    e, f = (torch.rand(tokens, slots, generator=generator, dtype=torch.float64) - 0.5 for _ in range(2))
    return e, f


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_golden(golden_dir, dtype):
    golden = load_golden(golden_dir, "op_linformer", dtype)
    assert_matches_golden(golden, lambda q, k, v: linformer_attention(q, k, v, golden["E"], golden["F"]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("tokens", "expected"), [(20, "module.out"), (16, "module.out_short")])
def test_golden_module(golden_dir, dtype, tokens, expected):
    golden = load_golden(golden_dir, "op_linformer", dtype)
    w = {name.removeprefix("weights."): x for name, x in golden.items() if name.startswith("weights.")}
    x = golden["module.x"][:, :tokens]
    q, k, v = (F.linear(x, w[f"to_{name}.weight"]).unflatten(-1, (2, 8)).transpose(1, 2) for name in "qkv")
    y = linformer_attention(q, k, v, w["proj_k"], w["proj_v"]).transpose(1, 2).flatten(2)
    assert_close(F.linear(y, w["to_out.weight"], w["to_out.bias"]), golden[expected], GOLDEN_TOLERANCE[dtype])


@settings(deadline=None, max_examples=25)
@given(
    batch=st.integers(1, 2), heads=st.integers(1, 3), queries=st.integers(1, 40), keys=st.integers(1, 40),
    width=st.integers(1, 9), slots=st.integers(1, 12), spare=st.integers(0, 3),
)  # fmt: skip
def test_twins_agree(batch, heads, queries, keys, width, slots, spare):
    qkv = random_qkv(batch, heads, queries, width, keys=keys)
    inputs = (*qkv, *random_projections(keys + spare, slots))
    assert_twins_agree(linformer_attention, linformer_attention_reference, inputs)


def test_float32_and_half_precision():
    inputs = (*random_qkv(2, 2, 37, 16), *random_projections(37, 8))
    out = linformer_attention(*(x.float() for x in inputs))
    assert out.dtype == torch.float32
    assert_close(out, linformer_attention(*inputs), 1e-5)
    assert_half_precision_is_close(linformer_attention, inputs, 5e-2)


def test_identity_projections_give_softmax_attention():
    q, k, v = random_qkv(2, 3, 37, 16)
    eye = torch.eye(37, dtype=torch.float64)
    assert_close(linformer_attention(q, k, v, eye, eye), F.scaled_dot_product_attention(q, k, v), 1e-12)


def test_linear_in_values():
    q, k, v = random_qkv(2, 3, 37, 16)
    e, f = random_projections(37, 8)
    other = v.roll(5, dims=2)
    separate = 2.5 * linformer_attention(q, k, v, e, f) + linformer_attention(q, k, other, e, f)
    assert_close(linformer_attention(q, k, 2.5 * v + other, e, f), separate, 1e-12)


def test_permutations():
    q, k, v = random_qkv(2, 3, 37, 16)
    e, f = random_projections(37, 8)
    out = linformer_attention(q, k, v, e, f)
    order = torch.randperm(37, generator=torch.Generator().manual_seed(0))
    moved = k[:, :, order], v[:, :, order]
    assert (linformer_attention(q, *moved, e, f) - out).abs().max() > 1e-2
    assert_close(linformer_attention(q, *moved, e[order], f[order]), out, 1e-12)
    assert_close(linformer_attention(q[:, :, order], k, v, e, f), out[:, :, order], 1e-12)


def test_a_longer_sequence_is_refused():
    q, k, v = random_qkv(1, 1, 21, 8)
    with pytest.raises(InputError, match="20 tokens, not 21"):
        linformer_attention(q, k, v, *random_projections(20, 4))


def test_resize_to_the_same_grid_changes_nothing():
    e, _ = random_projections(35, 6)
    assert_close(resize_projection(e, (5, 7), (5, 7)), e, 1e-12)


SIDES = st.tuples(st.integers(1, 9), st.integers(1, 9))
WIDE = st.tuples(st.integers(1, 9), st.integers(2, 9))


@settings(deadline=None, max_examples=40)
@given(grid=SIDES, factors=st.tuples(st.integers(1, 4), st.integers(1, 4)))
def test_resized_projection_of_a_constant_sequence(grid, factors):
    e, _ = random_projections(grid[0] * grid[1], 6)
    new_grid = grid[0] * factors[0], grid[1] * factors[1]
    resized = resize_projection(e, grid, new_grid)
    assert resized.shape == (new_grid[0] * new_grid[1], 6)
    # At the border, centres beyond the first and last token lean on it alone; nothing is lost or gained.
    assert_close(resized.sum(0), e.sum(0), 1e-12)


@settings(deadline=None, max_examples=40)
@given(grid=WIDE, new_grid=WIDE)
def test_resize_is_antialiased_bilinear_interpolation(grid, new_grid):
    e, _ = random_projections(grid[0] * grid[1], 6)
    image = e.mT.unflatten(-1, grid).unsqueeze(0).contiguous()
    expected = F.interpolate(image, size=new_grid, mode="bilinear", antialias=True)[0].flatten(1).mT
    scale = grid[0] * grid[1] / (new_grid[0] * new_grid[1])
    assert_close(resize_projection(e, grid, new_grid), expected * scale, 1e-12)


def test_resize_of_a_sequence():
    ramp = torch.arange(4.0).unsqueeze(1)
    expected = torch.tensor([0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3]).unsqueeze(1) / 2
    assert_close(resize_projection(ramp, (4, 1), (8, 1)), expected, 1e-6)


def test_captured():
    assert_captured(linformer_attention, (*random_qkv(1, 2, 37, 8), *random_projections(40, 6)), batched=3)
