"""Everything a user can set, as frozen dataclasses (no torch here), and the recipes made of them."""

from fixformer.config.clip import Augment, ClipSpec, Fit
from fixformer.config.data import Backend, DataConfig
from fixformer.config.eval import Aggregate, EvalConfig, parse_views
from fixformer.config.model import FilledModelConfig, ModelConfig
from fixformer.config.train import OptimConfig, RunConfig, SaveConfig, Stage, TrainConfig, changes, check_device

__all__ = [
    "Aggregate",
    "Augment",
    "Backend",
    "ClipSpec",
    "DataConfig",
    "EvalConfig",
    "FilledModelConfig",
    "Fit",
    "ModelConfig",
    "OptimConfig",
    "RunConfig",
    "SaveConfig",
    "Stage",
    "TrainConfig",
    "changes",
    "check_device",
    "parse_views",
]
