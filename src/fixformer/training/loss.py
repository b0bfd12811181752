"""Cross-entropy with soft targets: smoothing and mixing are in the targets.

Legend: B clips, K classes.
"""

import torch.nn.functional as F
from torch import Tensor


def soft_cross_entropy(logits_BK: Tensor, targets_BK: Tensor) -> Tensor:
    """Mean over clips, in float32 whatever the precision of the logits."""
    return -(targets_BK * F.log_softmax(logits_BK.float(), dim=-1)).sum(-1).mean()
