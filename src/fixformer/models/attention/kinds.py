"""The kinds of attention the paper compares and those that came after it, one small module each.

Any kind may be used on any axis, with association and fixation before it or without. What fixation sees differs:
features φ(q), φ(k) for linear attention, MALA and rank-augmented attention; relu(q), relu(k) for cosFormer, whose
kernel comes first as the paper asks; q and k themselves for all others, whose nonlinearity is a softmax or needs the
sign of its input (the released code does the same with softmax).

Shapes: G sequences of N tokens, h heads, E head width, R slots, C landmarks. `grid` says how the N tokens lie: (rows,
columns) of a frame, (frames,) of a position over time, or all three.
"""

import warnings
from collections.abc import Callable, Sequence
from math import prod

import torch
from torch import Tensor, nn

from fixformer.config import FilledModelConfig
from fixformer.models.attention.axes import Grid
from fixformer.models.layers.noise import clip_noise
from fixformer.ops import (
    linear_attention,
    linear_attention_matrix,
    softmax_attention,
    softmax_attention_matrix,
)
from fixformer.ops.cosformer import cosformer_attention
from fixformer.ops.inline import inline_attention, inline_attention_matrix
from fixformer.ops.lara import LandmarkWeights, lara_attention, mix_landmarks, project_landmarks
from fixformer.ops.linear_attention import ProductOrder
from fixformer.ops.linformer import linformer_attention, resize_projection
from fixformer.ops.mala import mala_attention, mala_attention_matrix
from fixformer.ops.nystrom import nystrom_attention
from fixformer.ops.orthoformer import orthoformer_attention
from fixformer.ops.performer import orthogonal_projection, performer_attention
from fixformer.ops.polar import polar_attention, polar_attention_matrices, same_sign_channels
from fixformer.ops.pooling import grid_means, segment_means
from fixformer.ops.rank import rank_attention, rank_attention_matrix


class AttentionKind(nn.Module):
    """q, k, v `[G, h, N, E]` and their grid to `[G, h, N, E]`."""

    # Whether q and k are features, which a kernel has made non-negative before the gate.
    takes_features = False

    def forward(self, q_GhNE: Tensor, k_GhNE: Tensor, v_GhNE: Tensor, grid: Grid) -> Tensor:
        raise NotImplementedError

    def matrix(self, q_GhNE: Tensor, k_GhNE: Tensor, grid: Grid) -> Tensor:
        """The weights `[G, h, N, N]` with which values are added.

        Every kind gives sums of the values, so with unit vectors for values the sums are the weights. Those with a
        quadratic definition use that.
        """
        N = k_GhNE.shape[2]
        unit_GhNN = torch.eye(N, dtype=k_GhNE.dtype, device=k_GhNE.device).expand(*k_GhNE.shape[:2], N, N)
        return self.forward(q_GhNE, k_GhNE, unit_GhNN, grid)

    def resize(self, grid: Grid) -> None:
        """Resize parameters tied to the number of tokens to another grid. Most kinds have none."""


class KernelAttention(AttentionKind):
    """Weights φ(q) · φ(k), a matrix product, so that either of the two products may come first.

    `product_order` is forced only for the released code and for the paper's way of counting FLOPs.
    """

    def __init__(self, product_order: ProductOrder = "auto") -> None:
        super().__init__()
        self.product_order = product_order


class LinearAttention(KernelAttention):
    """Eq. 3."""

    takes_features = True

    def forward(self, q_GhNE: Tensor, k_GhNE: Tensor, v_GhNE: Tensor, grid: Grid) -> Tensor:
        return linear_attention(q_GhNE, k_GhNE, v_GhNE, product_order=self.product_order)

    def matrix(self, q_GhNE: Tensor, k_GhNE: Tensor, grid: Grid) -> Tensor:
        return linear_attention_matrix(q_GhNE, k_GhNE)


