"""Feature fixation: a sigmoid ratio reweights the channels of query and key (Eq. 4 and 5).

Shapes: the last axis is E, the width of one head; whatever precedes it (batch, tokens, heads) is shared by one gate.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

Merge = Callable[[Sequence[Tensor]], Tensor]


def concat(sources: Sequence[Tensor]) -> Tensor:
    return torch.cat(list(sources), dim=-1)


def add(sources: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(sources)).sum(0)


def multiply(sources: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(sources)).prod(0)


MERGES: dict[str, Merge] = {"concat": concat, "add": add, "multiply": multiply}


class Gate(nn.Module):
    """The fixation ratio γ = σ(W [sources] + b) in (0, 1), one per channel."""

    def __init__(self, width: int, sources: int, merge: Merge = concat) -> None:
        super().__init__()
        self.merge = merge
        self.fc = nn.Linear(width * sources if merge is concat else width, width)

    def forward(self, *sources: Tensor) -> Tensor:
        return self.fc(self.merge(sources)).sigmoid()

    def terms(self, weight: Tensor, sources: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """What is added up before σ: rows `[tokens, E]`, each with its part of the weight."""
        rows = [source.reshape(-1, source.shape[-1]) for source in sources]
        if self.merge is concat:
            return list(zip(rows, weight.chunk(len(rows), dim=1), strict=True))
        if self.merge is add:
            return [(row, weight) for row in rows]
        return [(self.merge(rows), weight)]

    def ratio(self, weight: Tensor, bias: Tensor, sources: Sequence[Tensor]) -> Tensor:
        """`forward` without gradient."""
        (row, part), *rest = self.terms(weight, sources)
        z = torch.addmm(bias, row, part.t())
        for row, part in rest:
            z.addmm_(row, part.t())
        return z.sigmoid_().view(sources[0].shape)

    def add_gradients(
        self,
        g_z: Tensor,
        weight: Tensor,
        g_weight: Tensor | None,
        sources: Sequence[Tensor],
        g_sources: Sequence[Tensor],
    ) -> None:
        """Add to the gradients of weight and sources, given that of what stands before σ, `[tokens, E]`."""
        terms = self.terms(weight, sources)
        if g_weight is not None:
            for (row, _), (_, g_part) in zip(terms, self.terms(g_weight, sources), strict=True):
                g_part.addmm_(g_z.t(), row)
        g_rows = [g_source.view(g_z.shape) for g_source in g_sources]
        if self.merge is not multiply:
            for g_row, (_, part) in zip(g_rows, terms, strict=True):
                g_row.addmm_(g_z, part)
            return
        g_product, rows = g_z @ weight, [source.view(g_z.shape) for source in sources]
        for i, g_row in enumerate(g_rows):
            g_row.add_(multiply([g_product, *rows[:i], *rows[i + 1 :]]))


# The gate of the query and that of the key, or one for both, each with which of q, k and v it sees.
Gates = list[tuple[Gate, tuple[int, ...]]]


class Fixation(nn.Module):
    """q, k, v to q and k reweighted."""

    def gates(self) -> Gates:
        raise NotImplementedError

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError


class NoFixation(Fixation):
    """Query and key as they are."""

    def gates(self) -> Gates:
        return []

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return q, k


class SeparateFixation(Fixation):
    """Eq. 4: the query's ratio comes from the query, the key's from the key."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate_q = Gate(width, 1)
        self.gate_k = Gate(width, 1)

    def gates(self) -> Gates:
        return [(self.gate_q, (0,)), (self.gate_k, (1,))]

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return q * self.gate_q(q), k * self.gate_k(k)


class SharedFixation(Fixation):
    """Eq. 5: one ratio, from query, key and value together, for both query and key."""

    def __init__(self, width: int, sources: int, merge: Merge = concat) -> None:
        super().__init__()
        self.sources = sources
        self.gate = Gate(width, sources, merge)

    def gates(self) -> Gates:
        return [(self.gate, tuple(range(self.sources)))]

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        ratio = self.gate(*(q, k, v)[: self.sources])
        return q * ratio, k * ratio


class TwiceEvaluatedFixation(SharedFixation):
    """The shared ratio as the released code computes it: twice. Same result, 21.8 GFLOPs instead of 10.9 at 16x224."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        sources = (q, k, v)[: self.sources]
        return q * self.gate(*sources), k * self.gate(*sources)


class UnsharedFixation(Fixation):
    """Eq. 5 with a ratio of its own for query and for key, both from the same sources."""

    def __init__(self, width: int, sources: int, merge: Merge = concat) -> None:
        super().__init__()
        self.sources = sources
        self.gate_q = Gate(width, sources, merge)
        self.gate_k = Gate(width, sources, merge)

    def gates(self) -> Gates:
        return [(gate, tuple(range(self.sources))) for gate in (self.gate_q, self.gate_k)]

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        sources = (q, k, v)[: self.sources]
        return q * self.gate_q(*sources), k * self.gate_k(*sources)
