"""Public image ViTs and DeiTs, in the names of timm or of transformers."""

from collections.abc import Mapping
from math import isqrt

from torch import Tensor

from fixformer.models.weights.renaming import Rules, join_qkv, rename

TIMM_RULES: Rules = (
    (r"^blocks\.(\d+)\.attn\.", r"blocks.\1.space.body."),
    (r"^blocks\.(\d+)\.norm1\.", r"blocks.\1.space.norm."),
    (r"^blocks\.(\d+)\.norm2\.", r"blocks.\1.mlp.norm."),
    (r"^blocks\.(\d+)\.mlp\.fc", r"blocks.\1.mlp.body.fc"),
    (r"^pos_embed$", "position_embed.table"),
    (r"^(fc_norm)\.", "norm."),
    (r"^head\.(weight|bias)$", r"head.fc.\1"),
)
TRANSFORMERS_RULES: Rules = (
    (r"^(vit|deit)\.", ""),
    (r"^(?:encoder\.layer|layers)\.(\d+)\.", r"blocks.\1."),
    (r"attention\.attention\.(query|key|value)\.", r"space.body.\1."),
    (r"attention\.q_proj\.", "space.body.query."),
    (r"attention\.k_proj\.", "space.body.key."),
    (r"attention\.v_proj\.", "space.body.value."),
    (r"attention\.(?:output\.dense|o_proj)\.", "space.body.proj."),
    (r"layernorm_before\.", "space.norm."),
    (r"layernorm_after\.", "mlp.norm."),
    (r"(?:intermediate\.dense|mlp\.fc1)\.", "mlp.body.fc1."),
    (r"(?<!attention\.)(?:output\.dense|mlp\.fc2)\.", "mlp.body.fc2."),
    (r"^embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (r"^embeddings\.position_embeddings$", "position_embed.table"),
    (r"^embeddings\.cls_token$", "cls_token"),
    (r"^layernorm\.", "norm."),
    (r"^(?:cls_)?classifier\.", "head.fc."),
)


def from_timm_vit(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our names for a ViT or DeiT of timm. The class token has no counterpart here and is reported as unused."""
    return _with_position_grid(rename(state_dict, TIMM_RULES))


def from_transformers_vit(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our names for a ViT or DeiT of transformers, from a file or from a model in memory, whose names differ."""
    return _with_position_grid(join_qkv(rename(state_dict, TRANSFORMERS_RULES)))


def _with_position_grid(named: dict[str, Tensor]) -> dict[str, Tensor]:
    """Positions `[1, tokens, D]`, after none, one or two class tokens, as a grid `[H, W, D]` and `cls_position`."""
    if "position_embed.table" in named:
        table_1ND = named["position_embed.table"]
        tokens = table_1ND.shape[1]
        side = isqrt(tokens)
        while side and tokens - side * side not in (0, 1, 2):
            side -= 1
        named["position_embed.table"] = table_1ND[0, tokens - side * side :].unflatten(0, (side, side))
        if tokens > side * side:
            named["cls_position"] = table_1ND[:, :1]
    return named