class PolarAttention(KernelAttention):
    """Linear attention with `kernel="polar"`, whose learned powers are 1 + 4σ(`power`), 3 at first.

    The kernel is applied here, behind the gate, which therefore sees q and k with their signs: relu(γx)^p is γ^p times
    relu(x)^p, so one ratio a channel reweights the features of both signs.
    """

    def __init__(self, heads: int, width: int, product_order: ProductOrder = "auto") -> None:
        super().__init__(product_order)
        self.power = nn.Parameter(torch.zeros(heads, width))

    def powers(self) -> Tensor:
        return 1 + 4 * self.power.sigmoid()

    def forward(self, q_GhNE: Tensor, k_GhNE: Tensor, v_GhNE: Tensor, grid: Grid) -> Tensor:
        return polar_attention(q_GhNE, k_GhNE, v_GhNE, self.powers(), product_order=self.product_order)

    def matrix(self, q_GhNE: Tensor, k_GhNE: Tensor, grid: Grid) -> Tensor:
        """The mean over the channels of the values, some of which meet same signs and some opposite ones."""
        same_GhNN, opposite_GhNN = polar_attention_matrices(q_GhNE, k_GhNE, self.powers())
        width = q_GhNE.shape[-1]
        return opposite_GhNN.lerp(same_GhNN, same_sign_channels(width) / width)


class RankAttention(KernelAttention):
    """Linear attention whose keys are weighted by what the mean query makes of them."""

    takes_features = True

    def forward(self, q_GhNE: Tensor, k_GhNE: Tensor, v_GhNE: Tensor, grid: Grid) -> Tensor:
        return rank_attention(q_GhNE, k_GhNE, v_GhNE, product_order=self.product_order)

    def matrix(self, q_GhNE: Tensor, k_GhNE: Tensor, grid: Grid) -> Tensor:
        return rank_attention_matrix(q_GhNE, k_GhNE)


class MalaAttention(KernelAttention):
    """Linear attention in which the length of a query matters."""

    takes_features = True

    def forward(self, q_GhNE: Tensor, k_GhNE: Tensor, v_GhNE: Tensor, grid: Grid) -> Tensor:
        return mala_attention(q_GhNE, k_GhNE, v_GhNE, product_order=self.product_order)

    def matrix(self, q_GhNE: Tensor, k_GhNE: Tensor, grid: Grid) -> Tensor:
        return mala_attention_matrix(q_GhNE, k_GhNE)


class InlineAttention(KernelAttention):
    """Linear attention of the queries and keys themselves, normalised by a difference."""

    def forward(self, q_GhNE: Tensor, k_GhNE: Tensor, v_GhNE: Tensor, grid: Grid) -> Tensor:
        return inline_attention(q_GhNE, k_GhNE, v_GhNE, product_order=self.product_order)

    def matrix(self, q_GhNE: Tensor, k_GhNE: Tensor, grid: Grid) -> Tensor:
        return inline_attention_matrix(q_GhNE, k_GhNE)


class SoftmaxAttention(AttentionKind):
    """Eq. 1 with softmax."""

    def forward(self, q_GhNE: Tensor, k_GhNE: Tensor, v_GhNE: Tensor, grid: Grid) -> Tensor:
        return softmax_attention(q_GhNE, k_GhNE, v_GhNE)

    def matrix(self, q_GhNE: Tensor, k_GhNE: Tensor, grid: Grid) -> Tensor:
        return softmax_attention_matrix(q_GhNE, k_GhNE)


class CosformerAttention(KernelAttention):
    """Weights that fade with the distance of two tokens in their sequence; a frame is read row by row."""

    def forward(self, q_GhNE: Tensor, k_GhNE: Tensor, v_GhNE: Tensor, grid: Grid) -> Tensor:
        return cosformer_attention(q_GhNE, k_GhNE, v_GhNE, product_order=self.product_order)


class PerformerAttention(KernelAttention):
    """Random features, the same for all heads, saved with the weights.

    In training they are redrawn every `redraw_every` passes, in evaluation never. `seed` and the number of passes
    determine what is drawn: the processes of a distributed run draw the same, and so does a resumed run.
    """

    projection_RE: Tensor
    passes: Tensor
    seed: Tensor

    def __init__(self, width: int, features: int, redraw_every: int, product_order: ProductOrder = "auto") -> None:
        super().__init__(product_order)
        self.redraw_every = redraw_every
        self.register_buffer("projection_RE", orthogonal_projection(features, width))
        self.register_buffer("passes", torch.zeros((), dtype=torch.long))
        self.register_buffer("seed", torch.randint(2**62, ()))

    @torch.compiler.disable
    def count_pass(self) -> None:
        """Redraw if due. Called before the blocks, not within: a block recomputed in backward must find the same."""
        self.passes += 1
        if int(self.passes) % self.redraw_every == 0:
            generator = torch.Generator().manual_seed(int(self.seed) + int(self.passes))
            features, width = self.projection_RE.shape
            self.projection_RE.copy_(orthogonal_projection(features, width, generator))

    def forward(self, q_GhNE: Tensor, k_GhNE: Tensor, v_GhNE: Tensor, grid: Grid) -> Tensor:
        return performer_attention(q_GhNE, k_GhNE, v_GhNE, self.projection_RE, product_order=self.product_order)


