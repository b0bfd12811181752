"""Pieces whose rules are easy to get wrong: plans, widths, padding, initial values, interpolated positions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fixformer.config.model import ModelSettings
from fixformer.errors import InputError
from fixformer.models.zoo.common.bottleneck import Bottleneck
from fixformer.models.zoo.common.pooled_attention import PooledAttention, pool_tokens
from fixformer.models.zoo.i3d import SameMaxPool, pad_same
from fixformer.models.zoo.mvit import MViT, MvitSettings, plan_blocks, token_grid
from fixformer.models.zoo.slowfast import SlowFast, SlowFastSettings
from fixformer.models.zoo.tsm import TSM
from fixformer.models.zoo.x3d import X3D, squeeze_dim


def test_mvit_plan_widens_before_it_halves() -> None:
    plans = plan_blocks(16, 96, 1, (1, 3, 14), 8)
    assert [p.out_dim for p in plans] == [192, 192, *[384] * 11, *[768] * 3]
    assert [p.num_heads for p in plans] == [1, 2, 2, *[4] * 11, 8, 8]
    assert [p.kv_stride[1] for p in plans] == [8, 4, 4, *[2] * 11, 1, 1]
    assert [i for i, p in enumerate(plans) if p.q_stride == (1, 2, 2)] == [1, 3, 14]
    assert all(p.dim // p.num_heads == 96 for p in plans)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 9), st.integers(1, 40))
def test_token_grid_is_what_the_patches_give(frames: int, size: int) -> None:
    model = MViT(MvitSettings(num_frames=4, image_size=32), embed_dim=2, depth=1, stage_starts=())
    patches = model.patch_embed(torch.zeros(1, 3, frames, size, size))
    assert tuple(patches.shape[2:]) == token_grid(frames, size)


def test_pooling_leaves_the_class_token_and_the_order_alone() -> None:
    x_BHNE = torch.randn(2, 3, 1 + 2 * 4 * 6, 5)
    pooled, grid = pool_tokens(x_BHNE, (2, 4, 6), nn.MaxPool3d((1, 2, 2)))
    assert grid == (2, 2, 3)
    assert torch.equal(pooled[:, :, 0], x_BHNE[:, :, 0])
    volume = x_BHNE[:, :, 1:].unflatten(2, (2, 4, 6))
    window = volume[:, :, 1, 2:4, 4:6].amax(dim=(2, 3))
    assert torch.equal(pooled[:, :, 1 + (1 * 2 + 1) * 3 + 2], window)


def test_pooled_attention_is_softmax_attention_of_pooled_tokens() -> None:
    attention = PooledAttention(8, 2, (1, 2, 2), (1, 1, 1)).double()
    x_BNC = torch.randn(2, 1 + 16, 8, dtype=torch.float64)
    q, k, v = attention.qkv(x_BNC).view(2, 17, 3, 2, 4).permute(2, 0, 3, 1, 4)
    (q, _), (k, _), (v, _) = (
        pool(part, (1, 4, 4))
        for pool, part in zip((attention.pool_q, attention.pool_k, attention.pool_v), (q, k, v), strict=True)
    )
    weights = (q @ k.transpose(-1, -2) / 2).softmax(dim=-1)
    expected = attention.proj((weights @ v).transpose(1, 2).reshape(2, 5, 8))
    out, grid = attention(x_BNC, (1, 4, 4))
    assert grid == (1, 2, 2)
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=0)


def tiny_mvit(frames: int = 4, size: int = 32) -> MViT:
    torch.manual_seed(0)
    settings = MvitSettings(num_classes=3, num_frames=frames, image_size=size)
    return MViT(settings, embed_dim=8, depth=2, stage_starts=(1,)).eval()


def test_resizing_for_good_equals_interpolating_for_each_clip() -> None:
    model = tiny_mvit()
    video = torch.randn(1, 3, 6, 40, 40)
    before = model(video)
    model.set_input_size(num_frames=6, image_size=40)
    assert model.time_embed.slots.shape[0] == 3
    assert model.position_embed.table.shape[:2] == (10, 10)
    torch.testing.assert_close(model(video), before)


def test_mvit_starts_as_released() -> None:
    model = tiny_mvit()
    biases = [m.bias for m in model.modules() if isinstance(m, nn.Linear | nn.LayerNorm)]
    assert all(torch.equal(bias, torch.full_like(bias, 0.02)) for bias in biases)
    assert 0.015 < model.position_embed.table.std() < 0.025
    assert model.time_embed.slots.abs().sum() > 0


@pytest.mark.parametrize(("dim", "expected"), [(12, 8), (54, 8), (108, 8), (216, 16), (432, 32)])
def test_squeeze_dim(dim: int, expected: int) -> None:
    assert squeeze_dim(dim) == expected


@settings(deadline=None, max_examples=50)
@given(st.tuples(*[st.integers(1, 12)] * 3), st.tuples(*[st.integers(1, 7)] * 3), st.tuples(*[st.integers(1, 3)] * 3))
def test_same_padding_gives_one_output_for_each_stride(
    size: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...]
) -> None:
    stride = tuple(min(s, k) for s, k in zip(stride, kernel, strict=True))
    x = torch.randn(1, 1, *size)
    out = SameMaxPool(kernel, stride)(x)
    assert tuple(out.shape[2:]) == tuple(-(-n // s) for n, s in zip(size, stride, strict=True))
    padded = pad_same(x, kernel, stride)
    for axis in range(3):
        extra = padded.shape[axis + 2] - size[axis]
        front = padded.abs().amax(dim=[d for d in range(5) if d != axis + 2]).nonzero()[0].item()
        assert front == extra // 2


def test_residual_branches_of_slowfast_and_x3d_start_at_zero() -> None:
    slowfast = SlowFast(SlowFastSettings(num_frames=4, image_size=32), depths=(1, 1, 1, 1), width=8, beta=4)
    x3d = X3D(ModelSettings(num_frames=4, image_size=32), stem_dim=8, dims=(8,), depths=(2,), expansion=1.5)
    for model in (slowfast, x3d):
        blocks = [m for m in model.modules() if isinstance(m, Bottleneck)]
        assert blocks
        assert all(block.c.norm.weight.abs().sum() == 0 for block in blocks)


def test_initial_scales() -> None:
    torch.manual_seed(0)
    tsm = TSM(ModelSettings(num_classes=50, num_frames=2, image_size=32), depths=(1, 1), width=32)
    assert tsm.head.fc.weight.std().item() == pytest.approx(0.001, rel=0.1)
    conv = tsm.stages[0][0].b.conv
    assert conv.weight.std().item() == pytest.approx((2 / (9 * conv.out_channels)) ** 0.5, rel=0.1)


def test_slow_path_sees_every_fourth_frame() -> None:
    model = SlowFast(SlowFastSettings(num_frames=8, image_size=32), depths=(1, 1, 1, 1), width=8, beta=4).eval()
    seen: list[torch.Tensor] = []
    model.slow.stem.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))
    video = torch.randn(1, 3, 9, 32, 32)
    model(video)
    assert torch.equal(seen[0], video[:, :, [0, 4, 8]])


def test_an_even_lateral_kernel_is_refused() -> None:
    with pytest.raises(InputError, match="lateral_kernel=4"):
        SlowFast(SlowFastSettings(lateral_kernel=4))


def test_dropped_positions_average_out_only_in_training() -> None:
    model = TSM(ModelSettings(num_classes=4, num_frames=2, image_size=32), depths=(1, 1), width=8)
    features = torch.randn(1, 2, model.num_features, 1, 1)
    model.train()
    assert not torch.equal(model.forward_head(features), model.forward_head(features))
    model.eval()
    assert torch.equal(model.forward_head(features), model.forward_head(features))
