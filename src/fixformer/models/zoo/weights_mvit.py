"""Public weights of MViT."""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from fixformer.errors import WeightsError
from fixformer.models.zoo.renaming import Rules, rename

RULES: Rules = (
    (r"^patch_embed\.patch_model\.", "patch_embed."),
    (r"^cls_positional_encoding\.cls_token$", "positions.cls_token"),
    (r"^cls_positional_encoding\.pos_embed_class$", "positions.class_embed"),
    (r"^cls_positional_encoding\.pos_embed_(spatial|temporal)$", r"positions.\1"),
    # pytorchvideo stores the pooling twice, under both names
    (r"\.attn\._attention_pool_([qkv])\.pool\.", r".attn.pool_\1."),
    (r"\.attn\._attention_pool_([qkv])\.norm\.", r".attn.norm_\1."),
    (r"\.attn\.pool_([qkv])\.", r".attn.pool_\1.conv."),
    (r"\.attn\.norm_([qkv])\.", r".attn.pool_\1.norm."),
    (r"\.mlp\.fc1\.", ".mlp.0."),
    (r"\.mlp\.fc2\.", ".mlp.2."),
    (r"^blocks\.(\d+)\.proj\.", r"blocks.\1.widen."),
    (r"^norm_embed\.", "norm."),
    (r"^head\.proj\.", "fc."),
)
PROJECTION = re.compile(r"(.*\.attn)\.([qkv])\.(weight|bias)")


def from_pytorchvideo_mvit(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of `MViT` from pytorchvideo's, whose q, k and v are three layers where ours are one."""
    renamed = rename(state_dict, RULES)
    for name in list(renamed):
        if match := PROJECTION.fullmatch(name):
            attn, _, kind = match.groups()
            if f"{attn}.qkv.{kind}" not in renamed:
                renamed[f"{attn}.qkv.{kind}"] = _join(renamed, attn, kind)
    return {name: tensor for name, tensor in renamed.items() if not PROJECTION.fullmatch(name)}


def _join(renamed: Mapping[str, Tensor], attn: str, kind: str) -> Tensor:
    names = [f"{attn}.{part}.{kind}" for part in "qkv"]
    for name in names:
        if name not in renamed:
            raise WeightsError(f"the weights have no tensor {name!r}, but others of that attention; is the file whole?")
    return torch.cat([renamed[name] for name in names])
