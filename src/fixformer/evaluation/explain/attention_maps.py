"""Attention matrices of a forward pass, formed by the quadratic definition from recorded queries, keys and values.

Hooks record what every `Attention` works with; they also keep the model from the chunked fast path, which would not
call them (`models/fused.py`).

Shapes: B batch, T frames, H rows, W columns, D width, h heads, E head width; G sequences of N tokens each.
"""

import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fixformer.models.attention.axes import Grid, SpaceAxis, TimeAxis
from fixformer.models.attention.fixation import NoFixation, SeparateFixation, SharedFixation, UnsharedFixation
from fixformer.models.attention.module import Attention
from fixformer.models.base import VideoModel
from fixformer.ops.softmax_attention import softmax_attention_matrix

Triple = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Recorded:
    """One attention of a forward pass.

    Args:
        name: block and axis, such as "3.space".
        size_BTHW: of its tokens.
        grid: how the tokens of a sequence lie.
        before: query, and associated key and value, before kernel and fixation `[B, T, H, W, h, E]`.
        to_fixate: what the fixation got, likewise.
        attended: query, key and value as they attend, `[G, h, N, E]`.
    """

    name: str
    module: Attention
    size_BTHW: tuple[int, ...]
    grid: Grid
    before: Triple
    to_fixate: Triple
    attended: Triple

    def sequences(self, *tensors: Tensor) -> list[Tensor]:
        """`[B, T, H, W, h, E]` to `[G, h, N, E]`."""
        return [self.module.axis.sequences(tensor) for tensor in tensors]

    def matrix(self, rows: slice = slice(None)) -> Tensor:
        """The weights `[G, h, N, N]` with which values are added; of some of the sequences."""
        q_GhNE, k_GhNE, _ = (tensor[rows] for tensor in self.attended)
        return self.module.attend.matrix(q_GhNE, k_GhNE, self.grid)

    def softmax_twin(self, rows: slice = slice(None)) -> Tensor:
        """The weights that softmax attention gives the same queries and keys."""
        q_GhNE, k_GhNE = self.sequences(*self.before[:2])
        return softmax_attention_matrix(q_GhNE[rows], k_GhNE[rows])

    def ratios(self) -> list[Tensor]:
        """The fixation ratios γ `[B, T, H, W, h, E]`: one shared by query and key, or one of each; none without."""
        return fixation_ratios(self.module.fixate, self.to_fixate)


def fixation_ratios(fixate: nn.Module, inputs: Triple) -> list[Tensor]:
    """γ of every kind of fixation."""
    if isinstance(fixate, SharedFixation):
        return [fixate.gate(*inputs[: fixate.sources])]
    if isinstance(fixate, UnsharedFixation):
        return [gate(*inputs[: fixate.sources]) for gate in (fixate.gate_q, fixate.gate_k)]
    if isinstance(fixate, SeparateFixation):
        return [fixate.gate_q(inputs[0]), fixate.gate_k(inputs[1])]
    assert isinstance(fixate, NoFixation), type(fixate)
    return []


def named_attentions(model: VideoModel) -> dict[str, Attention]:
    """The attentions of a model by block and axis, in order."""
    found = {}
    for path, module in model.named_modules():
        if isinstance(module, Attention):
            number = re.search(r"\d+", path)
            found[f"{number[0] if number else path}.{axis_name(module)}"] = module
    return found


def axis_name(module: Attention) -> str:
    return {SpaceAxis: "space", TimeAxis: "time"}.get(type(module.axis), "joint")


@torch.no_grad()
def record_attentions(model: VideoModel, video_1CTHW: Tensor, use: Callable[[Recorded], None]) -> Tensor:
    """The logits of a clip; `use` is called with every attention, in order, and what it does not keep is freed."""
    with ExitStack() as hooks:
        for name, module in named_attentions(model).items():
            recorder = _Recorder(name, module, use)
            handles = (
                module.fixate.register_forward_pre_hook(recorder.see_fixation),
                module.attend.register_forward_pre_hook(recorder.see_attention),
                module.register_forward_hook(recorder.finish),
            )
            for handle in handles:
                hooks.callback(handle.remove)
        logits_1K = model(video_1CTHW)
        assert isinstance(logits_1K, Tensor)
        return logits_1K


class _Recorder:
    """Collects what the hooks of one attention see."""

    def __init__(self, name: str, module: Attention, use: Callable[[Recorded], None]) -> None:
        self._name, self._module, self._use = name, module, use

    def see_fixation(self, module: nn.Module, inputs: Triple) -> None:
        self._to_fixate = inputs

    def see_attention(self, module: nn.Module, inputs: tuple[Tensor, Tensor, Tensor, Grid]) -> None:
        *attended, self._grid = inputs
        self._attended = tuple(attended)

    def finish(self, module: nn.Module, inputs: tuple[Tensor], output: Any) -> None:
        q, k, v = self._module.project(inputs[0])
        before = (q, self._module.associate(k), self._module.associate(v))
        size = tuple(q.shape[:4])
        self._use(
            Recorded(self._name, self._module, size, self._grid, before, self._to_fixate, self._attended)  # type: ignore[arg-type]
        )
        del self._to_fixate, self._attended
