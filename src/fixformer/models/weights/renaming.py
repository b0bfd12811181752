"""State dicts from one set of names to another."""

import re
from collections.abc import Mapping, Sequence

from torch import Tensor

Rules = Sequence[tuple[str, str]]

# pytorchvideo's residual bottleneck, in ours.
PYTORCHVIDEO_BOTTLENECK: Rules = (
    (r"\.branch1_(conv|norm)\.", r".shortcut.\1."),
    (r"\.branch2\.norm_b\.0\.", r".b.norm."),
    (r"\.branch2\.norm_b\.1\.block\.", r".gate.gate."),
    (r"\.branch2\.(conv|norm)_([abc])\.", r".\2.\1."),
)


def rename(state_dict: Mapping[str, Tensor], rules: Rules) -> dict[str, Tensor]:
    """Apply regular expressions to every name, in order. A name that no rule knows stays, to be reported as unused."""
    renamed = {}
    for name, tensor in state_dict.items():
        for pattern, replacement in rules:
            name = re.sub(pattern, replacement, name)  # noqa: PLW2901
        renamed[name] = tensor
    return renamed
