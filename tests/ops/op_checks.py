"""What every attention operator is held to: golden vectors, the agreement of fast and naive twins, graph capture."""

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

GOLDEN_TOLERANCE = {torch.float64: 1e-11, torch.float32: 1e-5}


def load_golden(golden_dir: Path, name: str, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    tensors = load_file(golden_dir / f"{name}.safetensors")
    return {key: x.to(dtype) if x.is_floating_point() else x for key, x in tensors.items()}


def assert_close(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance, check_dtype=False)


def assert_matches_golden(golden: dict[str, Tensor], attend: Callable[..., Tensor]) -> None:
    """The output and the gradients of a plain golden file."""
    q, k, v = (golden[name].clone().requires_grad_() for name in "qkv")
    out = attend(q, k, v)
    tolerance = GOLDEN_TOLERANCE[out.dtype]
    assert_close(out, golden["out"], tolerance)
    gradients = torch.autograd.grad((out * golden["cotangent"]).sum(), (q, k, v))
    for gradient, name in zip(gradients, "qkv", strict=True):
        assert_close(gradient, golden[f"grad_{name}"], tolerance)


def random_qkv(
    *shape: int, seed: int = 0, dtype: torch.dtype = torch.float64, keys: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """q `[B, H, N, E]`, and k, v with as many tokens or with `keys`."""
    generator = torch.Generator().manual_seed(seed)
    key_shape = (*shape[:2], keys or shape[2], shape[3])
    q, k, v = (torch.randn(s, generator=generator, dtype=torch.float64) for s in (shape, key_shape, key_shape))
    return q.to(dtype), k.to(dtype), v.to(dtype)


def assert_twins_agree(
    fast: Callable[..., Tensor], naive: Callable[..., Tensor], inputs: tuple[Tensor, ...], tolerance: float = 1e-11
) -> None:
    """Forward and gradient with respect to every input."""
    generator = torch.Generator().manual_seed(1)
    results = []
    for attend in (fast, naive):
        leaves = [x.clone().requires_grad_() for x in inputs]
        out = attend(*leaves)
        cotangent = torch.randn(out.shape, generator=generator.manual_seed(1), dtype=out.dtype)
        results.append((out, *torch.autograd.grad((out * cotangent).sum(), leaves)))
    for actual, expected in zip(*results, strict=True):
        assert actual.dtype == expected.dtype
        assert_close(actual, expected, tolerance)


def assert_half_precision_is_close(attend: Callable[..., Tensor], inputs: tuple[Tensor, ...], tolerance: float) -> None:
    """bfloat16 inputs, and float32 inputs under autocast, against float64 on the same rounded numbers."""
    rounded = tuple(x.bfloat16() for x in inputs)
    expected = attend(*(x.double() for x in rounded))
    out = attend(*rounded)
    assert out.dtype == torch.bfloat16
    assert_close(out.double(), expected, tolerance)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = attend(*rounded)
        assert out.dtype == torch.bfloat16
        assert_close(out.double(), expected, tolerance)
        assert_close(attend(*(x.float() for x in rounded)).double(), expected, tolerance)


class _AsModule(torch.nn.Module):
    def __init__(self, attend: Callable[..., Tensor]) -> None:
        super().__init__()
        self.attend = attend

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.attend(*inputs)


def assert_captured(attend: Callable[..., Tensor], inputs: tuple[Tensor, ...], batched: int | None = None) -> None:
    """One graph under torch.compile with gradients; a torch.export program that takes other batch sizes.

    `batched`: how many of the inputs, counted from the first, have a batch dimension; all of them unless said.
    """
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    wanted = [x for x in leaves if x.requires_grad]
    expected = attend(*leaves)
    gradients = torch.autograd.grad(expected.sum(), wanted)
    torch._dynamo.reset()
    out = torch.compile(attend, fullgraph=True, backend="aot_eager")(*leaves)
    assert_close(out, expected, 1e-11)
    for actual, gradient in zip(torch.autograd.grad(out.sum(), wanted), gradients, strict=True):
        assert_close(actual, gradient, 1e-11)
    _assert_exported(attend, inputs, batched=len(inputs) if batched is None else batched)


def _assert_exported(attend: Callable[..., Tensor], inputs: tuple[Tensor, ...], batched: int) -> None:
    two, three = (tuple(torch.cat([x] * n) if i < batched else x for i, x in enumerate(inputs)) for n in (2, 3))
    dynamic = tuple({0: torch.export.Dim.DYNAMIC} if i < batched else None for i in range(len(inputs)))
    exported = torch.export.export(_AsModule(attend), two, dynamic_shapes=(dynamic,)).module()
    assert_close(exported(*three), attend(*three), 1e-11)