class LinformerAttention(AttentionKind):
    """Projections onto slots, one weight per token and slot: the only kind here that is tied to its grid.

    On another grid the projections are interpolated in every forward pass; `resize` does it once and for all.
    """

    def __init__(self, grid: Grid, slots: int, shared: bool) -> None:
        super().__init__()
        bound = slots**-0.5
        # In the shape of the grid, so that a weight file says which grid it is for.
        self.keys = nn.Parameter(torch.empty(*grid, slots).uniform_(-bound, bound))
        self.values = None if shared else nn.Parameter(torch.empty(*grid, slots).uniform_(-bound, bound))

    def forward(self, q_GhNE: Tensor, k_GhNE: Tensor, v_GhNE: Tensor, grid: Grid) -> Tensor:
        built_for = tuple(self.keys.shape[:-1])
        if grid != built_for:
            warn_interpolated(built_for)
        keys_NR = resize_slots(self.keys, grid).flatten(0, -2)
        values_NR = keys_NR if self.values is None else resize_slots(self.values, grid).flatten(0, -2)
        return linformer_attention(q_GhNE, k_GhNE, v_GhNE, keys_NR, values_NR)

    @torch.no_grad()
    def resize(self, grid: Grid) -> None:
        self.keys = nn.Parameter(resize_slots(self.keys, grid).clone(memory_format=torch.contiguous_format))
        if self.values is not None:
            values = resize_slots(self.values, grid)
            self.values = nn.Parameter(values.clone(memory_format=torch.contiguous_format))


def resize_slots(table: Tensor, grid: Sequence[int]) -> Tensor:
    """Linformer's projection `[*grid, R]` for another grid, interpolated along one side after the other."""
    for axis, size in enumerate(grid):
        if table.shape[axis] != size:
            lines = table.movedim(axis, 0)
            resized = resize_projection(lines.flatten(1), (len(lines), 1), (size, 1))
            table = resized.unflatten(1, lines.shape[1:]).movedim(0, axis)
    return table


@torch.compiler.assume_constant_result
def warn_interpolated(built_for: Grid) -> None:
    """torch.compile calls this once, while tracing, with constants only; hence not with the grid of the clip."""
    tokens = "x".join(map(str, built_for))
    warnings.warn(
        f"Linformer's projections are for {tokens} tokens and are interpolated for every clip of another size; "
        "set_input_size does it once.",
        stacklevel=1,
    )


class OrthoformerAttention(AttentionKind):
    """Landmarks picked among the queries. The first is a random token in training, the first token in evaluation."""

    def __init__(self, landmarks: int) -> None:
        super().__init__()
        self.landmarks = landmarks

    def forward(self, q_GhNE: Tensor, k_GhNE: Tensor, v_GhNE: Tensor, grid: Grid) -> Tensor:
        start_Gh = first_landmarks(q_GhNE, self.training)
        return orthoformer_attention(q_GhNE, k_GhNE, v_GhNE, start_Gh, self.landmarks)


def first_landmarks(q_GhNE: Tensor, at_random: bool) -> Tensor:
    """The token a selection of landmarks starts from, for every sequence and head."""
    G, h, N, _ = q_GhNE.shape
    if at_random:
        return clip_noise(lambda rows: torch.randint(N, (rows, h), device=q_GhNE.device), G)
    return torch.zeros(G, h, dtype=torch.long, device=q_GhNE.device)


class NystromAttention(AttentionKind):
    """Landmarks are means of neighbouring tokens; sequences no longer than these have softmax attention."""

    def __init__(self, landmarks: int) -> None:
        super().__init__()
        self.landmarks = landmarks

    def forward(self, q_GhNE: Tensor, k_GhNE: Tensor, v_GhNE: Tensor, grid: Grid) -> Tensor:
        return nystrom_attention(q_GhNE, k_GhNE, v_GhNE, self.landmarks)


