"""Orthoformer: every query reaches the keys through a few landmark queries that point in different directions.

B batch, H heads, G = B·H, N tokens (F frames of P patches), E head width, R landmarks.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from fixformer.ops.precision import accumulate_in_float32

# In place of the nearness of a query already picked: above any |cos|, so that it is never the smallest.
TAKEN = 10.0


def orthoformer_attention(
    q_BHNE: Tensor, k_BHNE: Tensor, v_BHNE: Tensor, start_BH: Tensor, num_landmarks: int
) -> Tensor:
    """softmax(q Lᵀ) softmax(L kᵀ) v with landmarks L picked among the queries; linear in N."""
    landmarks_BHRE = orthogonal_landmarks(q_BHNE, start_BH, num_landmarks)
    summary_BHRE = F.scaled_dot_product_attention(landmarks_BHRE, k_BHNE, v_BHNE)
    return F.scaled_dot_product_attention(q_BHNE, landmarks_BHRE, summary_BHRE).to(v_BHNE.dtype)


def orthoformer_trajectories(
    q_BHNE: Tensor, k_BHNE: Tensor, v_BHNE: Tensor, num_frames: int, start_BH: Tensor, num_landmarks: int
) -> Tensor:
    """As `orthoformer_attention`, with the keys normalised inside each frame: [B, H, N, F, E]."""
    H, E = v_BHNE.shape[1], v_BHNE.shape[-1]
    landmarks_BHRE = orthogonal_landmarks(q_BHNE, start_BH, num_landmarks)
    # Frames become heads, so that one fused call attends to all of them.
    k_BSPE, v_BSPE = (x.unflatten(2, (num_frames, -1)).flatten(1, 2) for x in (k_BHNE, v_BHNE))
    landmarks_BSRE = landmarks_BHRE.repeat_interleave(num_frames, dim=1)
    summary_BSRE = F.scaled_dot_product_attention(landmarks_BSRE, k_BSPE, v_BSPE)
    summary_BHRS = summary_BSRE.unflatten(1, (H, num_frames)).transpose(2, 3).flatten(3)
    weights_BHNR = torch.softmax(q_BHNE * E**-0.5 @ landmarks_BHRE.mT, dim=-1)
    return (weights_BHNR.to(summary_BHRS.dtype) @ summary_BHRS).unflatten(-1, (num_frames, E)).to(v_BHNE.dtype)


def orthogonal_landmarks(q_BHNE: Tensor, start_BH: Tensor, num_landmarks: int) -> Tensor:
    """The picked queries [B, H, R, E]; they are constants for the gradient."""
    if num_landmarks >= q_BHNE.shape[2]:
        return q_BHNE.detach()
    index_BHR = select_landmarks(q_BHNE, start_BH, num_landmarks)
    return q_BHNE.detach().gather(2, index_BHR.unsqueeze(-1).expand(-1, -1, -1, q_BHNE.shape[-1]))


@torch.no_grad()
@accumulate_in_float32
def select_landmarks(q_BHNE: Tensor, start_BH: Tensor, num_landmarks: int) -> Tensor:
    """Token indices [B, H, R] in the order picked: always the query whose largest |cos| to those picked is smallest.

    The first is `start_BH`; of equals the earliest token is taken.
    """
    B, H, N, _ = q_BHNE.shape
    if num_landmarks >= N:
        return torch.arange(N, device=q_BHNE.device).expand(B, H, N)
    # Tokens last: each of the R-1 passes over the queries then streams through memory.
    unit_GEN = F.normalize(q_BHNE, dim=-1).flatten(0, 1).mT.contiguous()
    index_G1 = start_BH.reshape(B * H, 1)
    nearness_GN = unit_GEN.new_zeros(B * H, N)
    picks = [index_G1]
    for _ in range(num_landmarks - 1):
        landmark_GE1 = unit_GEN.gather(2, index_G1.unsqueeze(1).expand(-1, unit_GEN.shape[1], -1))
        cosine_GN = (landmark_GE1.mT @ unit_GEN).squeeze(1).abs_()
        torch.maximum(nearness_GN, cosine_GN, out=nearness_GN)
        nearness_GN.scatter_(1, index_G1, TAKEN)
        index_G1 = nearness_GN.argmin(dim=1, keepdim=True)
        picks.append(index_G1)
    return torch.cat(picks, dim=1).view(B, H, num_landmarks)


@torch.no_grad()
def select_landmarks_reference(q_BHNE: Tensor, start_BH: Tensor, num_landmarks: int) -> Tensor:
    """The definition, one (batch, head) and one candidate at a time."""
    B, H, N, _ = q_BHNE.shape
    picked = torch.zeros(B, H, min(num_landmarks, N), dtype=torch.long)
    for b in range(B):
        for h in range(H):
            unit_NE = F.normalize(q_BHNE[b, h], dim=-1)
            cosine = (unit_NE @ unit_NE.T).abs().tolist()
            picks = [int(start_BH[b, h])]
            while len(picks) < min(num_landmarks, N):
                nearness = {n: max(cosine[n][p] for p in picks) for n in range(N) if n not in picks}
                picks.append(min(nearness, key=nearness.__getitem__))
            picked[b, h] = torch.tensor(picks)
    return picked


def orthoformer_attention_reference(
    q_BHNE: Tensor, k_BHNE: Tensor, v_BHNE: Tensor, start_BH: Tensor, num_landmarks: int
) -> Tensor:
    """The definition: one frame that holds all tokens."""
    return orthoformer_trajectories_reference(q_BHNE, k_BHNE, v_BHNE, 1, start_BH, num_landmarks).squeeze(3)


def orthoformer_trajectories_reference(
    q_BHNE: Tensor, k_BHNE: Tensor, v_BHNE: Tensor, num_frames: int, start_BH: Tensor, num_landmarks: int
) -> Tensor:
    """The definition, with both attention maps written out."""
    scale = q_BHNE.shape[-1] ** -0.5
    index_BHR = select_landmarks_reference(q_BHNE, start_BH, num_landmarks)
    landmarks_BHRE = torch.stack(
        [q[i] for q, i in zip(q_BHNE.detach().flatten(0, 1), index_BHR.flatten(0, 1), strict=True)]
    )
    landmarks_BHRE = landmarks_BHRE.view(*index_BHR.shape, -1)
    k_BHFPE, v_BHFPE = (x.unflatten(2, (num_frames, -1)) for x in (k_BHNE, v_BHNE))
    to_landmarks_BHNR = torch.softmax(scale * torch.einsum("bhne,bhre->bhnr", q_BHNE, landmarks_BHRE), dim=-1)
    to_keys_BHFRP = torch.softmax(scale * torch.einsum("bhre,bhfpe->bhfrp", landmarks_BHRE, k_BHFPE), dim=-1)
    return torch.einsum("bhnr,bhfrp,bhfpe->bhnfe", to_landmarks_BHNR, to_keys_BHFRP, v_BHFPE)
