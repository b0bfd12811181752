"""The base of every zoo model: a head of dropout and one linear layer on pooled features, and its verbs.

Shapes: B batch, P positions that are classified separately and averaged, C features.
"""

import torch
from torch import Tensor, nn

from fixformer.config.model import Classes, ModelSettings
from fixformer.config.schema import coerce
from fixformer.models.base import VideoModel
from fixformer.models.layers.heads import LinearHead
from fixformer.models.layers.noise import Dropout


class PooledClassifier(VideoModel):
    """Subclasses build their network, then `add_head`; they implement `forward_features` and `pool`, and read
    `self.checkpointing`."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        settings.validate()
        self.num_classes, self.num_frames = settings.num_classes, settings.num_frames
        self.image_size = settings.image_size
        self.dropout = Dropout(settings.dropout)
        self.checkpointing = False

    def add_head(self, num_features: int, *, std: float = 0.01, bias: float = 0.0) -> None:
        """`std` and `bias` initialise the classifier, and every one that replaces it."""
        self.num_features = num_features
        self.head_std, self.head_bias = std, bias
        self.head = LinearHead(num_features, self.num_classes)
        self.reset_classifier(self.num_classes)

    def pool(self, features: Tensor) -> Tensor:
        """The features that are classified: `[B, P, num_features]`."""
        raise NotImplementedError

    def forward_head(self, features: Tensor, pre_logits: bool = False) -> Tensor:
        pooled_BPC = self.pool(features)
        if pre_logits:
            return pooled_BPC.mean(dim=1)
        return self.head(self.dropout(pooled_BPC)).mean(dim=1)

    def reset_classifier(self, num_classes: int) -> None:
        coerce(num_classes, Classes, "num_classes")
        old = self.head.fc.weight
        self.num_classes = num_classes
        self.head.fc = nn.Linear(self.num_features, num_classes, device=old.device, dtype=old.dtype)
        nn.init.trunc_normal_(self.head.fc.weight, std=self.head_std)
        nn.init.constant_(self.head.fc.bias, self.head_bias)
        self.remember(num_classes=num_classes)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        self.checkpointing = enable


@torch.no_grad()
def initialise_convolutions(model: nn.Module) -> None:
    """He's initialisation by fan-out, as in the published convolutional networks."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Conv3d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