class PooledLandmarks(nn.Module):
    """LARA's landmarks: means over the grid, a Linear and a LayerNorm that all heads share.

    As released: on a plane the means come first, on a line, where LARA was made for text, they come last.
    """

    def __init__(self, width: int, landmarks: int) -> None:
        super().__init__()
        self.landmarks = landmarks
        self.fc = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x_GhNE: Tensor, grid: Grid) -> Tensor:
        weights = LandmarkWeights(self.fc.weight, self.fc.bias, self.norm.weight, self.norm.bias)
        if len(grid) == 1:
            return segment_means(project_landmarks(x_GhNE, weights), self.landmarks)
        return project_landmarks(box_means(x_GhNE, grid, self.landmarks), weights)


def box_means(x_GhNE: Tensor, grid: Grid, most: int) -> Tensor:
    """At most `most` means over boxes of the grid, as many along each side."""
    side = int(most ** (1 / len(grid)) + 1e-9)  # the root of 64 may come out as 3.9999999
    size = [min(side, length) for length in grid]
    return x_GhNE if prod(size) == prod(grid) else grid_means(x_GhNE, grid, size)


class LaraAttention(AttentionKind):
    """Importance sampling around landmarks of queries and keys; the samples are random in training only.

    Landmarks of keys attend to each other first, except on a line, where the released code has no such step.
    """

    def __init__(self, width: int, landmarks: int) -> None:
        super().__init__()
        self.query_landmarks = PooledLandmarks(width, landmarks)
        self.key_landmarks = PooledLandmarks(width, landmarks)

    def proposals(self, q_GhNE: Tensor, k_GhNE: Tensor, grid: Grid) -> tuple[Tensor, Tensor, Tensor | None]:
        """Landmarks of queries and keys `[G, h, C, E]`, and the noise of their samples."""
        q_GhCE = self.query_landmarks(q_GhNE, grid)
        k_GhCE = self.key_landmarks(k_GhNE, grid)
        k_GhCE = k_GhCE if len(grid) == 1 else mix_landmarks(k_GhCE)
        if not self.training:
            return q_GhCE, k_GhCE, None
        like = {"device": q_GhCE.device, "dtype": q_GhCE.dtype}
        noise_GhCE = clip_noise(lambda rows: torch.randn(rows, *q_GhCE.shape[1:], **like), len(q_GhCE))
        return q_GhCE, k_GhCE, noise_GhCE

    def forward(self, q_GhNE: Tensor, k_GhNE: Tensor, v_GhNE: Tensor, grid: Grid) -> Tensor:
        return lara_attention(q_GhNE, k_GhNE, v_GhNE, *self.proposals(q_GhNE, k_GhNE, grid))


def _product_order(config: FilledModelConfig) -> ProductOrder:
    return "keys_values" if config.reading == "released" else "auto"


def _linear(config: FilledModelConfig, grid: Grid) -> KernelAttention:
    if config.kernel == "polar":
        return PolarAttention(config.num_heads, config.embed_dim // config.num_heads, _product_order(config))
    return LinearAttention(_product_order(config))


def _linformer(config: FilledModelConfig, grid: Grid) -> LinformerAttention:
    """Keys and values share a projection along time: with one each, the paper's 53.5 M parameters would be 53.6."""
    return LinformerAttention(grid, config.slots, shared=len(grid) == 1)


def _performer(config: FilledModelConfig, grid: Grid) -> PerformerAttention:
    return PerformerAttention(
        config.embed_dim // config.num_heads, config.random_features, config.redraw_every, _product_order(config)
    )


# From a filled config and the grid of tokens that attend to each other.
ATTENTION_KINDS: dict[str, Callable[[FilledModelConfig, Grid], AttentionKind]] = {
    "linear": _linear,
    "softmax": lambda config, grid: SoftmaxAttention(),
    "performer": _performer,
    "cosformer": lambda config, grid: CosformerAttention(_product_order(config)),
    "linformer": _linformer,
    "orthoformer": lambda config, grid: OrthoformerAttention(config.landmarks),
    "lara": lambda config, grid: LaraAttention(config.embed_dim // config.num_heads, config.landmarks),
    "nystrom": lambda config, grid: NystromAttention(config.landmarks),
    "mala": lambda config, grid: MalaAttention(_product_order(config)),
    "inline": lambda config, grid: InlineAttention(_product_order(config)),
    "rank": lambda config, grid: RankAttention(_product_order(config)),
}
