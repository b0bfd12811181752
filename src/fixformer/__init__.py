"""fixformer: video classification whose cost grows linearly with the length and resolution of the video.

The public names are imported on first use, so that `import fixformer` does not pay for torch.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fixformer.evaluation.evaluate import evaluate
    from fixformer.evaluation.predictor import load, predict
    from fixformer.models.registry import create_model, list_models
    from fixformer.training.run import train

try:
    __version__ = version("fixformer")
except PackageNotFoundError:  # a source tree on the path, not installed
    __version__ = "0+unknown"

_HOMES = {
    "create_model": "fixformer.models.registry",
    "evaluate": "fixformer.evaluation.evaluate",
    "list_models": "fixformer.models.registry",
    "load": "fixformer.evaluation.predictor",
    "predict": "fixformer.evaluation.predictor",
    "train": "fixformer.training.run",
}

__all__ = ["__version__", "create_model", "evaluate", "list_models", "load", "predict", "train"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'fixformer' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
