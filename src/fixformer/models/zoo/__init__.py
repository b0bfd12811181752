"""The systems the paper compares with, as far as they are not settings of our own Transformer.

Classes, frames and image size default to the published ones.
"""

from fixformer.models.zoo import i3d, motionformer, msnet, mvit, slowfast, timesformer, tsm, vivit, x3d, xvit

__all__ = ["i3d", "motionformer", "msnet", "mvit", "slowfast", "timesformer", "tsm", "vivit", "x3d", "xvit"]
