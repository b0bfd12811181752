"""The systems the paper compares with that are not a setting of our own Transformer."""

from fixformer.models.zoo import i3d, msnet, mvit, slowfast, tsm, x3d

__all__ = ["i3d", "msnet", "mvit", "slowfast", "tsm", "x3d"]
