"""Public weights of MViT."""

import re
from collections.abc import Mapping
from math import isqrt

import torch
from torch import Tensor

from fixformer.errors import WeightsError
from fixformer.models.weights.renaming import Rules, rename

TIME_TABLE, SPACE_TABLE = "time_embed.slots", "position_embed.table"

RULES: Rules = (
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
PROJECTION = re.compile(r"(.*\.attention)\.([qkv])\.(weight|bias)")


def from_pytorchvideo_mvit(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of `MViT` from pytorchvideo's, whose q, k and v are three layers where ours are one."""
    renamed = rename(state_dict, RULES)
    for name in list(renamed):
        if match := PROJECTION.fullmatch(name):
            stem, _, kind = match.groups()
            if f"{stem}.qkv.{kind}" not in renamed:
                renamed[f"{stem}.qkv.{kind}"] = _join(renamed, stem, kind)
    if TIME_TABLE in renamed:
        renamed[TIME_TABLE] = renamed[TIME_TABLE][0]
    if SPACE_TABLE in renamed:
        renamed[SPACE_TABLE] = _square(renamed[SPACE_TABLE][0])
    return {name: tensor for name, tensor in renamed.items() if not PROJECTION.fullmatch(name)}


def _square(table_NC: Tensor) -> Tensor:
    side = isqrt(len(table_NC))
    if side * side != len(table_NC):
        raise WeightsError(f"the table of positions has {len(table_NC)} entries, which is no square grid.")
    return table_NC.unflatten(0, (side, side))


def _join(renamed: Mapping[str, Tensor], stem: str, kind: str) -> Tensor:
    names = [f"{stem}.{part}.{kind}" for part in "qkv"]
    for name in names:
        if name not in renamed:
            raise WeightsError(f"the weights have no tensor {name!r}, but others of that attention; is the file whole?")
    return torch.cat([renamed[name] for name in names])
