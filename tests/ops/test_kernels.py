"""Feature maps are non-negative and increasing."""

import pytest
import torch

from fixformer.ops.kernels import IN_PLACE, KERNEL_GRADIENTS, KERNELS, relu


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_non_negative_and_increasing(kernel) -> None:
    x = torch.linspace(-200, 200, 4001).expand(2, -1)
    y = kernel(x)
    assert (y >= 0).all()
    assert (y.diff(dim=-1) >= 0).all()


@pytest.mark.parametrize("kernel", IN_PLACE, ids=lambda kernel: kernel.__name__)
def test_in_place_is_the_same(kernel) -> None:
    x = torch.linspace(-4, 4, 10).view(2, 5)
    expected = kernel(x.clone())
    assert torch.equal(IN_PLACE[kernel](x), expected)
    assert torch.equal(x, expected)


def test_relu_adds_the_inverse_root_of_the_head_width() -> None:
    assert relu(torch.tensor([-1.0, 0, 2, 3])).tolist() == [0.5, 0.5, 2.5, 3.5]


@pytest.mark.parametrize("kernel", KERNEL_GRADIENTS, ids=lambda kernel: kernel.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_from_the_features_is_that_of_autograd(kernel, dtype: torch.dtype) -> None:
    """At zero too, which is what a shift brings in at the border."""
    x = torch.linspace(-4, 4, 9, dtype=dtype).requires_grad_()
    features, g = kernel(x), torch.linspace(1, 2, 9, dtype=dtype)
    (expected,) = torch.autograd.grad(features, x, g)
    torch.testing.assert_close(KERNEL_GRADIENTS[kernel](g, features.detach()), expected)
