"""Inference on a CPU, a few frames or rows at a time.

The hidden tensors of a large clip are several times larger than the processor's cache, and each is fresh memory that
the system must clear page by page. Here the model's own modules are called on chunks of the tokens instead, and the
results are added in place. `fixformer bench chunked` measures what that saves, `set_chunked_inference` switches it off.

Shapes: B batch, T frames, H rows, W columns, D width.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from fixformer.models.attention.axes import SpaceAxis, TimeAxis
from fixformer.models.attention.module import Attention
from fixformer.models.layers.residual import Branch, ConvMlp, Mlp

# The largest tensor of a chunk: it and the two or three beside it should fit a processor's last cache, often 32 MB.
# Tried with fixformer_base on an AMD EPYC: 8 and 16 MB are equally fast, 4 MB is slower by 2 %.
CHUNK_BYTES = 16 << 20
# Clips whose MLP needs less run at once: chunks pay from where glibc's malloc no longer reuses freed memory, 32 MB.
SMALLEST_BYTES = 32 << 20
# Layers that treat each token, or each frame, by itself; what stands in their place (LoRA, quantised layers) may not.
KNOWN_LAYERS = (nn.Linear, nn.LayerNorm, nn.Conv2d, nn.Sequential, nn.ModuleList, nn.ModuleDict)


def may_run_in_chunks(model: nn.Module, blocks: nn.Module, x_BTHWD: Tensor) -> bool:
    """Whether chunks pay and give the same: float32 on a CPU, without gradients, tracing, hooks or foreign layers."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    if x_BTHWD.device.type != "cpu" or x_BTHWD.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        return False
    # First what is cheap, so that small clips do not pay for a walk over all modules. All MLPs have the same width.
    bodies = (getattr(branch, "body", None) for block in blocks.children() for branch in block.children())
    mlp = next((body for body in bodies if isinstance(body, Mlp)), None)
    if mlp is None or 4 * getattr(mlp.fc1, "out_features", 0) * x_BTHWD[..., 0].numel() < SMALLEST_BYTES:
        return False
    # also outside of the blocks: a hook may have kept the tokens, which are written over
    if any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()):
        return False
    return all(is_known(module) and not module.training for module in blocks.modules())


def is_known(module: nn.Module) -> bool:
    """A module of ours whose projections are plain, or a layer of torch: by exact type, a subclass may do anything."""
    if isinstance(module, Attention) and not type(module.qkv) is type(module.proj) is nn.Linear:
        return False
    if isinstance(module, Mlp) and not type(module.fc1) is type(module.fc2) is nn.Linear:
        return False
    return type(module) in KNOWN_LAYERS or type(module).__module__.startswith("fixformer.models.")


def run_in_chunks(blocks: nn.Module, x_BTHWD: Tensor) -> Tensor:
    """All blocks, writing over `x_BTHWD`."""
    x_BTHWD = x_BTHWD.contiguous()
    for branch in (branch for block in blocks.children() for branch in block.children()):
        assert isinstance(branch, Branch)
        body = branch.body
        if isinstance(body, Mlp) and type(body) in (Mlp, ConvMlp):
            for frames in chunks(x_BTHWD, axis=1, width=body.fc1.out_features):
                x_BTHWD[frames].add_(branch.residual(x_BTHWD[frames]))
        elif type(body) is Attention and isinstance(body.axis, SpaceAxis | TimeAxis):
            attend_in_chunks(branch, body, x_BTHWD)
        else:
            x_BTHWD = branch(x_BTHWD)
    return x_BTHWD


def attend_in_chunks(branch: Branch, attention: Attention, x_BTHWD: Tensor) -> None:
    """`Attention.forward`. Association needs other frames and rows, the rest looks at one sequence at a time."""
    q, k, v = attention.project(branch.norm(x_BTHWD))
    for keys_or_values in (k, v):
        attention.associate.in_place(keys_or_values)
    # A sequence along space lies in one frame, a sequence along time in one row.
    axis = 1 if isinstance(attention.axis, SpaceAxis) else 2
    # Beside q, k and v there are the features and the gate's input, so twice their width is counted.
    for part in chunks(x_BTHWD, axis, width=2 * attention.qkv.out_features):
        q_part, k_part = attention.kernel(q[part]), attention.kernel(k[part])
        q_part, k_part = attention.fixate(q_part, k_part, v[part])
        x_BTHWD[part].add_(attention.proj(attention.attend_along_axis(q_part, k_part, v[part])))


def chunks(x_BTHWD: Tensor, axis: int, width: int) -> Iterator[tuple[slice, ...]]:
    """Slices along an axis, nearly equal, whose tokens take `CHUNK_BYTES` at most if each has `width` channels."""
    size = x_BTHWD.shape[axis]
    largest = max(1, CHUNK_BYTES // (4 * width * x_BTHWD[..., 0].numel() // size))
    count = -(-size // largest)
    for i in range(count):
        yield (slice(None),) * axis + (slice(i * size // count, (i + 1) * size // count),)
