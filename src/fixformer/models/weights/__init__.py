"""Weights from elsewhere: names translated, tables resized, and a report of what happened to every tensor."""

from fixformer.models.weights.loading import (
    LoadReport,
    from_released,
    from_timm_vit,
    from_transformers_vit,
    load_weights,
    read_weights,
)

__all__ = ["LoadReport", "from_released", "from_timm_vit", "from_transformers_vit", "load_weights", "read_weights"]
