"""Softmax attention, the quadratic twin.

Shapes: B batch, H heads, N queries, M keys, E head width.
"""

import torch.nn.functional as F
from torch import Tensor

from fixformer.ops.precision import accumulate_in_float32


def softmax_attention(q_BHNE: Tensor, k_BHME: Tensor, v_BHME: Tensor) -> Tensor:
    """softmax(q kᵀ / √E) v, fused (PyTorch's SDPA)."""
    return F.scaled_dot_product_attention(q_BHNE, k_BHME, v_BHME)


def softmax_attention_matrix(q_BHNE: Tensor, k_BHME: Tensor) -> Tensor:
    return (q_BHNE @ k_BHME.mT * q_BHNE.shape[-1] ** -0.5).softmax(-1)


@accumulate_in_float32
def softmax_attention_reference(q_BHNE: Tensor, k_BHME: Tensor, v_BHME: Tensor) -> Tensor:
    """The definition, with the attention matrix written out."""
    return softmax_attention_matrix(q_BHNE, k_BHME) @ v_BHME
