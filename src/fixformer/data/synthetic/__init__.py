"""The generated "motions" set, and the linear probe that shows what its single frames reveal."""

from fixformer.data.synthetic.linear_probe import (
    frame_probe,
    linear_probe,
    picture_features,
    ridge_scores,
    standardised_products,
)
from fixformer.data.synthetic.motions import make_clip, make_motions, motion_labels

__all__ = [
    "frame_probe",
    "linear_probe",
    "make_clip",
    "make_motions",
    "motion_labels",
    "picture_features",
    "ridge_scores",
    "standardised_products",
]
