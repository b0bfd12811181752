"""The cost of a model, without running it: parameters, multiply-accumulates, activation memory, part by part.

Everything is counted on the meta device, where nothing is computed and fused attention is decomposed, so a model of
any size is counted in a second. The convention is the papers': one multiply-accumulate is one FLOP, LayerNorm is five
per element, BatchNorm two, adaptive pooling one; softmax, activations and element-wise work are not counted.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from fixformer.config.schema import add_once
from fixformer.errors import InputError
from fixformer.models.attention.kinds import KernelAttention
from fixformer.models.base import VideoModel
from fixformer.models.registry import create_model
from fixformer.runtime.memory import require_memory

aten = torch.ops.aten


def _per_element(flops: int) -> Any:
    """Twice `flops`, because the counter counts two per multiply-accumulate and its sums are halved."""
    return lambda x_shape, *args, **kwargs: 2 * flops * prod(x_shape)


ELEMENTWISE = {
    aten.native_layer_norm: _per_element(5),
    aten.native_batch_norm: _per_element(2),
    aten._native_batch_norm_legit_no_training: _per_element(2),
    aten._adaptive_avg_pool2d: _per_element(1),
    aten._adaptive_avg_pool3d: _per_element(1),
}
OPERATORS = {
    "convolution": "conv",
    "native_layer_norm": "layer_norm",
    "native_batch_norm": "batch_norm",
    "_native_batch_norm_legit_no_training": "batch_norm",
    "_adaptive_avg_pool2d": "pool",
    "_adaptive_avg_pool3d": "pool",
    "bmm": "matmul",
    "baddbmm": "matmul",
}


@dataclass(frozen=True)
class Part:
    """One part of a model. `activations` is what training keeps for the backward pass, in bytes per clip."""

    name: str
    params: int
    macs: int
    activations: int


@dataclass(frozen=True)
class Cost:
    """The cost of one view: one clip, one crop, batch 1."""

    model: str
    settings: dict[str, Any]
    frames: int
    size: int
    params: int
    macs: int
    executed_macs: int
    activations: int
    by_operator: dict[str, int]
    parts: list[Part]
    paper_params_millions: float | None
    paper_gflops: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def cost(name: str, frames: int | None = None, size: int | None = None, **settings: Any) -> Cost:
    """Cost of a model by name, at its own clip size or another.

    `macs` follows the papers, which always multiply keys and values first; `executed_macs` is what our linear
    attention, which takes the cheaper order of its two products, really does.
    """
    sized = dict(settings)
    for key, value in (("num_frames", frames), ("image_size", size)):
        if value is not None:
            add_once(sized, key, value)
    with torch.device("meta"):
        model = create_model(name, **sized).eval()
    frames, size = model.num_frames, model.image_size
    with countable(frames, size):
        with as_published(model):
            counts = count_macs(model, frames, size)
        executed = sum(count_macs(model, frames, size)["Global"].values())
        activations = saved_bytes(model, frames, size)
    parts = [_part(model, part, counts, activations) for part in _part_names(model)]
    own = sum(parameter.numel() for parameter in model.parameters(recurse=False))
    parts += [Part("class token", own, 0, 0)] if own else []
    paper_params, paper_gflops = _printed(name, settings, (frames, size))
    return Cost(
        model=name,
        settings=settings,
        frames=frames,
        size=size,
        params=count_params(model),
        macs=sum(counts["Global"].values()),
        executed_macs=executed,
        activations=activations[""],
        by_operator=counts["Global"],
        parts=parts,
        paper_params_millions=paper_params,
        paper_gflops=paper_gflops,
    )


def count_params(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def count_macs(model: VideoModel, frames: int, size: int) -> dict[str, dict[str, int]]:
    """Multiply-accumulates by module path and operator class; the whole is under "Global"."""
    counter = FlopCounterMode(display=False, custom_mapping=ELEMENTWISE)
    with counter, torch.no_grad():
        model(_clip(frames, size))
    counts: dict[str, dict[str, int]] = {}
    for path, operators in counter.get_flop_counts().items():
        merged = counts[path.partition(".")[2] or path] = {}
        for operator, flops in operators.items():
            kind = OPERATORS.get(operator.__name__, "linear")
            merged[kind] = merged.get(kind, 0) + flops // 2
    return counts


@contextmanager
def countable(frames: int, size: int) -> Iterator[None]:
    """Even on the meta device the bytes of a tensor are a 64-bit number."""
    try:
        yield
    except RuntimeError as error:
        if "overflow" not in str(error):
            raise
        raise InputError(
            f"frames={frames} and size={size} make tensors of more than 2^63 bytes; expected a smaller clip."
        ) from None


def _clip(frames: int, size: int) -> Tensor:
    return torch.empty(1, 3, frames, size, size, device="meta")


@contextmanager
def as_published(model: nn.Module) -> Iterator[None]:
    """Within the block linear attention multiplies keys and values first, as all papers count it."""
    kinds = [module for module in model.modules() if isinstance(module, KernelAttention)]
    before = [kind.product_order for kind in kinds]
    for kind in kinds:
        kind.product_order = "keys_values"
    try:
        yield
    finally:
        for kind, order in zip(kinds, before, strict=True):
            kind.product_order = order


def _part_names(model: nn.Module) -> list[str]:
    """Direct children; of a list of blocks its branches, the same branch of all blocks as one: `blocks.*.space`."""
    names = []
    for name, child in model.named_children():
        branches = [f"{name}.*.{branch}" for block in child.children() for branch, _ in block.named_children()]
        names += [*branches] if isinstance(child, nn.ModuleList) and branches else [name]
    return [name for name in dict.fromkeys(names) if _params_of(model, name)]


def _modules(model: nn.Module, part: str) -> dict[str, nn.Module]:
    pattern = re.compile(re.escape(part).replace(r"\*", r"\d+"))
    return {path: module for path, module in model.named_modules() if pattern.fullmatch(path)}


def _params_of(model: nn.Module, part: str) -> int:
    return sum(map(count_params, _modules(model, part).values()))


def _part(model: nn.Module, part: str, counts: dict[str, dict[str, int]], activations: dict[str, int]) -> Part:
    macs = {path: sum(operators.values()) for path, operators in counts.items()}
    modules = _modules(model, part)
    return Part(
        name=part,
        params=_params_of(model, part),
        macs=sum(_of_module(module, path, macs) for path, module in modules.items()),
        activations=sum(_of_module(module, path, activations) for path, module in modules.items()),
    )


def _of_module(module: nn.Module, path: str, amounts: dict[str, int]) -> int:
    """The amount of a module, or of its children where only these were called (as by `Branch.residual`)."""
    if path in amounts:
        return amounts[path]
    return sum(_of_module(child, f"{path}.{name}", amounts) for name, child in module.named_children())


def saved_bytes(model: nn.Module, frames: int, size: int) -> dict[str, int]:
    """Bytes that autograd keeps for the backward pass, by the path of every module; "" is the whole model."""
    own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    seen: dict[int, Tensor] = {}
    totals: dict[str, int] = defaultdict(int)
    running: list[str] = [""]

    def save(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own and storage._cdata not in seen:
            seen[storage._cdata] = tensor
            for path in running:
                totals[path] += storage.nbytes()
        return tensor

    with _paths_of_running_modules(model, running), torch.autograd.graph.saved_tensors_hooks(save, lambda x: x):
        model(_clip(frames, size))
    return totals


class AttentionAsFused(TorchFunctionMode):
    """Within the block fused attention keeps what it keeps on a real device: not its matrices, which it never makes."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.scaled_dot_product_attention:
            return _KeptByAttention.apply(*args[:3])
        return func(*args, **(kwargs or {}))


