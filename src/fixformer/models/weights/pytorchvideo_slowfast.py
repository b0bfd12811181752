"""Public weights of SlowFast."""

from collections.abc import Mapping

from torch import Tensor

from fixformer.models.weights.renaming import PYTORCHVIDEO_BOTTLENECK, Rules, rename

RULES: Rules = (
    (r"^blocks\.(\d+)\.multipathway_fusion\.conv_fast_to_slow\.", r"laterals.\1.conv."),
    (r"^blocks\.(\d+)\.multipathway_fusion\.norm\.", r"laterals.\1.norm."),
    (r"^blocks\.(\d+)\.multipathway_blocks\.0\.", r"slow.\1."),
    (r"^blocks\.(\d+)\.multipathway_blocks\.1\.", r"fast.\1."),
    (r"^(slow|fast)\.0\.", r"\1.stem."),
    *((rf"^(slow|fast)\.{stage + 1}\.res_blocks\.", rf"\1.stages.{stage}.") for stage in range(4)),
    *PYTORCHVIDEO_BOTTLENECK,
    (r"^blocks\.6\.proj\.", "head.fc."),
)


def from_pytorchvideo_slowfast(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of `SlowFast` from pytorchvideo's."""
    return rename(state_dict, RULES)
