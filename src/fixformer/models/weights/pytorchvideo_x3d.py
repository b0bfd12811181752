"""Public weights of X3D."""

from collections.abc import Mapping

from torch import Tensor

from fixformer.models.weights.renaming import PYTORCHVIDEO_BOTTLENECK, Rules, rename

RULES: Rules = (
    (r"^blocks\.0\.conv\.conv_t\.", "stem_space."),
    (r"^blocks\.0\.conv\.conv_xy\.", "stem_time.conv."),
    (r"^blocks\.0\.norm\.", "stem_time.norm."),
    *((rf"^blocks\.{stage + 1}\.res_blocks\.", f"stages.{stage}.") for stage in range(4)),
    *PYTORCHVIDEO_BOTTLENECK,
    (r"^blocks\.5\.pool\.pre_(conv|norm)\.", r"expand.\1."),
    (r"^blocks\.5\.pool\.post_conv\.", "project."),
    (r"^blocks\.5\.proj\.", "head.fc."),
)


def from_pytorchvideo_x3d(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of `X3D` from pytorchvideo's."""
    renamed = rename(state_dict, RULES)
    if "project.weight" in renamed:  # a 1x1x1 convolution of a single position is a linear layer
        renamed["project.weight"] = renamed["project.weight"].flatten(1)
    return renamed
