"""The mathematics: tensors in, tensors out.

Attention takes q, k, v as `[B, heads, N, head_dim]`, shifts take `[B, T, H, W, C]`.
"""

from fixformer.ops.kernels import KERNELS, elu1, relu, sigmoid
from fixformer.ops.linear_attention import (
    cheaper_product_order,
    linear_attention,
    linear_attention_matrix,
    linear_attention_reference,
)
from fixformer.ops.shift import shift, shift_reference
from fixformer.ops.softmax_attention import softmax_attention, softmax_attention_matrix, softmax_attention_reference

__all__ = [
    "KERNELS",
    "cheaper_product_order",
    "elu1",
    "linear_attention",
    "linear_attention_matrix",
    "linear_attention_reference",
    "relu",
    "shift",
    "shift_reference",
    "sigmoid",
    "softmax_attention",
    "softmax_attention_matrix",
    "softmax_attention_reference",
]
