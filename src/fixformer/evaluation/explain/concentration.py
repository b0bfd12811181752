"""How concentrated an attention is, and the numbers that the comparison with occlusion needs.

Shapes: G sequences of N tokens each, h heads.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fixformer.evaluation.explain.attention_maps import Recorded
from fixformer.runtime.memory import require_memory

MATRIX_BYTES = 64 << 20  # of the matrices that are formed at a time, unless a single sequence needs more
COPIES = 5  # of a matrix that exist at the same time: itself, its twin, and what is computed of them


@dataclass(frozen=True)
class Concentration:
    """Means over all queries.

    Args:
        entropy: of the weights, as a share of the largest possible: 1 is uniform.
        top_tenth: mass of the largest tenth of the weights.
        to_softmax: total variation distance, 0 to 1, to softmax attention of the same queries and keys.
    """

    entropy: float
    top_tenth: float
    to_softmax: float


def parts(recorded: Recorded) -> Iterator[slice]:
    """Slices of the sequences whose matrices fit the memory for them."""
    G, h, N, _ = recorded.attended[0].shape
    each = 4 * h * N * N
    count = max(1, MATRIX_BYTES // each)
    require_memory(COPIES * each * min(count, G), f"attention matrices of {N} tokens", "use a smaller clip")
    for begin in range(0, G, count):
        yield slice(begin, begin + count)


def as_shares(matrix_GhNN: Tensor) -> Tensor:
    """Weights that are not negative and add up to one. Some approximations give negative weights, too."""
    size_GhNN = matrix_GhNN.abs()
    return size_GhNN / size_GhNN.sum(-1, keepdim=True).clamp_min(1e-12)


def measure(shares_GhNN: Tensor, twin_GhNN: Tensor) -> Concentration:
    N = shares_GhNN.shape[-1]
    entropy = torch.special.entr(shares_GhNN).sum(-1).mean()
    largest = shares_GhNN.topk(math.ceil(N / 10), dim=-1).values.sum(-1).mean()
    distance = (shares_GhNN - twin_GhNN).abs().sum(-1).mean() / 2
    return Concentration(float(entropy) / math.log(N) if N > 1 else 1.0, float(largest), float(distance))


def mean_of(rows: list[tuple[int, Concentration]]) -> Concentration:
    """The mean of parts, weighted by their numbers of sequences."""
    weights = np.array([count for count, _ in rows], float)
    values = np.array([[row.entropy, row.top_tenth, row.to_softmax] for _, row in rows])
    return Concentration(*(weights @ values / weights.sum()).tolist())


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float | None:
    """Spearman's: of the ranks, equal values sharing theirs. None if one of the two is constant."""
    x, y = _ranks(a.ravel()), _ranks(b.ravel())
    if x.std() == 0 or y.std() == 0:
        return None
    return float(np.corrcoef(x, y)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[place]
