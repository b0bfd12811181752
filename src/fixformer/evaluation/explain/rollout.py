"""Attention roll-out (Abnar and Zuidema, 2020): how much each token of the stem reaches the pooled output.

Every attention is taken as its matrix, averaged over heads, beside the residual connection at equal weight; all else
(association, MLPs, the head) is taken to leave tokens where they are. That is what the method is: a sketch.

Shapes: B batch, T frames, H rows, W columns; G sequences of N tokens each.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fixformer.models.attention.module import Attention


@dataclass(frozen=True)
class MeanMatrix:
    """An attention's matrix, averaged over heads."""

    module: Attention
    size_BTHW: tuple[int, ...]
    shares_GNN: Tensor


def roll_out(layers: list[MeanMatrix]) -> Tensor:
    """The share of every token `[T, H, W]`, from the uniform mean over the last layer's tokens back to the first's."""
    _, T, H, W = layers[-1].size_BTHW
    share_BTHW = torch.full((1, T, H, W), 1 / (T * H * W))
    for layer in reversed(layers):
        share_G1N1 = layer.module.axis.sequences(share_BTHW[..., None, None])
        back_G1N1 = layer.shares_GNN.mT[:, None] @ share_G1N1
        share_BTHW = (share_BTHW + layer.module.axis.tokens(back_G1N1, layer.size_BTHW)[..., 0]) / 2
    return share_BTHW[0]
