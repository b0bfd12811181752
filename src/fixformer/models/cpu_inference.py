"""Inference on a CPU, a few frames at a time.

A block's hidden tensors are several times larger than the processor's cache, and above 32 MB each of them is fresh
memory that the system must clear page by page. Here the same modules run on pieces that stay in the cache, with the
results written into place. The plain `forward` is the definition; a test holds this against it.

Shapes: B batch, T frames, H rows, W columns, D width, h heads, E head width; G sequences of N tokens
each; S the axis that is cut into pieces: F frames or R rows.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from fixformer.models.attention.association import Associate
from fixformer.models.attention.axes import Grid, JointAxis, SpaceAxis, TimeAxis
from fixformer.models.attention.fixation import SharedFixation, concat
from fixformer.models.attention.kinds import LinearAttend
from fixformer.models.attention.module import ApplyKernel, Attention
from fixformer.models.layers.residual import Branch, Mlp
from fixformer.ops.kernels import IN_PLACE
from fixformer.ops.linear_attention import EPS, cheaper_association
from fixformer.ops.shift import Group, cuts

PIECE_BYTES = 15 << 19
# glibc hands a freed buffer back to the system until a larger one has been freed, up to 32 MB; from then on it keeps
# and reuses buffers of that size. Without this every temporary tensor is cleared page by page, a tenth of the time.
LARGEST_KEPT_BYTES = 31 << 20


def is_lean(blocks: nn.Module, x_BTHWD: Tensor) -> bool:
    """Whether the pieces may be used: nothing to differentiate, trace or observe, float32 on a CPU."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or blocks.training:
        return False
    plain = x_BTHWD.device.type == "cpu" and x_BTHWD.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    return plain and not any(module._forward_hooks or module._forward_pre_hooks for module in blocks.modules())


