"""Parameters and multiply-accumulates of the full-size networks, on the meta device, where they cost nothing."""

from math import prod

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from fixformer.models.base import VideoModel
from fixformer.models.registry import create_model

NAMES = {
    "SlowFast R50 8x8": "slowfast_r50_8x8",
    "SlowFast R101 8x8 (6 temporal blocks in res4)": "slowfast_r101_8x8",
    "X3D-M": "x3d_m",
    "MViT-B 16x4": "mvit_base_16x4",
    "MViT-B 32x3": "mvit_base_32x3",
    "TSM R50": "tsm_r50",
    "TSM R101": "tsm_r101",
    "MSNet R50": "msnet_r50",
    "I3D Inception-v1": "i3d",
}
aten = torch.ops.aten
# The reference counter's convention; doubled, because torch counts two for a multiply-accumulate.
PER_ELEMENT = {
    aten.native_layer_norm: lambda x_shape, *_, **__: 2 * 5 * prod(x_shape),
    aten._native_batch_norm_legit_no_training: lambda x_shape, *_, **__: 2 * 2 * prod(x_shape),
}


def build(name: str, **settings: int) -> VideoModel:
    with torch.device("meta"):
        return create_model(name, **settings).eval()


def params(*modules: nn.Module) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


def macs(model: VideoModel, frames: int, size: int) -> int:
    with FlopCounterMode(display=False, custom_mapping=PER_ELEMENT) as counter, torch.no_grad():
        model(torch.empty(1, 3, frames, size, size, device="meta"))
    return counter.get_total_flops() // 2


# Elsewhere the reference's head sees several windows of a larger picture, its average pooling counts, or it correlates
# fewer positions at a time.
SAME_OPERATIONS = ("SlowFast R50 8x8", "X3D-M", "MViT-B 16x4", "MViT-B 32x3", "I3D Inception-v1")


@pytest.mark.parametrize("system", NAMES)
def test_totals_are_those_of_the_reference(golden_costs: list[dict], system: str) -> None:
    rows = [row for row in golden_costs if row["system"] == system and row.get("lateral_kernel", 5) == 5]
    assert rows
    for row in rows:
        frames, size = row["frames"], row["size"]
        model = build(NAMES[system], num_classes=row["classes"], num_frames=frames, image_size=size)
        assert params(model) == row["params"] - sum(row.get("of_which_unused_params", {}).values())
        tolerance = 0 if system in SAME_OPERATIONS and size == 224 else 0.005
        assert macs(model, frames, size) == pytest.approx(row["macs"], rel=tolerance, abs=0)


def shapes_of(model: VideoModel, modules: list[nn.Module]) -> list[tuple[int, ...]]:
    """Output shapes of modules without the batch axis."""
    shapes: dict[nn.Module, tuple[int, ...]] = {}

    def note(module: nn.Module, _inputs: object, output: Tensor | tuple[Tensor, object]) -> None:
        shapes[module] = tuple((output if isinstance(output, Tensor) else output[0]).shape[1:])

    handles = [module.register_forward_hook(note) for module in modules]
    with torch.no_grad():
        model(torch.empty(1, 3, model.num_frames, model.image_size, model.image_size, device="meta"))
    for handle in handles:
        handle.remove()
    return [shapes[module] for module in modules]


def test_stages_of_slowfast() -> None:
    model = build("slowfast_r50_8x8")
    stem = params(model.slow.stem, model.fast.stem, model.laterals[0])
    assert stem == 16_360
    expected = [240_224, 1_345_152, 10_599_424, 21_443_328]
    laterals = [*model.laterals[1:], nn.Identity()]
    stages = zip(model.slow.stages, model.fast.stages, laterals, strict=True)
    assert [params(*parts) for parts in stages] == expected
    assert params(model.head) == 922_000
    lasts = [stage[-1] for path in (model.slow, model.fast) for stage in path.stages]
    slow = [(256, 8, 56, 56), (512, 8, 28, 28), (1024, 8, 14, 14), (2048, 8, 7, 7)]
    fast = [(32, 32, 56, 56), (64, 32, 28, 28), (128, 32, 14, 14), (256, 32, 7, 7)]
    assert shapes_of(model, lasts) == slow + fast
    assert [stage[0].a.conv.in_channels for stage in model.slow.stages] == [80, 320, 640, 1280]


