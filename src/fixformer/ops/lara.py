"""LARA, linear randomized attention (the paper's RALA): softmax attention by importance sampling.

A few proposals c, each a Gaussian around μ_c = q̄_c + k̄_c, give one sample w_c each; ξ(x, w) = exp(s (w·x - |x|²/2)).
Keys are averaged once per sample, queries mix these averages, so the cost is linear in the number of tokens.

B batch, H heads, N queries, M keys (F frames of P patches), E head width, C proposals, s = E^-½.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fixformer.ops.precision import accumulate_in_float32

# Both as in the authors' code: α may come out negative, and the logarithm of a norm must stay finite.
LEAST_WEIGHT = 1e-8
VALUE_EPS = 1e-4


class Samples(NamedTuple):
    """The proposals of one attention: landmarks of the queries, means μ and one sample w of each."""

    q_bar_BHCE: Tensor
    mean_BHCE: Tensor
    sample_BHCE: Tensor


class Weights(NamedTuple):
    """How much of query n is left to sample c: α_cn exp(s d_c·q_n) / p_c."""

    direction_BHCE: Tensor
    log_p_BH1C: Tensor
    alpha_BHNC: Tensor | None = None


Weighting = Callable[[Tensor, Samples], Weights]


def log_xi(x_BHNE: Tensor, w_BHCE: Tensor) -> Tensor:
    """log ξ(x_n, w_c) as `[B, H, N, C]`."""
    scale = x_BHNE.shape[-1] ** -0.5
    half_norm_BHN1 = x_BHNE.square().sum(-1, keepdim=True) * (0.5 * scale)
    return x_BHNE @ (w_BHCE * scale).mT - half_norm_BHN1


def log_proposals(samples: Samples) -> tuple[Tensor, Tensor]:
    """log ξ(μ_c, w_c) and log Σ_c' ξ(μ_c', w_c), each `[B, H, 1, C]`."""
    log_BHCC = log_xi(samples.mean_BHCE, samples.sample_BHCE)
    return log_BHCC.diagonal(dim1=-2, dim2=-1).unsqueeze(-2), log_BHCC.logsumexp(-2, keepdim=True)


def optimal_weighting(q_BHNE: Tensor, samples: Samples, coefficient: float = 1.0) -> Weights:
    """mis-opt: the balance heuristic, moved towards proposals whose query landmark resembles the query."""
    own_BH1C, all_BH1C = log_proposals(samples)
    scores_BHNC = q_BHNE @ (samples.q_bar_BHCE * q_BHNE.shape[-1] ** -0.5).mT
    share_BHNC = scores_BHNC.softmax(dim=-2)
    shift_BHN1 = share_BHNC.mean(-1, keepdim=True) * coefficient
    alpha_BHNC = share_BHNC * coefficient + ((own_BH1C - all_BH1C).exp() - shift_BHN1)
    return Weights(samples.sample_BHCE, own_BH1C, alpha_BHNC.clamp_min(LEAST_WEIGHT))


def balance_weighting(q_BHNE: Tensor, samples: Samples) -> Weights:
    """mis-bh: the balance heuristic alone, α = 1."""
    return Weights(samples.sample_BHCE, log_proposals(samples)[1])


def biased_weighting(q_BHNE: Tensor, samples: Samples) -> Weights:
    """mis-biased: α = exp(s μ·q), which prefers proposals near the query and is no longer unbiased."""
    return Weights(samples.sample_BHCE + samples.mean_BHCE, log_proposals(samples)[1])


def lara_attention(
    q_BHNE: Tensor,
    k_BHME: Tensor,
    v_BHME: Tensor,
    q_bar_BHCE: Tensor,
    k_bar_BHCE: Tensor,
    noise_BHCE: Tensor | None = None,
    weighting: Weighting = optimal_weighting,
) -> Tensor:
    """Σ_c softmax_c(log α - log p + log ξ(q, w) + log Σ_j ξ(k_j, w)) f_c with f_c = softmax_j(log ξ(k_j, w_c)) v.

    `noise_BHCE` is standard Gaussian in training; without it the samples are their means.
    """
    y_BHN1E = lara_trajectories(q_BHNE, k_BHME, v_BHME, 1, q_bar_BHCE, k_bar_BHCE, noise_BHCE, weighting)
    return y_BHN1E.squeeze(3)


@accumulate_in_float32
def lara_trajectories(
    q_BHNE: Tensor,
    k_BHME: Tensor,
    v_BHME: Tensor,
    num_frames: int,
    q_bar_BHCE: Tensor,
    k_bar_BHCE: Tensor,
    noise_BHCE: Tensor | None = None,
    weighting: Weighting = optimal_weighting,
) -> Tensor:
    """As `lara_attention`, once for the keys of each frame, with the same samples: `[B, H, N, F, E]`."""
    mean_BHCE = q_bar_BHCE + k_bar_BHCE
    sample_BHCE = mean_BHCE if noise_BHCE is None else mean_BHCE + noise_BHCE
    weights = weighting(q_BHNE, Samples(q_bar_BHCE, mean_BHCE, sample_BHCE))
    mass_BHFC, summary_BHFCE = _summarise_keys(k_BHME, v_BHME, sample_BHCE, num_frames)
    # |q|² is the same for all samples of a query: it would cancel in the softmax.
    log_BHNC = q_BHNE @ (weights.direction_BHCE * q_BHNE.shape[-1] ** -0.5).mT
    mixture_BHFNC = (log_BHNC.unsqueeze(2) + (mass_BHFC - weights.log_p_BH1C).unsqueeze(3)).softmax(-1)
    if weights.alpha_BHNC is None:
        return (mixture_BHFNC @ summary_BHFCE).transpose(2, 3)
    # α is bounded, so it can stay outside of the exponent: no logarithm.
    mixture_BHFNC = mixture_BHFNC * weights.alpha_BHNC.unsqueeze(2)
    return (mixture_BHFNC @ summary_BHFCE / mixture_BHFNC.sum(-1, keepdim=True)).transpose(2, 3)


def _summarise_keys(k_BHME: Tensor, v_BHME: Tensor, sample_BHCE: Tensor, num_frames: int) -> tuple[Tensor, Tensor]:
    """log Σ_j ξ(k_j, w_c) and the mean of the values under these weights, in each frame."""
    k_BHFPE, v_BHFPE = (x.unflatten(2, (num_frames, -1)) for x in (k_BHME, v_BHME))
    scale = k_BHME.shape[-1] ** -0.5
    half_norm_BHF1P = (k_BHFPE.square().sum(-1) * (0.5 * scale)).unsqueeze(-2)
    log_BHFCP = (sample_BHCE * scale).unsqueeze(2) @ k_BHFPE.mT - half_norm_BHF1P
    # By hand rather than with logsumexp and softmax: each of them would compute all exponentials anew.
    largest_BHFC1 = log_BHFCP.detach().amax(-1, keepdim=True)
    weights_BHFCP = (log_BHFCP - largest_BHFC1).exp_()
    total_BHFC1 = weights_BHFCP.sum(-1, keepdim=True)
    return (largest_BHFC1 + total_BHFC1.log()).squeeze(-1), weights_BHFCP @ v_BHFPE / total_BHFC1


class LandmarkWeights(NamedTuple):
    """A Linear and a LayerNorm, on the head width ("light") or on all heads' channels ("dense")."""

    linear_weight: Tensor
    linear_bias: Tensor
    norm_weight: Tensor
    norm_bias: Tensor


