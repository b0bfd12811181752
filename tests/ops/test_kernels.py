"""Feature maps are non-negative and increasing."""

import pytest
import torch

from fixformer.ops.kernels import KERNELS, relu


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_non_negative_and_increasing(kernel) -> None:
    x = torch.linspace(-200, 200, 4001).expand(2, -1)
    y = kernel(x)
    assert (y >= 0).all()
    assert (y.diff(dim=-1) >= 0).all()


def test_relu_adds_the_inverse_root_of_the_head_width() -> None:
    assert relu(torch.tensor([-1.0, 0, 2, 3])).tolist() == [0.5, 0.5, 2.5, 3.5]