def test_r101_differs_in_res4_only() -> None:
    model = build("slowfast_r101_8x8", lateral_kernel=7)
    assert params(model) == 53_340_150
    assert params(model.slow.stages[2], model.fast.stages[2], model.laterals[3]) == 29_894_016
    assert params(model.slow.stages[3], model.fast.stages[3]) == 21_443_328
    for path in (model.slow, model.fast):
        kernels = [block.a.conv.kernel_size for block in path.stages[2]]
        assert kernels == [(3, 1, 1)] * 6 + [(1, 1, 1)] * 17


def test_stages_of_x3d() -> None:
    model = build("x3d_m")
    assert params(model.stem_space, model.stem_time) == 816
    assert [params(stage) for stage in model.stages] == [15_370, 73_248, 569_256, 1_347_440]
    assert params(model.expand, model.project, model.head) == 1_788_144
    lasts = [model.stem_time, *(stage[-1] for stage in model.stages)]
    assert shapes_of(model, lasts) == [
        (24, 16, 112, 112),
        (24, 16, 56, 56),
        (48, 16, 28, 28),
        (96, 16, 14, 14),
        (192, 16, 7, 7),
    ]


def test_blocks_of_mvit() -> None:
    model = build("mvit_base_16x4")
    middle = [1_780_032] * 9
    first = [172_992, 453_216, 672_192, 1_782_816]
    assert [params(block) for block in model.blocks] == [*first, *middle, 2_665_920, 7_096_224, 7_093_440]
    assert params(model.patch_embed) == 42_432
    tables = model.no_weight_decay()
    assert sum(model.get_parameter(name).numel() for name in tables) == 302_016
    assert (params(model.norm), params(model.head)) == (1_536, 307_600)
    tokens = [(25089, 192), (6273, 192), (6273, 384), *[(1569, 384)] * 10, (1569, 768), (393, 768), (393, 768)]
    assert shapes_of(model, list(model.blocks)) == tokens


def test_blocks_of_i3d() -> None:
    model = build("i3d")
    assert [params(part) for part in model.stem] == [65_984, 0, 4_224, 332_160]
    assert [[params(block) for block in group] for group in model.groups] == [
        [0, 386_272, 837_888],
        [0, 737_760, 904_464, 1_103_664, 1_356_672, 1_799_168],
        [0, 1_974_272, 2_784_736],
    ]
    parts = [model.stem[0], model.stem[3], *(part for group in model.groups for part in (group[0], group[-1]))]
    assert shapes_of(model, parts) == [
        *((64, 32, 112, 112), (192, 32, 56, 56)),
        *((192, 32, 28, 28), (480, 32, 28, 28)),
        *((480, 16, 14, 14), (832, 16, 14, 14)),
        *((832, 8, 7, 7), (1024, 8, 7, 7)),
    ]


def test_msnet_is_tsm_and_a_motion_module() -> None:
    model, tsm = build("msnet_r50"), build("tsm_r50")
    assert (params(model.motion.reduce), params(model.motion.refine)) == (32_896, 38_009)
    assert params(model) - params(tsm) == 32_896 + 38_009
    assert params(tsm) == 23_864_814 - 256


@pytest.mark.parametrize(("name", "shifted"), [("tsm_r50", 16), ("tsm_r101", 18), ("msnet_r50", 16)])
def test_how_many_blocks_shift(name: str, shifted: int) -> None:
    folds = [block.fold for stage in build(name).stages for block in stage]
    assert sum(fold > 0 for fold in folds) == shifted
