"""Weights of the paper's released code."""

from collections.abc import Mapping

from torch import Tensor

from fixformer.models.weights.renaming import Rules, rename

RELEASED_RULES: Rules = (
    (r"base_model\.blocks\.(\d+)\.temporal_attn\.", r"blocks.\1.time.body."),
    (r"base_model\.blocks\.(\d+)\.temporal_norm1\.", r"blocks.\1.time.norm."),
    (r"base_model\.blocks\.(\d+)\.attn\.", r"blocks.\1.space.body."),
    (r"base_model\.blocks\.(\d+)\.norm1\.", r"blocks.\1.space.norm."),
    (r"base_model\.blocks\.(\d+)\.norm2\.", r"blocks.\1.mlp.norm."),
    (r"base_model\.blocks\.(\d+)\.mlp\.dwconv\.", r"blocks.\1.mlp.body."),
    (r"base_model\.blocks\.(\d+)\.mlp\.", r"blocks.\1.mlp.body."),
    (r"body\.pgate\.", r"body.steps.fixate.gate.fc."),
    (r"body\.([qk])_gate\.", r"body.steps.fixate.gate_\1.fc."),
    (r"base_model\.temp_embed$", "time_embed.slots"),
    (r"base_model\.(patch_embed|norm)\.", r"\1."),
    (r"consensus\.mlp_head\.0\.", "head.norm."),
    (r"consensus\.mlp_head\.1\.", "head.fc1."),
    (r"consensus\.mlp_head\.4\.", "head.fc."),
)


def from_released(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our names for a state dict of the released code. Its `new_fc`, never used in its forward pass, is left out."""
    used = {name: value for name, value in state_dict.items() if "new_fc." not in name}
    ours = rename(used, RELEASED_RULES)
    if "time_embed.slots" in ours:
        ours["time_embed.slots"] = ours["time_embed.slots"].flatten(0, 2)
    return ours