def project_landmarks(x_BHCE: Tensor, weights: LandmarkWeights) -> Tensor:
    """LayerNorm(Linear(x)), on each head alone or on the heads side by side, as the width of the weights says."""
    E, width = x_BHCE.shape[-1], weights.norm_weight.shape[0]
    if width == E:
        return F.layer_norm(F.linear(x_BHCE, weights.linear_weight, weights.linear_bias), (E,), *weights[2:])
    x_BCD = F.linear(x_BHCE.transpose(1, 2).flatten(2), weights.linear_weight, weights.linear_bias)
    return F.layer_norm(x_BCD, (width,), *weights[2:]).unflatten(-1, (-1, E)).transpose(1, 2)


def mix_landmarks(k_bar_BHCE: Tensor) -> Tensor:
    """Key landmarks after softmax attention among themselves ("mixed")."""
    return F.scaled_dot_product_attention(k_bar_BHCE, k_bar_BHCE, k_bar_BHCE)


def mix_landmarks_by_value(k_bar_BHCE: Tensor, v_bar_BHCE: Tensor) -> Tensor:
    """As `mix_landmarks`, with more weight on landmarks whose values are large ("vmixed")."""
    log_norm_BH1C = (v_bar_BHCE.norm(dim=-1) + VALUE_EPS).log().unsqueeze(-2)
    return F.scaled_dot_product_attention(k_bar_BHCE, k_bar_BHCE, k_bar_BHCE, attn_mask=log_norm_BH1C)


@accumulate_in_float32
def lara_attention_reference(
    q_BHNE: Tensor,
    k_BHME: Tensor,
    v_BHME: Tensor,
    q_bar_BHCE: Tensor,
    k_bar_BHCE: Tensor,
    noise_BHCE: Tensor | None = None,
    weighting: Weighting = optimal_weighting,
) -> Tensor:
    """The definition: attention weights of every query on every key, written out as products of ξ.

    It shares `weighting`, a parameter of the method whose choices are tested against their own formulas.
    """

    def xi(x_BHNE: Tensor, w_BHCE: Tensor) -> Tensor:
        product_BHNC = torch.einsum("bhne,bhce->bhnc", x_BHNE, w_BHCE)
        return torch.exp((product_BHNC - (x_BHNE**2).sum(-1, keepdim=True) / 2) / x_BHNE.shape[-1] ** 0.5)

    mean_BHCE = q_bar_BHCE + k_bar_BHCE
    sample_BHCE = mean_BHCE if noise_BHCE is None else mean_BHCE + noise_BHCE
    weights = weighting(q_BHNE, Samples(q_bar_BHCE, mean_BHCE, sample_BHCE))
    alpha_BHNC = 1.0 if weights.alpha_BHNC is None else weights.alpha_BHNC
    weight_BHNC = alpha_BHNC * xi(q_BHNE, weights.direction_BHCE) / weights.log_p_BH1C.exp()
    attention_BHNM = torch.einsum("bhnc,bhmc->bhnm", weight_BHNC, xi(k_BHME, sample_BHCE))
    return attention_BHNM / attention_BHNM.sum(-1, keepdim=True) @ v_BHME


def lara_trajectories_reference(
    q_BHNE: Tensor,
    k_BHME: Tensor,
    v_BHME: Tensor,
    num_frames: int,
    q_bar_BHCE: Tensor,
    k_bar_BHCE: Tensor,
    noise_BHCE: Tensor | None = None,
    weighting: Weighting = optimal_weighting,
) -> Tensor:
    """The definition: one attention per frame."""
    frames = zip(k_BHME.chunk(num_frames, dim=2), v_BHME.chunk(num_frames, dim=2), strict=True)
    attend = lara_attention_reference
    return torch.stack([attend(q_BHNE, k, v, q_bar_BHCE, k_bar_BHCE, noise_BHCE, weighting) for k, v in frames], dim=3)