class _KeptByAttention(torch.autograd.Function):
    """The shape of what attention returns, and the tensors that its backward pass needs; never differentiated."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = q.new_empty(*q.shape[:-1], v.shape[-1])
        ctx.save_for_backward(q, k, v, out)
        return out


def largest_output(model: nn.Module, frames: int, size: int) -> int:
    """Bytes of the largest output of a layer for one clip, which is the least that a forward pass takes.

    Not what autograd keeps, which on the meta device includes matrices that fused attention never makes.
    """
    largest = 0

    def measure(module: nn.Module, args: Any, output: Any) -> None:
        nonlocal largest
        largest = max(largest, output.nbytes if isinstance(output, Tensor) else 0)

    hooks = [module.register_forward_hook(measure) for module in model.modules()]
    try:
        with countable(frames, size), torch.no_grad():
            model(_clip(frames, size))
    finally:
        for hook in hooks:
            hook.remove()
    return largest


def require_forward_memory(model: VideoModel, clips: int, what: str) -> None:
    """Raise a `UserError` if the machine has not even memory for so many clips and the largest output of a layer.

    `what` names the settings that decide about it. The model is only asked for its name and settings; one that
    `create_model` has not built has none, and is not judged.
    """
    if not model.name:
        return
    with torch.device("meta"):
        twin = create_model(model.name, **model.settings).eval()
    pixels = _clip(twin.num_frames, twin.image_size).nbytes
    require_memory(
        clips * (pixels + largest_output(twin, twin.num_frames, twin.image_size)),
        f"{clips} clips at a time ({what})",
        "use fewer views, smaller batches or a smaller clip",
    )


@contextmanager
def _paths_of_running_modules(model: nn.Module, running: list[str]) -> Iterator[None]:
    handles = []
    for path, module in model.named_modules():
        if path:
            handles.append(module.register_forward_pre_hook(lambda *_, path=path: running.append(path)))
            handles.append(module.register_forward_hook(lambda *_: running.pop() and None))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


# What the paper prints for its own model: (frames, size) -> parameters in millions (Table 1) and GFLOPs of a view
# (Tables 1 and 5). `fixformer cost` shows them beside our counts, which differ: see the note of "Ours" in paper_rows.
PAPER_PRINTS = {
    (16, 224): (52.2, 257.8),
    (8, 224): (None, 129.1),
    (32, 224): (None, 530.2),
    (16, 336): (None, 573.3),
}


def _printed(name: str, settings: dict[str, Any], clip: tuple[int, int]) -> tuple[float | None, float | None]:
    """The paper's numbers if this is its model: default settings and the 174 classes of SSv2."""
    if name.startswith("fixformer_base") and {"num_classes": 174, **settings} == {"num_classes": 174}:
        return PAPER_PRINTS.get(clip, (None, None))
    return None, None