def run_blocks_(blocks: nn.Module, x_BTHWD: Tensor) -> Tensor:
    """All blocks, in place on `x_BTHWD`."""
    x_BTHWD = x_BTHWD.contiguous()
    x_BTHWD.new_empty(LARGEST_KEPT_BYTES // 4)
    workspace = x_BTHWD.new_empty(3 * x_BTHWD.numel())
    for branch in (branch for block in blocks.children() for branch in block.children()):
        assert isinstance(branch, Branch)
        if isinstance(branch.body, Mlp):
            _mlp_(branch, branch.body, x_BTHWD)
        elif isinstance(branch.body, Attention) and _works_in_pieces(branch.body):
            _attention_(branch, branch.body, x_BTHWD, workspace)
        else:
            x_BTHWD = branch(x_BTHWD)
    return x_BTHWD


def _works_in_pieces(attention: Attention) -> bool:
    """Kernel and fixation see one token at a time; association does not, so it must come first and see the clip."""
    first, *rest = [*attention.steps.values(), None]
    whole_clip = not (isinstance(first, Associate) and first.segment)
    return whole_clip and not any(isinstance(step, Associate) for step in rest)


def _mlp_(branch: Branch, mlp: Mlp, x_BTHWD: Tensor) -> None:
    frames = x_BTHWD.flatten(0, 1)
    for piece in _pieces(len(frames), frames[0].numel() // mlp.fc1.in_features * mlp.fc1.out_features):
        _add_linear_(frames[piece].flatten(0, 2), mlp.fc2, mlp.hidden(branch.norm(frames[piece])[None]).flatten(0, 3))


def _attention_(branch: Branch, attention: Attention, x_BTHWD: Tensor, workspace: Tensor) -> None:
    groups = next((step.groups for step in attention.steps.values() if isinstance(step, Associate)), ())
    attend_along = ALONG[type(attention.axis)]
    for x_THWD in x_BTHWD:
        attend_along(branch, attention, groups, x_THWD, workspace)


class _Projection:
    """q, k, v of a clip, computed along its first axis shortly before they are read, while they are in the cache."""

    def __init__(self, branch: Branch, attention: Attention, x_SNWD: Tensor, workspace: Tensor) -> None:
        self.norm, self.linear, self.x_SNWD = branch.norm, attention.qkv, x_SNWD
        flat = workspace[: 3 * x_SNWD.numel()].view(*x_SNWD.shape[:3], -1)
        self.pieces = list(_pieces(len(flat), flat[0].numel()))
        self._waiting = self.pieces[:]
        self._flat = flat
        self.qkv_SNW3hE = flat.view(*x_SNWD.shape[:3], 3, attention.heads, -1)

    def up_to(self, stop: int) -> None:
        while self._waiting and self._waiting[0].start < stop:
            piece = self._waiting.pop(0)
            _linear_into(self.linear, self.norm(self.x_SNWD[piece]).flatten(0, 2), self._flat[piece].flatten(0, 2))

    def packed(self, *order: int) -> Tensor:
        """A buffer for one piece, its axes those of the projection in another order."""
        sizes = (self.pieces[0].stop, *self.qkv_SNW3hE.shape[1:])
        return self.x_SNWD.new_empty([sizes[axis] for axis in order])


def _linear_into(linear: nn.Linear, x: Tensor, out: Tensor) -> None:
    if linear.bias is None:
        torch.mm(x, linear.weight.mT, out=out)
    else:
        torch.addmm(linear.bias, x, linear.weight.mT, out=out)


def _add_linear_(x: Tensor, linear: nn.Linear, y: Tensor) -> None:
    """x += linear(y) without a tensor in between."""
    assert linear.bias is not None
    x.add_(linear.bias).addmm_(y, linear.weight.mT)


def _along_space(
    branch: Branch, attention: Attention, groups: Sequence[Group], x_THWD: Tensor, workspace: Tensor
) -> None:
    projection = _Projection(branch, attention, x_THWD, workspace)
    reach = max((abs(group.dt) for group in groups), default=0)
    packed_FhHW3E = projection.packed(0, 4, 1, 2, 3, 5)
    for frames in projection.pieces:
        projection.up_to(frames.stop + reach)
        packed = packed_FhHW3E[: frames.stop - frames.start]
        _gather(packed.permute(0, 2, 3, 4, 1, 5), projection.qkv_SNW3hE, (frames.start, 0), groups)
        y_GNhE = _attend(attention, packed.flatten(2, 3), x_THWD.shape[:3])
        _add_linear_(x_THWD[frames].flatten(0, 2), attention.proj, y_GNhE.flatten(0, 1).flatten(1))


def _along_time(
    branch: Branch, attention: Attention, groups: Sequence[Group], x_THWD: Tensor, workspace: Tensor
) -> None:
    x_HTWD = x_THWD.transpose(0, 1)
    projection = _Projection(branch, attention, x_HTWD, workspace)
    reach = max((abs(group.dy) for group in groups), default=0)
    packed_RWhT3E = projection.packed(0, 2, 4, 1, 3, 5)
    for rows in projection.pieces:
        projection.up_to(rows.stop + reach)
        packed = packed_RWhT3E[: rows.stop - rows.start]
        _gather(packed.permute(3, 0, 1, 4, 2, 5), projection.qkv_SNW3hE.transpose(0, 1), (0, rows.start), groups)
        y_GNhE = _attend(attention, packed.flatten(0, 1), x_THWD.shape[:3])
        y_RWTD = attention.proj(y_GNhE.flatten(2)).unflatten(0, packed.shape[:2])
        x_HTWD[rows] += y_RWTD.transpose(1, 2)


def _along_all(
    branch: Branch, attention: Attention, groups: Sequence[Group], x_THWD: Tensor, workspace: Tensor
) -> None:
    projection = _Projection(branch, attention, x_THWD, workspace)
    projection.up_to(len(x_THWD))
    T, H, W, _, h, E = projection.qkv_SNW3hE.shape
    packed_hTHW3E = x_THWD.new_empty(h, T, H, W, 3, E)
    _gather(packed_hTHW3E.permute(1, 2, 3, 4, 0, 5), projection.qkv_SNW3hE, (0, 0), groups)
    y_GNhE = _attend(attention, packed_hTHW3E.flatten(1, 3)[None], x_THWD.shape[:3])
    _add_linear_(x_THWD.flatten(0, 2), attention.proj, y_GNhE[0].flatten(1))


ALONG: dict[type, Callable[[Branch, Attention, Sequence[Group], Tensor, Tensor], None]] = {
    SpaceAxis: _along_space,
    TimeAxis: _along_time,
    JointAxis: _along_all,
}


def _attend(attention: Attention, packed_GhN3E: Tensor, size_THW: Grid) -> Tensor:
    """Kernel, fixation and attention of a piece, as `[G, N, h, E]`; `packed`, q, k, v side by side, is written over."""
    steps = [step for step in attention.steps.values() if not isinstance(step, Associate)]
    while steps and (in_place := _in_place(steps[0])):
        in_place(packed_GhN3E)
        del steps[0]
    q, k, v = packed_GhN3E.unbind(-2)
    for step in steps:
        q, k, v = step(q, k, v)
    if type(attention.attend) is LinearAttend and _keys_values_first(attention.attend, *q.shape[-2:]):
        return _linear_attention_(q, k, v)
    return attention.attend(q, k, v, attention.axis.grid(size_THW)).transpose(1, 2).contiguous()


def _keys_values_first(attend: LinearAttend, tokens: int, width: int) -> bool:
    is_auto = attend.association == "auto"
    return "keys_values" == (cheaper_association(tokens, tokens, width) if is_auto else attend.association)


def _linear_attention_(q_GhNE: Tensor, k_GhNE: Tensor, v_GhNE: Tensor) -> Tensor:
    """`linear_attention`, writing over q, with the heads of a token side by side in the result."""
    y_GhNE = q_GhNE @ (k_GhNE.mT @ v_GhNE)
    norm_GhN1 = q_GhNE.mul_(k_GhNE.sum(-2, keepdim=True)).sum(-1, keepdim=True).add_(EPS)
    out_GNhE = y_GhNE.new_empty([y_GhNE.shape[axis] for axis in (0, 2, 1, 3)])
    return torch.div(y_GhNE.transpose(1, 2), norm_GhN1.transpose(1, 2), out=out_GNhE)


def _in_place(step: nn.Module) -> Callable[[Tensor], object] | None:
    """How to do a step on packed q, k, v without a copy, if there is a way."""
    if isinstance(step, ApplyKernel) and step.kernel in IN_PLACE:
        return lambda packed: IN_PLACE[step.kernel](packed[..., :2, :])
    if type(step) is SharedFixation and step.gate.merge is concat and step.sources == 3:
        return lambda packed: packed[..., :2, :].mul_(step.gate.fc(packed.flatten(-2)).sigmoid_()[..., None, :])
    return None


def _gather(out_thw3hE: Tensor, qkv_THW3hE: Tensor, origin: tuple[int, int], groups: Sequence[Group]) -> None:
    """Fill a piece that starts at frame and row `origin`: queries as they are, keys and values associated."""
    own = Group(0, 0)
    _copy_(out_thw3hE[..., 0, :, :], qkv_THW3hE[..., 0, :, :], origin, own)
    heads, width = qkv_THW3hE.shape[-2:]
    for group in cuts(groups, heads * width):
        for head, channel in _heads_of(group, width):
            _copy_(out_thw3hE[..., 1:, head, channel], qkv_THW3hE[..., 1:, head, channel], origin, group)


def _heads_of(group: Group, width: int) -> Iterator[tuple[slice, slice]]:
    """A range of flat channels as slices of (heads, channels of a head): whole heads together, the rest one by one."""
    position = group.start
    while position < group.stop:
        head, channel = divmod(position, width)
        whole = (group.stop - position) // width if channel == 0 else 0
        stop = position + whole * width if whole else min(group.stop, (head + 1) * width)
        yield slice(head, head + max(whole, 1)), slice(channel, width if whole else channel + stop - position)
        position = stop


def _copy_(out: Tensor, source: Tensor, origin: tuple[int, int], group: Group) -> None:
    starts = (origin[0] + group.dt, origin[1] + group.dy, group.dx)
    spans = [_overlap(start, out.shape[axis], source.shape[axis]) for axis, start in enumerate(starts)]
    inside, taken = tuple(span[0] for span in spans), tuple(span[1] for span in spans)
    if any(span != slice(0, out.shape[axis]) for axis, span in enumerate(inside)):
        _fill_border_(out, source, origin, group)
    out[inside] = source[taken]


def _overlap(start: int, size: int, limit: int) -> tuple[slice, slice]:
    """Which of `size` positions from `start` on lie within [0, limit): as a slice of them, and of the source."""
    first = min(max(start, 0), limit)
    last = max(min(start + size, limit), first)
    return slice(first - start, last - start), slice(first, last)


def _fill_border_(out: Tensor, source: Tensor, origin: tuple[int, int], group: Group) -> None:
    if group.own_at_border:
        out.copy_(source[origin[0] : origin[0] + out.shape[0], origin[1] : origin[1] + out.shape[1]])
    else:
        out.zero_()


def _pieces(length: int, floats: int) -> Iterator[slice]:
    """Slices of a leading axis whose widest intermediate, `floats` per entry, fits the budget."""
    step = max(1, PIECE_BYTES // (4 * floats))
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))
