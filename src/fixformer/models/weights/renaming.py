"""State dicts from one set of names to another."""

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fixformer.errors import WeightsError

Rules = Sequence[tuple[str, str]]


def rename(state_dict: Mapping[str, Tensor], rules: Rules) -> dict[str, Tensor]:
    """Apply regular expressions to every name, in order. A name that no rule knows stays, to be reported as unused."""
    renamed = {}
    for name, tensor in state_dict.items():
        for pattern, replacement in rules:
            name = re.sub(pattern, replacement, name)  # noqa: PLW2901
        renamed[name] = tensor
    return renamed


def join_qkv(named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`X.body.query`, `.key` and `.value`, three layers, as one, `X.body.qkv`."""
    joined = {}
    for name, tensor in named.items():
        match = re.fullmatch(r"(.*\.body)\.(query|key|value)\.(weight|bias)", name)
        if match is None:
            joined[name] = tensor
        elif match[2] == "query":
            parts = [named.get(f"{match[1]}.{part}.{match[3]}") for part in ("query", "key", "value")]
            if any(part is None for part in parts):
                raise WeightsError(f"the weights have {name!r} without its key or value; is the file complete?")
            joined[f"{match[1]}.qkv.{match[3]}"] = torch.cat([part for part in parts if part is not None])
    return joined
