"""The branches of a block on a CPU: in chunks that fit the cache, and with a backward pass written by hand.

The hidden tensors of a clip are several times larger than the processor's cache, and each is fresh memory that the
system must clear page by page. Here they exist for a few frames or rows at a time. Inference writes over its tokens;
training keeps little and makes the rest again. The modules' own `forward` stays the definition, and is what runs
wherever somebody would notice the difference: `may_fuse`.

Shapes: B batch, T frames, H rows, W columns, D width.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from fixformer.models.attention.kinds import LinearAttention
from fixformer.models.attention.module import Attention
from fixformer.models.fused_attention import FusedAttention
from fixformer.models.fused_mlp import FusedMlp
from fixformer.models.fused_parts import Affine, AffineGradient, Operator
from fixformer.models.layers.ordinary import HOOKS, is_ordinary
from fixformer.models.layers.residual import Branch, ConvMlp, Mlp
from fixformer.ops.kernels import KERNEL_GRADIENTS

# Clips whose MLP needs less run at once: chunks pay from where glibc's malloc no longer reuses freed memory, 32 MB.
SMALLEST_BYTES = 32 << 20
# In training from where fewer and smaller tensors outweigh the calls from Python: with fixformer_tiny 6.5 MB are faster
# by 8 %, 0.6 MB slower by 14 %.
SMALLEST_TRAINING_BYTES = 4 << 20
# Layers that treat each token, or each frame, by itself; what stands in their place (LoRA, quantised layers) may not.
KNOWN_LAYERS = (nn.Linear, nn.LayerNorm, nn.Conv2d, nn.Sequential, nn.ModuleList, nn.ModuleDict)
FUSED: dict[type[nn.Module], Callable[[Branch], Operator]] = {
    Attention: FusedAttention,
    Mlp: FusedMlp,
    ConvMlp: FusedMlp,
}


def run_block(block: nn.Module, x_BTHWD: Tensor) -> Tensor:
    """`block(x)` for training: its branches one after the other, fused where they may be."""
    if type(block) is not nn.Sequential or is_watched(block) or not is_ordinary(x_BTHWD):
        return block(x_BTHWD)
    if hidden_bytes(block, x_BTHWD) < SMALLEST_TRAINING_BYTES:
        return block(x_BTHWD)
    for branch in block:
        x_BTHWD = run_branch(branch, x_BTHWD)
    return x_BTHWD


def run_branch(branch: nn.Module, x_BTHWD: Tensor) -> Tensor:
    """One branch out of place, with gradients."""
    if not isinstance(branch, Branch) or not may_fuse(branch, x_BTHWD) or not has_gradient(branch.body):
        return branch(x_BTHWD)
    operator = make_operator(branch)
    factor = branch.drop_path.factor(x_BTHWD)
    return _FusedBranch.apply(branch, operator, factor, x_BTHWD.contiguous(), *weights_of(operator))


def run_in_place(blocks: nn.ModuleList, x_BTHWD: Tensor) -> Tensor:
    """All blocks without gradients, writing over `x_BTHWD`."""
    x_BTHWD = x_BTHWD.contiguous()
    for branch in (branch for block in blocks for branch in block.children()):
        if isinstance(branch, Branch) and has_operator(branch.body):
            operator = make_operator(branch)
            operator.forward(_pairs(weights_of(operator)), x_BTHWD, x_BTHWD, None)
        else:
            x_BTHWD = branch(x_BTHWD)
    return x_BTHWD


def make_operator(branch: Branch) -> Operator:
    return FUSED[type(branch.body)](branch)


def weights_of(operator: Operator) -> list[Tensor]:
    """Weight and bias of each layer; `is_known` has made sure that there is a bias."""
    return [cast(Tensor, parameter) for layer in operator.layers for parameter in (layer.weight, layer.bias)]


def may_run_in_place(model: nn.Module, blocks: nn.ModuleList, x_BTHWD: Tensor) -> bool:
    """Whether chunks pay and give the same: without gradients, hooks or foreign layers anywhere."""
    # First what is cheap, so that small clips do not pay for a walk over all modules. All MLPs have the same width.
    if torch.is_grad_enabled() or not is_ordinary(x_BTHWD) or not len(blocks):
        return False
    if hidden_bytes(blocks[0], x_BTHWD) < SMALLEST_BYTES:
        return False
    # also outside of the blocks: a hook may have kept the tokens, which are written over
    if any(is_watched(module) for module in model.modules()):
        return False
    return all(is_known(module) and not module.training for module in blocks.modules())


def may_fuse(branch: Branch, x_BTHWD: Tensor) -> bool:
    """Whether a branch is one of those known here, with plain layers inside and nobody who watches them."""
    if type(branch) is not Branch or not has_operator(branch.body):
        return False
    modules = list(branch.modules())
    if not all(is_known(module) and not is_watched(module) for module in modules):
        return False
    return all(
        type(parameter) is nn.Parameter and parameter.dtype == torch.float32 and parameter.device == x_BTHWD.device
        for parameter in branch.parameters()
    )


def has_operator(body: nn.Module) -> bool:
    """Whether a body is computed in chunks; attention with something beside it (`attention/beside.py`) is not."""
    is_plain = not isinstance(body, Attention) or body.local is body.output_gate is None
    return type(body) in FUSED and is_plain


def has_gradient(body: nn.Module) -> bool:
    """Whether a gradient is written down for this body; others may still run in place."""
    if not isinstance(body, Attention):
        return True
    return type(body.attend) is LinearAttention and body.kernel in KERNEL_GRADIENTS


def is_known(module: nn.Module) -> bool:
    """A module of ours whose projections are plain, or a layer of torch: by exact type, a subclass may do anything."""
    if isinstance(module, Attention) and not type(module.qkv) is type(module.proj) is nn.Linear:
        return False
    if isinstance(module, Mlp) and not type(module.fc1) is type(module.fc2) is nn.Linear:
        return False
    if getattr(module, "bias", module) is None:
        return False
    return type(module) in KNOWN_LAYERS or type(module).__module__.startswith("fixformer.models.")


def is_watched(module: nn.Module) -> bool:
    """Whether somebody hangs on the module's own call: a hook, or another `forward` put into this one object."""
    return "forward" in vars(module) or any(getattr(module, name) for name in HOOKS)


