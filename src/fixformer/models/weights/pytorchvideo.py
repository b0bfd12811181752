"""Public weights of MViT, SlowFast and X3D, in the names of pytorchvideo."""

import re
from collections.abc import Mapping
from math import isqrt

import torch
from torch import Tensor

from fixformer.errors import WeightsError
from fixformer.models.weights.renaming import Rules, rename

TIME_TABLE, SPACE_TABLE = "time_embed.slots", "position_embed.table"

MVIT_RULES: Rules = (
    (r"^patch_embed\.patch_model\.", "patch_embed."),
    (r"^cls_positional_encoding\.cls_token$", "cls_token"),
    (r"^cls_positional_encoding\.pos_embed_class$", "cls_position"),
    (r"^cls_positional_encoding\.pos_embed_temporal$", TIME_TABLE),
    (r"^cls_positional_encoding\.pos_embed_spatial$", SPACE_TABLE),
    # pytorchvideo stores the pooling twice, under both names
    (r"\.attn\._attention_pool_([qkv])\.pool\.", r".attn.pool_\1."),
    (r"\.attn\._attention_pool_([qkv])\.norm\.", r".attn.norm_\1."),
    (r"\.attn\.pool_([qkv])\.", r".attn.pool_\1.conv."),
    (r"\.attn\.norm_([qkv])\.", r".attn.pool_\1.norm."),
    (r"\.attn\.", ".attention."),
    (r"\.mlp\.fc1\.", ".mlp.0."),
    (r"\.mlp\.fc2\.", ".mlp.2."),
    (r"^blocks\.(\d+)\.proj\.", r"blocks.\1.widen."),
    (r"^norm_embed\.", "norm."),
    (r"^head\.proj\.", "head.fc."),
)
BOTTLENECK_RULES: Rules = (
    (r"\.branch1_(conv|norm)\.", r".shortcut.\1."),
    (r"\.branch2\.norm_b\.0\.", r".b.norm."),
    (r"\.branch2\.norm_b\.1\.block\.", r".gate.gate."),
    (r"\.branch2\.(conv|norm)_([abc])\.", r".\2.\1."),
)
SLOWFAST_RULES: Rules = (
    (r"^blocks\.(\d+)\.multipathway_fusion\.conv_fast_to_slow\.", r"laterals.\1.conv."),
    (r"^blocks\.(\d+)\.multipathway_fusion\.norm\.", r"laterals.\1.norm."),
    (r"^blocks\.(\d+)\.multipathway_blocks\.0\.", r"slow.\1."),
    (r"^blocks\.(\d+)\.multipathway_blocks\.1\.", r"fast.\1."),
    (r"^(slow|fast)\.0\.", r"\1.stem."),
    *((rf"^(slow|fast)\.{stage + 1}\.res_blocks\.", rf"\1.stages.{stage}.") for stage in range(4)),
    *BOTTLENECK_RULES,
    (r"^blocks\.6\.proj\.", "head.fc."),
)
X3D_RULES: Rules = (
    (r"^blocks\.0\.conv\.conv_t\.", "stem_space."),
    (r"^blocks\.0\.conv\.conv_xy\.", "stem_time.conv."),
    (r"^blocks\.0\.norm\.", "stem_time.norm."),
    *((rf"^blocks\.{stage + 1}\.res_blocks\.", f"stages.{stage}.") for stage in range(4)),
    *BOTTLENECK_RULES,
    (r"^blocks\.5\.pool\.pre_(conv|norm)\.", r"expand.\1."),
    (r"^blocks\.5\.pool\.post_conv\.", "project."),
    (r"^blocks\.5\.proj\.", "head.fc."),
)


def from_pytorchvideo_slowfast(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of `SlowFast` from pytorchvideo's."""
    return rename(state_dict, SLOWFAST_RULES)


def from_pytorchvideo_x3d(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of `X3D` from pytorchvideo's."""
    renamed = rename(state_dict, X3D_RULES)
    if "project.weight" in renamed:  # a 1x1x1 convolution of a single position is a linear layer
        renamed["project.weight"] = renamed["project.weight"].flatten(1)
    return renamed


def from_pytorchvideo_mvit(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of `MViT` from pytorchvideo's, whose q, k and v are three layers where ours are one."""
    ours: dict[str, Tensor] = {}
    renamed = rename(state_dict, MVIT_RULES)
    for name, tensor in renamed.items():
        if match := re.fullmatch(r"(.*\.attention)\.[qkv]\.(weight|bias)", name):
            stem, kind = match.groups()
            parts = [f"{stem}.{part}.{kind}" for part in "qkv"]
            absent = [part for part in parts if part not in renamed]
            if absent:
                raise WeightsError(f"the weights have {name!r} but not {absent[0]!r}; is the file complete?")
            ours[f"{stem}.qkv.{kind}"] = torch.cat([renamed[part] for part in parts])
        else:
            ours[name] = tensor
    if TIME_TABLE in ours:
        ours[TIME_TABLE] = ours[TIME_TABLE][0]
    if SPACE_TABLE in ours:
        table_NC = ours[SPACE_TABLE][0]
        side = isqrt(len(table_NC))
        if side * side != len(table_NC):
            raise WeightsError(f"the position table has {len(table_NC)} entries, expected a square number.")
        ours[SPACE_TABLE] = table_NC.unflatten(0, (side, side))
    return ours
