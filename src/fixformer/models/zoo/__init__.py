"""The systems the paper compares with that are not a setting of our own Transformer.

Classes, frames and size default to those a system was published with.
"""

from fixformer.models.zoo import i3d, motionformer, msnet, mvit, slowfast, timesformer, tsm, vivit, x3d, xvit

__all__ = ["i3d", "motionformer", "msnet", "mvit", "slowfast", "timesformer", "tsm", "vivit", "x3d", "xvit"]
