"""Linear attention against its quadratic definition, the golden vectors and the invariants of the method."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from fixformer.models.attention.fixation import SharedFixation
from fixformer.ops import (
    KERNELS,
    cheaper_product_order,
    elu1,
    linear_attention,
    linear_attention_matrix,
    linear_attention_reference,
    relu,
)
from fixformer.ops.linear_attention import linear_attention_gradients

PRODUCT_ORDERS = ["auto", "keys_values", "queries_keys"]


def qkv(batch: int, heads: int, tokens: int, width: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(tokens * 31 + width)
    return [torch.randn(batch, heads, tokens, width, generator=generator, dtype=dtype) for _ in range(3)]


def check_golden(golden: dict[str, Tensor], dtype: torch.dtype, tolerance: float, kernel, prefix: str = "") -> None:
    q, k, v = (golden[name].to(dtype).requires_grad_() for name in "qkv")
    out = linear_attention(kernel(q), kernel(k), v)
    torch.testing.assert_close(out.double(), golden[f"{prefix}out"], atol=tolerance, rtol=0)
    grads = torch.autograd.grad((out * golden["cotangent"].to(dtype)).sum(), (q, k, v))
    for name, grad in zip("qkv", grads, strict=True):
        torch.testing.assert_close(grad.double(), golden[f"{prefix}grad_{name}"], atol=tolerance, rtol=0)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 1e-5)])
@pytest.mark.parametrize(("name", "kernel"), [("relu", relu), ("elu", elu1)])
def test_golden(golden_dir: Path, name: str, kernel, dtype: torch.dtype, tolerance: float) -> None:
    check_golden(load_file(golden_dir / f"op_{name}_linear.safetensors"), dtype, tolerance, kernel)


@given(st.integers(1, 2), st.integers(1, 3), st.integers(1, 70), st.sampled_from([1, 3, 8, 16, 33]))
@settings(max_examples=40, deadline=None)
def test_equals_the_reference_forward_and_gradient(batch: int, heads: int, tokens: int, width: int) -> None:
    for kernel in KERNELS.values():
        results = []
        for attend in (*(_forced(a) for a in PRODUCT_ORDERS), linear_attention_reference):
            q, k, v = (x.requires_grad_() for x in qkv(batch, heads, tokens, width))
            y = attend(kernel(q), kernel(k), v)
            results.append([y, *torch.autograd.grad(y.square().sum(), (q, k, v))])
        for result in results[:-1]:
            for got, expected in zip(result, results[-1], strict=True):
                torch.testing.assert_close(got, expected, atol=1e-10, rtol=1e-9)


def _forced(product_order):
    return lambda q, k, v: linear_attention(q, k, v, product_order=product_order)


@pytest.mark.parametrize("product_order", PRODUCT_ORDERS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_low_precision_inputs_are_accumulated_in_float32(product_order, dtype: torch.dtype, tolerance: float) -> None:
    q, k, v = qkv(2, 3, 301, 16)
    exact = linear_attention_reference(relu(q), relu(k), v)
    y = linear_attention(*(x.to(dtype) for x in (relu(q), relu(k), v)), product_order=product_order)
    assert y.dtype == dtype
    torch.testing.assert_close(y.double(), exact, atol=tolerance, rtol=tolerance)


def test_unequal_numbers_of_queries_and_keys() -> None:
    q, k, v = (*qkv(1, 2, 5, 8)[:1], *qkv(1, 2, 90, 8)[1:])
    expected = linear_attention_reference(relu(q), relu(k), v)
    for product_order in PRODUCT_ORDERS:
        torch.testing.assert_close(_forced(product_order)(relu(q), relu(k), v), expected)


def test_cheaper_product_order_is_the_one_with_fewer_products() -> None:
    assert cheaper_product_order(16, 16, 64) == "queries_keys"
    assert cheaper_product_order(63, 63, 64) == "queries_keys"
    assert cheaper_product_order(289, 289, 64) == "keys_values"
    assert cheaper_product_order(1, 10_000, 64) == "queries_keys"


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_rows_of_the_implied_matrix_sum_to_one_and_give_the_fast_result(kernel) -> None:
    q, k, v = qkv(2, 3, 37, 16)
    weights = linear_attention_matrix(kernel(q), kernel(k))
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 37).double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(_forced("keys_values")(kernel(q), kernel(k), v), weights @ v, atol=1e-12, rtol=0)


def test_linear_in_the_values_and_blind_to_the_order_of_keys() -> None:
    q, k, v = qkv(1, 2, 37, 16)
    other = torch.randn_like(v)
    attend = _forced("auto")
    q, k = relu(q), relu(k)
    torch.testing.assert_close(attend(q, k, 3 * v + other), 3 * attend(q, k, v) + attend(q, k, other))
    order = torch.randperm(37)
    torch.testing.assert_close(attend(q, k[:, :, order], v[:, :, order]), attend(q, k, v))
    torch.testing.assert_close(attend(q[:, :, order], k, v), attend(q, k, v)[:, :, order])


def test_a_longer_query_changes_nothing() -> None:
    q, k, v = qkv(1, 2, 37, 16)
    q, k = q.relu() + 0.1, k.relu() + 0.1
    torch.testing.assert_close(linear_attention(3 * q, k, v), linear_attention(q, k, v), atol=1e-6, rtol=1e-6)


def test_a_longer_query_matters_to_elu1() -> None:
    """systems.md F2: elu + 1 is not homogeneous."""
    q, k, v = qkv(1, 2, 37, 16)
    difference = linear_attention(elu1(3 * q), elu1(k), v) - linear_attention(elu1(q), elu1(k), v)
    assert difference.abs().max() > 1e-2


def test_constant_values_and_a_single_token_come_back() -> None:
    q, k, v = qkv(1, 2, 37, 16)
    constant = v[:, :, :1].expand_as(v)
    torch.testing.assert_close(linear_attention(relu(q), relu(k), constant), constant, atol=1e-5, rtol=1e-5)
    one = [x[:, :, :1] for x in (relu(q), relu(k), v)]
    torch.testing.assert_close(linear_attention(*one), one[2], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("product_order", ["keys_values", "queries_keys"])
def test_gradcheck(product_order) -> None:
    q, k, v = (x.requires_grad_() for x in qkv(1, 2, 5, 4))
    assert torch.autograd.gradcheck(lambda q, k, v: _forced(product_order)(elu1(q), elu1(k), v), (q, k, v))


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("product_order", ["keys_values", "queries_keys"])
def test_gradcheck_of_the_papers_attention(product_order, gated: bool) -> None:
    """systems.md F14, A0: ReLU away from its kink, and the gate that sees q, k and v."""
    torch.manual_seed(0)
    fixate = SharedFixation(4, 3).double()
    q, k, v = qkv(1, 2, 5, 4)
    q, k = (x + 0.1 * x.sign() for x in (q, k))
    leaves = tuple(x.detach().requires_grad_() for x in (q, k, v, *fixate.parameters()))

    def attend(q: Tensor, k: Tensor, v: Tensor, *parameters: Tensor) -> Tensor:
        q, k = relu(q), relu(k)
        if gated:
            named = dict(zip(dict(fixate.named_parameters()), parameters, strict=True))
            q, k = torch.func.functional_call(fixate, named, (q, k, v))
        return _forced(product_order)(q, k, v)

    assert torch.autograd.gradcheck(attend, leaves)


@pytest.mark.parametrize("magnitude", [1.0, 1e3])
def test_autocast_with_many_tokens_and_large_inputs_stays_finite(magnitude: float) -> None:
    q, k, v = (magnitude * x.requires_grad_() for x in qkv(1, 1, 100_000, 8, torch.float32))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = linear_attention(relu(q.bfloat16()), relu(k.bfloat16()), v.bfloat16())
    assert y.dtype == torch.bfloat16
    assert y.isfinite().all()
    grads = torch.autograd.grad(y.float().square().mean(), (q, k, v))
    assert all(grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_does_not_overflow(dtype: torch.dtype) -> None:
    q, k, v = (100 * x.to(dtype) for x in qkv(1, 2, 5000, 8, torch.float32))
    assert linear_attention(relu(q), relu(k), v).isfinite().all()


@pytest.mark.parametrize("product_order", PRODUCT_ORDERS)
@pytest.mark.parametrize("tokens", [1, 5, 11])
def test_gradients_written_by_hand_are_those_of_autograd(product_order, tokens: int) -> None:
    q, k, v = (elu1(x).requires_grad_() for x in qkv(2, 3, tokens, 6))
    y = linear_attention(q, k, v, product_order=product_order)
    g = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    expected = torch.autograd.grad(y, (q, k, v), g)
    found = linear_attention_gradients(*(x.detach() for x in (q, k, v, y)), g, product_order=product_order)
    for own, plain in zip(found, expected, strict=True):
        torch.testing.assert_close(own, plain, rtol=1e-10, atol=1e-12)
