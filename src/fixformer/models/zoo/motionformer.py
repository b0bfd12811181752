"""Motionformer: attention along the trajectories of tokens. Its first stage is softmax, Orthoformer or LARA.

Shapes: B batch, h heads, N = 1 + F·P tokens, the class token first, then F frames of P patches, E head width, D width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from fixformer.config.clip import FrameCount
from fixformer.config.model import Width
from fixformer.config.schema import Rate
from fixformer.errors import SettingsConflict
from fixformer.models.attention.kinds import LaraAttention, first_landmarks
from fixformer.models.layers.residual import Mlp
from fixformer.models.registry import register
from fixformer.models.zoo.common.class_token import (
    ClassTokenModel,
    Grid,
    SoftmaxTokens,
    TokenAttention,
    TokenBlock,
    VitSettings,
)
from fixformer.ops import softmax_attention
from fixformer.ops.lara import lara_trajectories
from fixformer.ops.orthoformer import orthoformer_trajectories
from fixformer.ops.trajectory import TrajectoryWeights, softmax_trajectories, trajectory_attention_with_class_token

LANDMARKS = 128  # as published for Orthoformer
WITH_LANDMARKS = ("orthoformer", "lara")


@dataclass(frozen=True)
class MotionformerSettings(VitSettings):
    """`attention` is the kind of stage 1 (trajectory, orthoformer, lara) or one of the authors' baselines (joint,
    divided).

    `values` is what stage 2 averages: the trajectories themselves, as in the published models (by a mistake in their
    code), or a projection of them, as in their paper. `landmarks` is the number for Orthoformer and the maximum for
    LARA; 128 if None.
    """

    tubelet: FrameCount = 2
    drop_path: Rate = 0.2
    attention: Literal["trajectory", "orthoformer", "lara", "joint", "divided"] = "trajectory"
    values: Literal["trajectory", "projected"] = "trajectory"
    landmarks: Width | None = None

    def check_together(self) -> None:
        super().check_together()
        if self.values == "projected" and self.attention not in STAGES:
            raise SettingsConflict(
                f"values='projected' has no effect with attention={self.attention!r}, which has no trajectories."
            )
        if self.landmarks is not None and self.attention not in WITH_LANDMARKS:
            raise SettingsConflict(
                f"landmarks={self.landmarks} has no effect with attention={self.attention!r}; "
                f"leave landmarks out or set attention to {' or '.join(WITH_LANDMARKS)}."
            )


class SoftmaxTrajectories(nn.Module):
    def forward(self, q_BhNE: Tensor, k_BhNE: Tensor, v_BhNE: Tensor, grid: Grid) -> Tensor:
        return softmax_trajectories(q_BhNE, k_BhNE, v_BhNE, grid[0])


class OrthoformerTrajectories(nn.Module):
    def __init__(self, landmarks: int) -> None:
        super().__init__()
        self.landmarks = landmarks

    def forward(self, q_BhNE: Tensor, k_BhNE: Tensor, v_BhNE: Tensor, grid: Grid) -> Tensor:
        start_Bh = first_landmarks(q_BhNE, self.training)
        return orthoformer_trajectories(q_BhNE, k_BhNE, v_BhNE, grid[0], start_Bh, self.landmarks)


class LaraTrajectories(LaraAttention):
    """Landmarks over frames, rows and columns. The authors published only image code, which this follows."""

    def forward(self, q_BhNE: Tensor, k_BhNE: Tensor, v_BhNE: Tensor, grid: Grid) -> Tensor:  # type: ignore[override]
        return lara_trajectories(q_BhNE, k_BhNE, v_BhNE, grid[0], *self.proposals(q_BhNE, k_BhNE, grid))


# Stage 1, built from head width and landmarks; maps q, k, v of the patches and their grid to `[B, h, F·P, F, E]`.
STAGES: dict[str, Callable[[int, int], nn.Module]] = {
    "trajectory": lambda width, landmarks: SoftmaxTrajectories(),
    "orthoformer": lambda width, landmarks: OrthoformerTrajectories(landmarks),
    "lara": LaraTrajectories,
}


class TrajectoryTokens(nn.Module):
    """Both stages of trajectory attention; the class token attends to all tokens, but no patch attends to it."""

    def __init__(self, dim: int, stage: nn.Module, projected_values: bool) -> None:
        super().__init__()
        self.stage = stage
        self.path_q = nn.Linear(dim, dim)
        self.path_k = nn.Linear(dim, dim)
        self.path_v = nn.Linear(dim, dim) if projected_values else None

    def forward(self, q_BhNE: Tensor, k_BhNE: Tensor, v_BhNE: Tensor, grid: Grid) -> Tensor:
        layers = [layer for layer in (self.path_q, self.path_k, self.path_v) if layer is not None]
        weights = TrajectoryWeights(*(tensor for layer in layers for tensor in (layer.weight, layer.bias)))
        return trajectory_attention_with_class_token(
            q_BhNE, k_BhNE, v_BhNE, weights, grid[0], lambda q, k, v, _: self.stage(q, k, v, grid)
        )


class DividedTokens(nn.Module):
    """Each patch attends to the class token and to the patches of its frame, or of its position if `along_time`."""

    def __init__(self, along_time: bool) -> None:
        super().__init__()
        self.along_time = along_time

    def forward(self, q_BhNE: Tensor, k_BhNE: Tensor, v_BhNE: Tensor, grid: Grid) -> Tensor:
        class_Bh1E = softmax_attention(q_BhNE[:, :, :1], k_BhNE, v_BhNE)
        q, k, v = (self._groups(x[:, :, 1:], grid[0]) for x in (q_BhNE, k_BhNE, v_BhNE))
        k, v = (
            torch.cat([x[:, :, None, :1].expand(-1, -1, group.shape[2], -1, -1), group], dim=3)
            for x, group in ((k_BhNE, k), (v_BhNE, v))
        )
        y_BhGnE = softmax_attention(q, k, v)
        y_BhNE = (y_BhGnE.transpose(2, 3) if self.along_time else y_BhGnE).flatten(2, 3)
        return torch.cat([class_Bh1E, y_BhNE], dim=2).transpose(1, 2).flatten(2)

    def _groups(self, x_BhNE: Tensor, frames: int) -> Tensor:
        x_BhFPE = x_BhNE.unflatten(2, (frames, -1))
        return x_BhFPE.transpose(2, 3) if self.along_time else x_BhFPE


class Motionformer(ClassTokenModel):
    """A ViT on tubelets whose class token is classified after a tanh layer."""

    def __init__(self, settings: MotionformerSettings) -> None:
        super().__init__(settings)
        s = settings
        self.blocks = nn.ModuleList(_block(s, rate) for rate in s.drop_path_rates(s.depth))
        self.pre_logits = nn.Linear(s.embed_dim, s.embed_dim)
        self.finish(s.embed_dim)
        for name, parameter in self.named_parameters():  # divided attention starts without attention in time
            if name.endswith(".time.body.qkv.weight"):
                nn.init.zeros_(parameter)
            elif name.endswith(".time.body.proj.weight"):
                nn.init.ones_(parameter)

    def pool(self, features: Tensor) -> Tensor:
        return self.pre_logits(features[:, :1]).tanh()


def _block(settings: MotionformerSettings, drop_path: float) -> TokenBlock:
    s, dim = settings, settings.embed_dim
    attends: dict[str, nn.Module] = {"attention": SoftmaxTokens()}
    if s.attention == "divided":
        attends = {"time": DividedTokens(along_time=True), "space": DividedTokens(along_time=False)}
    elif s.attention in STAGES:
        stage = STAGES[s.attention](dim // s.num_heads, s.landmarks or LANDMARKS)
        attends = {"attention": TrajectoryTokens(dim, stage, s.values == "projected")}
    attentions = {name: TokenAttention(dim, s.num_heads, attend) for name, attend in attends.items()}
    return TokenBlock(attentions, dim, Mlp(dim, round(dim * s.mlp_ratio)), drop_path)


@register(MotionformerSettings())
def motionformer_base(settings: MotionformerSettings) -> Motionformer:
    """Motionformer: trajectory attention on 16 frames."""
    return Motionformer(settings)


@register(MotionformerSettings(attention="orthoformer"))
def oformer_base(settings: MotionformerSettings) -> Motionformer:
    """Motionformer with Orthoformer: 128 landmarks between queries and keys."""
    return Motionformer(settings)


@register(MotionformerSettings(attention="lara"))
def rala_base(settings: MotionformerSettings) -> Motionformer:
    """Motionformer with LARA, randomized attention: the paper's RALA."""
    return Motionformer(settings)
