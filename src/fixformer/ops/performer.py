"""Performer (FAVOR+): softmax attention estimated with positive random features, linear in the number of tokens.

B batch, H heads, N queries, M keys, E head width, R random features.
"""

from math import log
from typing import Literal, get_args

import torch
from torch import Tensor

from fixformer.errors import UnknownName
from fixformer.ops.linear_attention import ProductOrder, linear_attention, linear_attention_reference
from fixformer.ops.precision import accumulate_in_float32

# Added to every feature, as in the authors' code, so that none vanishes.
EPS = 1e-4


Scaling = Literal["chi", "sqrt"]


def orthogonal_projection(
    num_features: int,
    head_dim: int,
    generator: torch.Generator | None = None,
    scaling: Scaling = "chi",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Random rows `[R, E]`, orthogonal in blocks of E; their lengths are those of Gaussian vectors, or all √E."""
    if scaling not in get_args(Scaling):
        raise UnknownName("scaling", scaling, get_args(Scaling))
    device = generator.device if generator is not None else None
    num_blocks = -(-num_features // head_dim)
    gaussian = torch.randn(num_blocks, head_dim, head_dim, generator=generator, device=device, dtype=dtype)
    q, r = torch.linalg.qr(gaussian)
    # LAPACK fixes signs by the data (the first entry is never positive), which would bias the estimate of softmax.
    rotation = q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    rows_RE = rotation.mT.reshape(-1, head_dim)[:num_features]
    if scaling == "sqrt":
        return rows_RE * head_dim**0.5
    lengths = torch.randn(num_features, head_dim, generator=generator, device=device, dtype=dtype).norm(dim=1)
    return rows_RE * lengths.unsqueeze(1)


@accumulate_in_float32
def query_features(q_BHNE: Tensor, projection_RE: Tensor, eps: float = EPS) -> Tensor:
    """φ(q) `[B, H, N, R]`, each query divided by its own largest feature."""
    return _positive_features(q_BHNE, projection_RE, eps, stabilise_over=(-1,))


@accumulate_in_float32
def key_features(k_BHME: Tensor, projection_RE: Tensor, eps: float = EPS) -> Tensor:
    """φ(k) `[B, H, M, R]`; all keys of a head share one divisor, or their weights would change."""
    return _positive_features(k_BHME, projection_RE, eps, stabilise_over=(-2, -1))


def _positive_features(x_BHNE: Tensor, projection_RE: Tensor, eps: float, stabilise_over: tuple[int, ...]) -> Tensor:
    R, E = projection_RE.shape[-2:]
    log_BHNR = x_BHNE @ (projection_RE * E**-0.25).mT
    # The divisors cancel in the attention up to eps, hence constants for the gradient.
    stabiliser = log_BHNR.detach().amax(dim=stabilise_over, keepdim=True)
    half_norm_BHN1 = x_BHNE.square().sum(-1, keepdim=True) * (0.5 * E**-0.5)
    # The factor R^-½ goes into the exponent, where it costs no pass over all features.
    return (log_BHNR - (half_norm_BHN1 + stabiliser + 0.5 * log(R))).exp_() + eps * R**-0.5


@accumulate_in_float32
def performer_attention(
    q_BHNE: Tensor,
    k_BHME: Tensor,
    v_BHME: Tensor,
    projection_RE: Tensor,
    eps: float = EPS,
    product_order: ProductOrder = "auto",
) -> Tensor:
    """φ(q) (φ(k)ᵀ v) / (φ(q) · Σ φ(k)); the projection is `[R, E]`, or `[H, R, E]` for one per head."""
    q_BHNR, k_BHMR = query_features(q_BHNE, projection_RE, eps), key_features(k_BHME, projection_RE, eps)
    return linear_attention(q_BHNR, k_BHMR, v_BHME, eps=0.0, product_order=product_order)


@accumulate_in_float32
def performer_attention_reference(
    q_BHNE: Tensor, k_BHME: Tensor, v_BHME: Tensor, projection_RE: Tensor, eps: float = EPS
) -> Tensor:
    """The definition: attention weights written out."""
    H, E = q_BHNE.shape[1], q_BHNE.shape[3]
    q, k = q_BHNE / E**0.25, k_BHME / E**0.25
    q_logs, k_logs = (torch.einsum("bhne,hre->bhnr", x, projection_RE.expand(H, -1, -1)) for x in (q, k))
    q_largest = q_logs.max(-1, keepdim=True)[0].detach()
    k_largest = k_logs.flatten(2).max(-1)[0].detach()[..., None, None]
    q_features = torch.exp(q_logs - (q**2).sum(-1, keepdim=True) / 2 - q_largest) + eps
    k_features = torch.exp(k_logs - (k**2).sum(-1, keepdim=True) / 2 - k_largest) + eps
    return linear_attention_reference(q_features, k_features, v_BHME, eps=0.0)
