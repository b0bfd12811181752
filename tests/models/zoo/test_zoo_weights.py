"""Public names to ours. That the values end up in the right place is shown by the golden tests."""

import pytest
import torch
from torch import Tensor

from fixformer.errors import WeightsError
from fixformer.models.registry import create_model
from fixformer.models.weights.pytorchvideo import (
    from_pytorchvideo_mvit,
    from_pytorchvideo_slowfast,
    from_pytorchvideo_x3d,
)
from fixformer.models.weights.resnet import from_motionsqueeze, from_tsm

NORM = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def shapes(name: str) -> dict[str, torch.Size]:
    with torch.device("meta"):
        return {key: t.shape for key, t in create_model(name).state_dict().items()}


def empty(names: list[str]) -> dict[str, Tensor]:
    return {name: torch.empty(1, 1, 1, 1, 1) for name in names}


def tsm_names(depths: tuple[int, ...], shift_every: int) -> list[str]:
    """The names in a checkpoint of mit-han-lab/temporal-shift-module, saved from a DataParallel."""
    names = ["conv1.weight", *(f"bn1.{leaf}" for leaf in NORM)]
    for stage, depth in enumerate(depths):
        for i in range(depth):
            block = f"layer{stage + 1}.{i}"
            wrapper = ".net" if i % shift_every == 0 else ""
            names += [f"{block}.conv1{wrapper}.weight", f"{block}.conv2.weight", f"{block}.conv3.weight"]
            names += [f"{block}.bn{n}.{leaf}" for n in (1, 2, 3) for leaf in NORM]
        names += [f"layer{stage + 1}.0.downsample.0.weight"]
        names += [f"layer{stage + 1}.0.downsample.1.{leaf}" for leaf in NORM]
    return [f"module.base_model.{name}" for name in names] + ["module.new_fc.weight", "module.new_fc.bias"]


@pytest.mark.parametrize(
    ("name", "depths", "shift_every"), [("tsm_r50", (3, 4, 6, 3), 1), ("tsm_r101", (3, 4, 23, 3), 2)]
)
def test_tsm_names_cover_the_model(name: str, depths: tuple[int, ...], shift_every: int) -> None:
    assert set(from_tsm(empty(tsm_names(depths, shift_every)))) == set(shapes(name))


def test_motionsqueeze_names_cover_the_model() -> None:
    names = [name.removeprefix("module.").removeprefix("base_model.") for name in tsm_names((3, 4, 6, 3), 1)]
    names = [name.replace(".net.", ".").replace("new_fc", "fc") for name in names]
    names += ["chnl_reduction.0.weight", *(f"chnl_reduction.1.{leaf}" for leaf in NORM)]
    for unit in range(1, 5):
        names += [f"flow_refinement.conv{unit}.{conv}.weight" for conv in (0, 3)]
        names += [f"flow_refinement.conv{unit}.{norm}.{leaf}" for norm in (1, 4) for leaf in NORM]
    assert set(from_motionsqueeze(empty(names))) == set(shapes("msnet_r50"))


def bottleneck_names(block: str, *, projected: bool, normed: bool = True, norm_b: str = "norm_b") -> list[str]:
    names = [f"{block}.branch2.conv_{part}.weight" for part in "abc"]
    names += [f"{block}.branch2.{norm}.{leaf}" for norm in ("norm_a", norm_b, "norm_c") for leaf in NORM]
    names += [f"{block}.branch1_conv.weight"] * projected
    return names + [f"{block}.branch1_norm.{leaf}" for leaf in NORM] * (projected and normed)


@pytest.mark.parametrize(("name", "depths"), [("slowfast_r50_8x8", (3, 4, 6, 3)), ("slowfast_r101_8x8", (3, 4, 23, 3))])
def test_slowfast_names_cover_the_model(name: str, depths: tuple[int, ...]) -> None:
    names = ["blocks.6.proj.weight", "blocks.6.proj.bias"]
    for stage in range(4):
        fusion = f"blocks.{stage}.multipathway_fusion"
        names += [f"{fusion}.conv_fast_to_slow.weight", *(f"{fusion}.norm.{leaf}" for leaf in NORM)]
    for path in (0, 1):
        stem = f"blocks.0.multipathway_blocks.{path}"
        names += [f"{stem}.conv.weight", *(f"{stem}.norm.{leaf}" for leaf in NORM)]
        for stage, depth in enumerate(depths):
            for i in range(depth):
                block = f"blocks.{stage + 1}.multipathway_blocks.{path}.res_blocks.{i}"
                names += bottleneck_names(block, projected=i == 0)
    assert set(from_pytorchvideo_slowfast(empty(names))) == set(shapes(name))


