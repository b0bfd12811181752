"""Weights from elsewhere: names translated, tables resized, and a report of what happened to every tensor."""

from fixformer.models.weights.image_vit import from_timm_vit, from_transformers_vit
from fixformer.models.weights.loading import LoadReport, load_weights, read_weights
from fixformer.models.weights.released import from_released

__all__ = ["LoadReport", "from_released", "from_timm_vit", "from_transformers_vit", "load_weights", "read_weights"]
