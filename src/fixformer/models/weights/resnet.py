"""Public weights of TSM and of MotionSqueeze; also those of torchvision's ResNets, whose names TSM inherits."""

from collections.abc import Mapping

from torch import Tensor

from fixformer.models.weights.renaming import Rules, rename

PARTS = ("a", "b", "c")

TSM_RULES: Rules = (
    (r"^(module\.)?(base_model\.)?", ""),
    (r"\.conv1\.net\.", ".conv1."),  # the shift wraps the convolution it precedes
    (r"^conv1\.", "stem.conv."),
    (r"^bn1\.", "stem.norm."),
    (r"^(new_)?fc\.", "head.fc."),
    *((rf"^layer{stage + 1}\.", f"stages.{stage}.") for stage in range(4)),
    *((rf"^(stages\.\d+\.\d+)\.conv{i + 1}\.", rf"\1.{part}.conv.") for i, part in enumerate(PARTS)),
    *((rf"^(stages\.\d+\.\d+)\.bn{i + 1}\.", rf"\1.{part}.norm.") for i, part in enumerate(PARTS)),
    (r"\.downsample\.0\.", ".shortcut.conv."),
    (r"\.downsample\.1\.", ".shortcut.norm."),
)

MOTION_RULES: Rules = (
    (r"^chnl_reduction\.0\.", "motion.reduce.conv."),
    (r"^chnl_reduction\.1\.", "motion.reduce.norm."),
    *(
        (rf"^flow_refinement\.conv{unit + 1}\.{index}\.", f"motion.refine.{unit}.{part}.{kind}.")
        for unit in range(4)
        for index, part, kind in ((0, 0, "conv"), (1, 0, "norm"), (3, 1, "conv"), (4, 1, "norm"))
    ),
)


def from_tsm(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of `TSM` from mit-han-lab/temporal-shift-module's, or from a torchvision ResNet's."""
    return rename(state_dict, TSM_RULES)


def from_motionsqueeze(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of `MSNet` from arunos728/MotionSqueeze's backbone."""
    return rename(state_dict, (*TSM_RULES, *MOTION_RULES))
