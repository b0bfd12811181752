"""The named models of our own Transformer. A name is a set of settings, nothing more."""

from typing import Any

from fixformer.config import ModelConfig
from fixformer.config.model import MODEL_SETTINGS
from fixformer.models.registry import Builder, register
from fixformer.models.video_transformer import VideoTransformer

# The public ViT's geometry: plain patches and MLP, learned positions, one Linear as head.
VIT: dict[str, Any] = {
    "patch_stride": 16,
    "patch_padding": 0,
    "patch_norm": False,
    "mlp_conv": False,
    "position_embedding": "learned",
    "head_hidden_dim": 0,
}


def preset(builder: Builder) -> Builder:
    """Register a preset that accepts every setting of `ModelConfig`."""
    builder.settings = MODEL_SETTINGS  # type: ignore[attr-defined]
    return register(builder)


def _build(settings: dict[str, Any], **defaults: Any) -> VideoTransformer:
    return VideoTransformer(ModelConfig(**{**defaults, **settings}))


@preset
def fixformer_tiny(**settings: Any) -> VideoTransformer:
    """For laptops and small sets."""
    return _build(settings, embed_dim=128, depth=4, num_heads=2, head_hidden_dim=192)


@preset
def fixformer_small(**settings: Any) -> VideoTransformer:
    return _build(settings, embed_dim=256, depth=8, num_heads=4, head_hidden_dim=384)


@preset
def fixformer_base(**settings: Any) -> VideoTransformer:
    """The paper's default model, as the paper writes it."""
    return _build(settings)


@preset
def fixformer_large(**settings: Any) -> VideoTransformer:
    return _build(settings, embed_dim=768, depth=24, num_heads=12, head_hidden_dim=1024)


@preset
def fixformer_base_s(**settings: Any) -> VideoTransformer:
    """Variant S of the paper: 8 frames."""
    return _build(settings, num_frames=8)


@preset
def fixformer_base_h(**settings: Any) -> VideoTransformer:
    """Variant H of the paper: 32 frames."""
    return _build(settings, num_frames=32)


@preset
def fixformer_base_hr(**settings: Any) -> VideoTransformer:
    """Variant HR of the paper: 336 pixels."""
    return _build(settings, image_size=336)


@preset
def fixformer_base_released(**settings: Any) -> VideoTransformer:
    """The released code to the letter; its checkpoints load through `weights.from_released`."""
    return _build(settings, reading="released")


@preset
def fixformer_vit_tiny(**settings: Any) -> VideoTransformer:
    """The method on the geometry of ViT-Ti/16 and DeiT-Ti/16, whose public weights initialise it."""
    return _build(settings, **VIT, embed_dim=192, depth=12, num_heads=3)


@preset
def fixformer_vit_small(**settings: Any) -> VideoTransformer:
    """The method on the geometry of ViT-S/16 and DeiT-S/16, whose public weights initialise it."""
    return _build(settings, **VIT, embed_dim=384, depth=12, num_heads=6)


@preset
def fixformer_vit_base(**settings: Any) -> VideoTransformer:
    """The method on the geometry of ViT-B/16 and DeiT-B/16, whose public weights initialise it."""
    return _build(settings, **VIT, embed_dim=768, depth=12, num_heads=12)