def test_x3d_names_cover_the_model() -> None:
    names = ["blocks.0.conv.conv_t.weight", "blocks.0.conv.conv_xy.weight"]
    names += [f"blocks.0.norm.{leaf}" for leaf in NORM]
    for stage, depth in enumerate((3, 5, 11, 7)):
        for i in range(depth):
            block = f"blocks.{stage + 1}.res_blocks.{i}"
            names += bottleneck_names(block, projected=i == 0, normed=stage > 0, norm_b="norm_b.0")
            gates = [f"{block}.branch2.norm_b.1.block.{n}.{leaf}" for n in (0, 2) for leaf in ("weight", "bias")]
            names += gates if i % 2 == 0 else []
    names += [f"blocks.5.pool.pre_norm.{leaf}" for leaf in NORM]
    names += ["blocks.5.pool.pre_conv.weight", "blocks.5.pool.post_conv.weight"]
    names += ["blocks.5.proj.weight", "blocks.5.proj.bias"]
    assert set(from_pytorchvideo_x3d(empty(names))) == set(shapes("x3d_m"))


def mvit_weights() -> dict[str, Tensor]:
    """One strided block that widens, with the shapes of a small model: width 2, grid 1x3x3, 4 classes."""
    pair = ("weight", "bias")
    matrices = {
        f"blocks.0.attn.{part}.{leaf}": torch.randn(2, 2 if leaf == "weight" else 1) for part in "qkv" for leaf in pair
    }
    rest = [
        f"blocks.0.{part}.{leaf}"
        for part in ("attn.proj", "norm1", "norm2", "mlp.fc1", "mlp.fc2", "proj")
        for leaf in pair
    ]
    rest += [f"blocks.0.attn.{kind}_{part}.weight" for kind in ("pool", "norm") for part in "qkv"]
    rest += [f"blocks.0.attn.norm_{part}.bias" for part in "qkv"]
    tables = {
        "cls_token": (1, 1, 2),
        "pos_embed_class": (1, 1, 2),
        "pos_embed_temporal": (1, 1, 2),
        "pos_embed_spatial": (1, 9, 2),
    }
    positions = {f"cls_positional_encoding.{name}": torch.randn(size) for name, size in tables.items()}
    ends = [f"{part}.{leaf}" for part in ("patch_embed.patch_model", "norm_embed", "head.proj") for leaf in pair]
    return matrices | positions | {name: torch.randn(2) for name in rest + ends}


def test_mvit_queries_keys_and_values_become_one_layer() -> None:
    theirs = mvit_weights()
    ours = from_pytorchvideo_mvit(theirs)
    joined = torch.cat([theirs[f"blocks.0.attn.{part}.weight"] for part in "qkv"])
    assert torch.equal(ours["blocks.0.attention.qkv.weight"], joined)
    assert not any(f".attention.{part}." in name for part in "qkv" for name in ours)


def test_mvit_tables_get_their_grid() -> None:
    theirs = mvit_weights()
    ours = from_pytorchvideo_mvit(theirs)
    assert ours["position_embed.table"].shape == (3, 3, 2)
    expected = theirs["cls_positional_encoding.pos_embed_spatial"][0, 5]
    assert torch.equal(ours["position_embed.table"][1, 2], expected)
    assert ours["time_embed.slots"].shape == (1, 2)


def test_mvit_names_are_those_of_our_block() -> None:
    ours = from_pytorchvideo_mvit(mvit_weights())
    block = {name.removeprefix("blocks.0.") for name in ours if name.startswith("blocks.")}
    full = {name.removeprefix("blocks.1.") for name in shapes("mvit_base_16x4") if name.startswith("blocks.1.")}
    assert block == full | {"widen.weight", "widen.bias"}


def test_a_broken_mvit_file_is_said_to_be_broken() -> None:
    theirs = mvit_weights()
    del theirs["blocks.0.attn.k.bias"]
    with pytest.raises(WeightsError, match=r"blocks\.0\.attention\.k\.bias"):
        from_pytorchvideo_mvit(theirs)
    table = "cls_positional_encoding.pos_embed_spatial"
    with pytest.raises(WeightsError, match="8 entries"):
        from_pytorchvideo_mvit({table: torch.zeros(1, 8, 2)})


def test_unknown_names_stay_to_be_reported() -> None:
    assert set(from_tsm(empty(["module.something.weight"]))) == {"something.weight"}
