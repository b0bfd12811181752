"""Public weights of TimeSformer, ViViT (transformers' names), XViT and Motionformer (their own)."""

import re
from collections.abc import Mapping
from math import isqrt

from torch import Tensor

from fixformer.errors import WeightsError
from fixformer.models.weights.renaming import Rules, join_qkv, rename

TRANSFORMERS_ENDS: Rules = (
    (r"^(timesformer|vivit)\.", ""),
    (r"^embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (r"^embeddings\.", ""),
    (r"^layernorm\.", "norm."),
    (r"^classifier\.", "head.fc."),
)
TIMESFORMER_RULES: Rules = (
    *TRANSFORMERS_ENDS,
    (r"^encoder\.layer\.(\d+)\.temporal_attention\.attention\.", r"blocks.\1.time.body."),
    (r"^encoder\.layer\.(\d+)\.temporal_attention\.output\.dense\.", r"blocks.\1.time.body.proj."),
    (r"^encoder\.layer\.(\d+)\.temporal_dense\.", r"blocks.\1.time_fc."),
    (r"^encoder\.layer\.(\d+)\.temporal_layernorm\.", r"blocks.\1.time.norm."),
    (r"^encoder\.layer\.(\d+)\.attention\.attention\.", r"blocks.\1.space.body."),
    (r"^encoder\.layer\.(\d+)\.attention\.output\.dense\.", r"blocks.\1.space.body.proj."),
    (r"^encoder\.layer\.(\d+)\.layernorm_before\.", r"blocks.\1.space.norm."),
    (r"^encoder\.layer\.(\d+)\.layernorm_after\.", r"blocks.\1.mlp.norm."),
    (r"^encoder\.layer\.(\d+)\.intermediate\.dense\.", r"blocks.\1.mlp.body.fc1."),
    (r"^encoder\.layer\.(\d+)\.output\.dense\.", r"blocks.\1.mlp.body.fc2."),
)
# The names in files, and those that version 5 has in memory.
VIVIT_RULES: Rules = (
    *TRANSFORMERS_ENDS,
    (r"^(?:encoder\.layer|layers)\.(\d+)\.", r"blocks.\1."),
    (r"^(blocks\.\d+)\.attention\.attention\.(query|key|value)\.", r"\1.attention.body.\2."),
    (r"^(blocks\.\d+)\.attention\.q_proj\.", r"\1.attention.body.query."),
    (r"^(blocks\.\d+)\.attention\.k_proj\.", r"\1.attention.body.key."),
    (r"^(blocks\.\d+)\.attention\.v_proj\.", r"\1.attention.body.value."),
    (r"^(blocks\.\d+)\.attention\.(?:output\.dense|o_proj)\.", r"\1.attention.body.proj."),
    (r"^(blocks\.\d+)\.layernorm_before\.", r"\1.attention.norm."),
    (r"^(blocks\.\d+)\.layernorm_after\.", r"\1.mlp.norm."),
    (r"^(blocks\.\d+)\.(?:intermediate\.dense|mlp\.fc1)\.", r"\1.mlp.body.fc1."),
    (r"^(blocks\.\d+)\.(?:output\.dense|mlp\.fc2)\.", r"\1.mlp.body.fc2."),
)
TIMM_BLOCK: Rules = (
    (r"^((?:temporal_)?block[s.\d]*)\.norm1\.", r"\1.attention.norm."),
    (r"^((?:temporal_)?block[s.\d]*)\.norm2\.", r"\1.mlp.norm."),
    (r"^((?:temporal_)?block[s.\d]*)\.attn\.", r"\1.attention.body."),
    (r"^((?:temporal_)?block[s.\d]*)\.mlp\.fc", r"\1.mlp.body.fc"),
)
XVIT_RULES: Rules = (
    (r"^(module\.)?base_model\.", ""),
    (r"^consensus\.temporal_encoder\.0\.", "temporal_block."),
    (r"^consensus\.cls_token$", "temporal_cls_token"),
    (r"^consensus\.mlp_head\.0\.", "head_norm."),
    (r"^consensus\.mlp_head\.1\.", "head_fc."),
    (r"^consensus\.mlp_head\.4\.", "head.fc."),
    *TIMM_BLOCK,
    (r"^(blocks\.\d+)\.attention\.", r"\1.space."),
)
MOTIONFORMER_RULES: Rules = (
    (r"^module\.", ""),
    (r"^patch_embed_3d\.", "patch_embed."),
    (r"^pre_logits\.fc\.", "pre_logits."),
    (r"^head\.(weight|bias)$", r"head.fc.\1"),
    (r"^(blocks\.\d+)\.norm3\.", r"\1.time.norm."),
    (r"^(blocks\.\d+)\.timeattn\.", r"\1.time.body."),
    *TIMM_BLOCK,
    (r"\.attention\.body\.proj_(q|kv)\.", r".attention.body.attend.path_\1."),
)


def from_transformers_timesformer(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of `TimeSformer` from transformers'."""
    ours = rename(state_dict, TIMESFORMER_RULES)
    if not any(".time." in name for name in ours):
        raise WeightsError(
            "the TimeSformer of the file has no attention in time (its attention_type is joint_space_time or "
            "space_only); pass one with divided_space_time."
        )
    _take_tables(ours, "position_embeddings", "time_embeddings")
    return ours


def from_transformers_vivit(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of `ViViT` from transformers'. Its positions stay a list: the file does not say their grid."""
    ours = rename(state_dict, VIVIT_RULES)
    table_1ND = ours.pop("position_embeddings", None)
    if table_1ND is not None:
        ours["cls_position"], ours["position_embed.volume"] = table_1ND[:, :1], table_1ND[0, 1:]
    return join_qkv(ours)


def from_xvit(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of `XViT` from 1adrianb/video-transformers'."""
    ours = rename(state_dict, XVIT_RULES)
    _take_tables(ours, "pos_embed", "temp_embed")
    return ours


def from_motionformer(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of `Motionformer` from facebookresearch/Motionformer's.

    Its second stage has keys and values in one layer; the published models do not use the values, and neither do
    ours by default.
    """
    theirs = {name: x for name, x in state_dict.items() if not name.removeprefix("module.").startswith("patch_embed.")}
    ours = rename(theirs, MOTIONFORMER_RULES)
    _take_tables(ours, "pos_embed", "temp_embed")
    for name in [name for name in ours if ".path_kv." in name]:
        keys, values = ours.pop(name).chunk(2)
        ours[name.replace(".path_kv.", ".path_k.")] = keys
        ours[name.replace(".path_kv.", ".path_v.")] = values
    if any(".time.body." in name for name in ours):
        ours = {re.sub(r"^(blocks\.\d+)\.attention\.", r"\1.space.", name): x for name, x in ours.items()}
    return ours


def _take_tables(ours: dict[str, Tensor], positions: str, times: str) -> None:
    """`[1, 1 + H·W, D]` and `[1, T, ..., D]` to the class token's entry, a grid and a list."""
    if positions in ours:
        table_1ND = ours.pop(positions)
        side = isqrt(table_1ND.shape[1] - 1)
        if side * side != table_1ND.shape[1] - 1:
            raise WeightsError(f"the position table has {table_1ND.shape[1] - 1} entries, expected a square number.")
        ours["cls_position"] = table_1ND[:, :1]
        ours["position_embed.table"] = table_1ND[0, 1:].unflatten(0, (side, side))
    if times in ours:
        ours["time_embed.slots"] = ours.pop(times).flatten(0, -2)