def hidden_bytes(block: nn.Module, x_BTHWD: Tensor) -> int:
    """Of the largest tensor of a block, its MLP's hidden one; 0 if there is no such MLP."""
    bodies = (getattr(branch, "body", None) for branch in block.children())
    width = max((getattr(body.fc1, "out_features", 0) for body in bodies if isinstance(body, Mlp)), default=0)
    return 4 * width * x_BTHWD[..., 0].numel()


class _FusedBranch(torch.autograd.Function):
    """x + factor · body(norm(x)); `factor` is that of stochastic depth, for each clip, or None."""

    @staticmethod
    def forward(
        ctx: Any,
        branch: Branch,
        operator: Operator,
        factor: Tensor | None,
        x_BTHWD: Tensor,
        *weights: Tensor,
    ) -> Tensor:
        kept: list[Tensor] = []
        out_BTHWD = x_BTHWD.clone() if factor is None else torch.zeros_like(x_BTHWD)
        operator.forward(_pairs(weights), x_BTHWD, out_BTHWD, kept)
        if factor is not None:
            out_BTHWD.mul_(factor).add_(x_BTHWD)
        ctx.branch, ctx.operator, ctx.count = branch, operator, len(weights)
        ctx.save_for_backward(factor, x_BTHWD, *weights, *kept)
        return out_BTHWD

    @staticmethod
    def backward(ctx: Any, g_BTHWD: Tensor) -> Any:
        factor, x_BTHWD, *rest = ctx.saved_tensors
        weights, kept = rest[: ctx.count], rest[ctx.count :]
        if torch.is_grad_enabled():  # somebody differentiates twice
            return None, None, None, *_plain_gradients(ctx, factor, x_BTHWD, weights, g_BTHWD)
        g_BTHWD = g_BTHWD.contiguous()
        g_x_BTHWD = g_BTHWD.clone()
        needed = ctx.needs_input_grad[4:]
        gradients = [torch.zeros_like(weight) if need else None for weight, need in zip(weights, needed, strict=True)]
        sums = [AffineGradient(*pair) for pair in zip(gradients[::2], gradients[1::2], strict=True)]
        g_body_BTHWD = g_BTHWD if factor is None else g_BTHWD * factor
        ctx.operator.backward(_pairs(weights), sums, kept, x_BTHWD, g_body_BTHWD, g_x_BTHWD)
        return None, None, None, g_x_BTHWD, *gradients


def _pairs(tensors: Sequence[Tensor]) -> list[Affine]:
    return [Affine(*pair) for pair in zip(tensors[::2], tensors[1::2], strict=True)]


class _Plain(nn.Module):
    """The definition of a branch, with its noise given."""

    def __init__(self, branch: Branch) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, x_BTHWD: Tensor, factor: Tensor | None) -> Tensor:
        y_BTHWD = self.branch.body(self.branch.norm(x_BTHWD))
        return x_BTHWD + (y_BTHWD if factor is None else y_BTHWD * factor)


def _plain_gradients(
    ctx: Any, factor: Tensor | None, x_BTHWD: Tensor, weights: Sequence[Tensor], g_BTHWD: Tensor
) -> list[Tensor | None]:
    """The gradients as a graph of their own: through the plain composition, with the tensors of the forward pass."""
    names = {module: name for name, module in ctx.branch.named_modules()}
    keys = [f"branch.{names[layer]}.{kind}" for layer in ctx.operator.layers for kind in ("weight", "bias")]
    inputs, needed = [x_BTHWD, *weights], ctx.needs_input_grad[3:]
    with torch.enable_grad():
        given = dict(zip(keys, weights, strict=True))
        out_BTHWD = torch.func.functional_call(_Plain(ctx.branch), given, (x_BTHWD, factor))
        wanted = [tensor for tensor, need in zip(inputs, needed, strict=True) if need]
        found = iter(torch.autograd.grad(out_BTHWD, wanted, g_BTHWD, create_graph=True))
    return [next(found) if need else None for need in needed]
