"""The named models of our own Transformer. A name is a set of settings, nothing more."""

from dataclasses import replace

from fixformer.config import ModelConfig
from fixformer.models.registry import register
from fixformer.models.video_transformer import VideoTransformer

# The geometry of the public ViT: plain patches and MLP, learned positions, a linear head.
VIT = ModelConfig(
    patch_stride=16, patch_padding=0, patch_norm=False, mlp_conv=False, position_embedding="learned", head_hidden_dim=0
)


@register(ModelConfig(embed_dim=128, depth=4, num_heads=2, head_hidden_dim=192))
def fixformer_tiny(config: ModelConfig) -> VideoTransformer:
    """For laptops and small data sets: 4 blocks of width 128."""
    return VideoTransformer(config)


@register(
    ModelConfig(
        embed_dim=128,
        depth=2,
        num_heads=4,
        head_hidden_dim=192,
        stem="lite0",
        position_embedding="learned",
        pool="grid",
        num_frames=8,
        image_size=128,
    )
)
def fixformer_lite(config: ModelConfig) -> VideoTransformer:
    """For your own videos on a laptop: 2 blocks of width 128 on a pre-trained EfficientNet-Lite0."""
    return VideoTransformer(config)


@register(ModelConfig(embed_dim=256, depth=8, num_heads=4, head_hidden_dim=384))
def fixformer_small(config: ModelConfig) -> VideoTransformer:
    """Between tiny and base: 8 blocks of width 256."""
    return VideoTransformer(config)


@register(ModelConfig())
def fixformer_base(config: ModelConfig) -> VideoTransformer:
    """The paper's default model, as the paper writes it."""
    return VideoTransformer(config)


@register(ModelConfig(embed_dim=768, depth=24, num_heads=12, head_hidden_dim=1024))
def fixformer_large(config: ModelConfig) -> VideoTransformer:
    """Larger than the paper's models: 24 blocks of width 768."""
    return VideoTransformer(config)


@register(ModelConfig(num_frames=8))
def fixformer_base_s(config: ModelConfig) -> VideoTransformer:
    """Variant S of the paper: 8 frames."""
    return VideoTransformer(config)


@register(ModelConfig(num_frames=32))
def fixformer_base_h(config: ModelConfig) -> VideoTransformer:
    """Variant H of the paper: 32 frames."""
    return VideoTransformer(config)


@register(ModelConfig(image_size=336))
def fixformer_base_hr(config: ModelConfig) -> VideoTransformer:
    """Variant HR of the paper: 336 pixels."""
    return VideoTransformer(config)


@register(ModelConfig(reading="released"))
def fixformer_base_released(config: ModelConfig) -> VideoTransformer:
    """The released code exactly; its checkpoints load through `weights.from_released`."""
    return VideoTransformer(config)


@register(replace(VIT, embed_dim=192, depth=12, num_heads=3))
def fixformer_vit_tiny(config: ModelConfig) -> VideoTransformer:
    """The method on the geometry of ViT-Ti/16 and DeiT-Ti/16, whose public weights initialise it."""
    return VideoTransformer(config)


@register(replace(VIT, embed_dim=384, depth=12, num_heads=6))
def fixformer_vit_small(config: ModelConfig) -> VideoTransformer:
    """The method on the geometry of ViT-S/16 and DeiT-S/16, whose public weights initialise it."""
    return VideoTransformer(config)


@register(replace(VIT, embed_dim=768, depth=12, num_heads=12))
def fixformer_vit_base(config: ModelConfig) -> VideoTransformer:
    """The method on the geometry of ViT-B/16 and DeiT-B/16, whose public weights initialise it."""
    return VideoTransformer(config)
