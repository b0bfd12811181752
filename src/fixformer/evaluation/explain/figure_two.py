"""The paper's Fig. 2 on a clip: attention without fixation, with separate and with cooperative fixation, and softmax.

All four are computed from the queries, keys and values of one checkpoint, which was trained with one of them. Its gate
of query, key and value becomes a separate one, which sees only the query or only the key, by giving it the means over
the clip for what it must not see.

Shapes: B batch, T frames, H rows, W columns, h heads, E head width; G sequences of N tokens each.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fixformer.evaluation.explain.attention_maps import Recorded
from fixformer.evaluation.explain.concentration import Concentration, as_shares, measure
from fixformer.models.attention.fixation import NoFixation, SeparateFixation, SharedFixation, UnsharedFixation
from fixformer.models.attention.module import FixationFirstAttention
from fixformer.ops.kernels import relu
from fixformer.ops.linear_attention import linear_attention_matrix
from fixformer.ops.softmax_attention import softmax_attention_matrix

LINEAR, SEPARATE, COOPERATIVE, SOFTMAX = "linear", "+ separate fixation", "+ cooperative fixation", "softmax"


@dataclass(frozen=True)
class Panel:
    """The attention among the tokens of one sequence, averaged over heads: `matrix_NN`, rows are queries."""

    title: str
    matrix_NN: np.ndarray
    concentration: Concentration


@dataclass(frozen=True)
class FigureTwo:
    """The panels of one layer and sequence. `query` is the number of the query token in it, `grid` how it lies."""

    layer: str
    sequence: int
    query: int
    grid: tuple[int, ...]
    panels: list[Panel]
    notes: list[str] = field(default_factory=list)


@torch.no_grad()
def figure_two(recorded: Recorded, sequence: int, query: int) -> FigureTwo:
    """The panels that this checkpoint has parameters for."""
    notes = []
    matrices = {LINEAR: _linear(recorded, *_features(recorded))}
    if pair := separately_fixated(recorded):
        matrices[SEPARATE] = _linear(recorded, *pair)
    fixate, triple = recorded.module.fixate, (*_features(recorded), recorded.to_fixate[2])
    if isinstance(fixate, SharedFixation | UnsharedFixation):
        matrices[COOPERATIVE] = _linear(recorded, *fixate(*triple))
    else:
        missing = "any" if isinstance(fixate, NoFixation) else "cooperative"
        notes.append(f"Fig. 2 lacks what needs {missing} fixation, for which this checkpoint has no parameters.")
    q_GhNE, k_GhNE = recorded.sequences(*recorded.before[:2])
    matrices[SOFTMAX] = softmax_attention_matrix(q_GhNE, k_GhNE)
    twin = matrices[SOFTMAX][sequence]
    panels = [panel_of(title, matrix_GhNN[sequence], twin) for title, matrix_GhNN in matrices.items()]
    return FigureTwo(recorded.name, sequence, query, recorded.grid, panels, notes)


def panel_of(title: str, matrix_hNN: Tensor, twin_hNN: Tensor) -> Panel:
    shares_hNN = as_shares(matrix_hNN)
    return Panel(title, shares_hNN.mean(0).cpu().numpy(), measure(shares_hNN, twin_hNN))


def separately_fixated(recorded: Recorded) -> tuple[Tensor, Tensor] | None:
    """Query and key, each weighted by a ratio from itself alone; None without a gate."""
    fixate, (q, k), v = recorded.module.fixate, _features(recorded), recorded.to_fixate[2]
    if isinstance(fixate, SeparateFixation):
        return q * fixate.gate_q(q), k * fixate.gate_k(k)
    if isinstance(fixate, SharedFixation):
        gate_q = gate_k = fixate.gate
    elif isinstance(fixate, UnsharedFixation):
        gate_q, gate_k = fixate.gate_q, fixate.gate_k
    else:
        return None
    q_mean, k_mean, v_mean = (_mean(tensor) for tensor in (q, k, v))
    of_query, of_key = (q, k_mean, v_mean), (q_mean, k, v_mean)
    return q * gate_q(*of_query[: fixate.sources]), k * gate_k(*of_key[: fixate.sources])


def _features(recorded: Recorded) -> tuple[Tensor, Tensor]:
    """φ(q) and φ(k) as the fixation gets them. A model whose gate sees no φ gets the paper's, ReLU."""
    q, k, _ = recorded.to_fixate
    return (q, k) if recorded.module.attend.takes_features else (relu(q), relu(k))


def _mean(x_BTHWhE: Tensor) -> Tensor:
    return x_BTHWhE.mean((1, 2, 3), keepdim=True).expand_as(x_BTHWhE)


def _linear(recorded: Recorded, q: Tensor, k: Tensor) -> Tensor:
    """The matrix `[G, h, N, N]` of linear attention with these features."""
    if isinstance(recorded.module, FixationFirstAttention):
        k = recorded.module.associate(k)
    q_GhNE, k_GhNE = recorded.sequences(q, k)
    return linear_attention_matrix(q_GhNE, k_GhNE)
