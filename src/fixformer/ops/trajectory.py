"""Trajectory attention (Motionformer): along the probable path of a token through the frames.

B batch, H heads, N = F·P tokens, F frames of P patches in that order, E head width, D = H·E channels.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

Trajectories = Callable[[Tensor, Tensor, Tensor, int], Tensor]
"""Stage 1: q, k, v and the number of frames to `[B, H, N, F, E]`, an average of each frame's values for each query."""


class TrajectoryWeights(NamedTuple):
    """Projections `[D, D]` of stage 2; without values, the trajectories themselves are averaged over the frames.

    The published models were trained without, by a slip in their code.
    """

    query_weight: Tensor
    query_bias: Tensor
    key_weight: Tensor
    key_bias: Tensor
    value_weight: Tensor | None = None
    value_bias: Tensor | None = None


def softmax_trajectories(q_BHNE: Tensor, k_BHNE: Tensor, v_BHNE: Tensor, num_frames: int) -> Tensor:
    """Softmax attention of every query to the patches of each frame: `[B, H, N, F, E]`."""
    H = q_BHNE.shape[1]
    # Frames become heads: one fused call, and no N x N map in memory.
    k_BSPE, v_BSPE = (x.unflatten(2, (num_frames, -1)).flatten(1, 2) for x in (k_BHNE, v_BHNE))
    q_BSNE = q_BHNE.repeat_interleave(num_frames, dim=1)
    return F.scaled_dot_product_attention(q_BSNE, k_BSPE, v_BSPE).unflatten(1, (H, num_frames)).transpose(2, 3)


def trajectory_attention(
    q_BHNE: Tensor,
    k_BHNE: Tensor,
    v_BHNE: Tensor,
    weights: TrajectoryWeights,
    num_frames: int,
    trajectories: Trajectories = softmax_trajectories,
) -> Tensor:
    """Both stages for patch tokens: `[B, N, D]`, heads side by side, before the output projection."""
    H = q_BHNE.shape[1]
    path_BNFD = trajectories(q_BHNE, k_BHNE, v_BHNE, num_frames).permute(0, 2, 3, 1, 4).flatten(3)
    return attend_along_path(path_BNFD, weights, H)


def attend_along_path(path_BNFD: Tensor, weights: TrajectoryWeights, num_heads: int) -> Tensor:
    """Stage 2: the trajectory point in the token's own frame asks, all points of its trajectory answer."""
    scale = (path_BNFD.shape[-1] // num_heads) ** -0.5
    own_BND = points_in_own_frame(path_BNFD)
    q_BNHE = F.linear(own_BND, weights.query_weight * scale, weights.query_bias * scale).unflatten(-1, (num_heads, -1))
    k_BNFHE = F.linear(path_BNFD, weights.key_weight, weights.key_bias).unflatten(-1, (num_heads, -1))
    v_BNFD = path_BNFD
    if weights.value_weight is not None:
        v_BNFD = F.linear(path_BNFD, weights.value_weight, weights.value_bias)
    attention_BNHF = torch.einsum("bnhe,bnfhe->bnhf", q_BNHE, k_BNFHE).softmax(-1).to(v_BNFD.dtype)
    return torch.einsum("bnhf,bnfhe->bnhe", attention_BNHF, v_BNFD.unflatten(-1, (num_heads, -1))).flatten(2)


def points_in_own_frame(path_BNFD: Tensor) -> Tensor:
    """Of each token's trajectory the point in the frame the token belongs to: `[B, N, D]`."""
    num_frames = path_BNFD.shape[2]
    path_BFPFD = path_BNFD.unflatten(1, (num_frames, -1))
    return path_BFPFD.diagonal(dim1=1, dim2=3).movedim(-1, 1).flatten(1, 2)


def trajectory_attention_with_class_token(
    q_BHNE: Tensor,
    k_BHNE: Tensor,
    v_BHNE: Tensor,
    weights: TrajectoryWeights,
    num_frames: int,
    trajectories: Trajectories = softmax_trajectories,
) -> Tensor:
    """As `trajectory_attention` for a class token followed by patches: it attends to all tokens, patches not to it."""
    class_B1D = F.scaled_dot_product_attention(q_BHNE[:, :, :1], k_BHNE, v_BHNE).transpose(1, 2).flatten(2)
    q, k, v = (x[:, :, 1:] for x in (q_BHNE, k_BHNE, v_BHNE))
    return torch.cat([class_B1D, trajectory_attention(q, k, v, weights, num_frames, trajectories)], dim=1)


def trajectory_attention_reference(
    q_BHNE: Tensor, k_BHNE: Tensor, v_BHNE: Tensor, weights: TrajectoryWeights, num_frames: int
) -> Tensor:
    """The definition for patch tokens, token by token."""
    B, H, N, E = q_BHNE.shape
    k_BHFPE, v_BHFPE = (x.unflatten(2, (num_frames, -1)) for x in (k_BHNE, v_BHNE))
    tokens = []
    for n in range(N):
        scores_BHFP = torch.einsum("bhe,bhfpe->bhfp", q_BHNE[:, :, n], k_BHFPE) * E**-0.5
        path_BFHE = torch.einsum("bhfp,bhfpe->bfhe", scores_BHFP.softmax(-1), v_BHFPE)
        path_BFD = path_BFHE.reshape(B, num_frames, H * E)
        q_BD = path_BFD[:, n // (N // num_frames)] @ weights.query_weight.T + weights.query_bias
        k_BFHE = (path_BFD @ weights.key_weight.T + weights.key_bias).view(B, num_frames, H, E)
        if weights.value_weight is None or weights.value_bias is None:
            v_BFHE = path_BFHE
        else:
            v_BFHE = (path_BFD @ weights.value_weight.T + weights.value_bias).view(B, num_frames, H, E)
        attention_BHF = (torch.einsum("bhe,bfhe->bhf", q_BD.view(B, H, E), k_BFHE) * E**-0.5).softmax(-1)
        tokens.append(torch.einsum("bhf,bfhe->bhe", attention_BHF, v_BFHE).flatten(1))
    return torch.stack(tokens, dim=1)
