"""fixformer: video classification whose cost grows linearly with the length and resolution of the video.

The public names are imported on first use, so that `import fixformer` does not pay for torch.
"""

import json
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

if TYPE_CHECKING:
    from fixformer.bench.capacity import plan
    from fixformer.evaluation.evaluate import evaluate
    from fixformer.evaluation.predictor import load, predict
    from fixformer.experiments.ablate import ablate
    from fixformer.labelling.corpus import label
    from fixformer.models.registry import create_model, list_models
    from fixformer.training.cross_validation import cross_validate
    from fixformer.training.run import train


def _installed_version() -> str:
    """The version of the installed package, unless this is another copy: a source tree on the path may hide it."""
    try:
        installed = distribution("fixformer")
    except PackageNotFoundError:
        return "0+unknown"
    package = Path(__file__).resolve().parent
    if Path(str(installed.locate_file("fixformer"))).resolve() == package:
        return installed.version
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    source_tree = Path(unquote(urlparse(origin.get("url", "")).path)).resolve()
    is_editable = origin.get("dir_info", {}).get("editable", False) and package.is_relative_to(source_tree)
    return installed.version if is_editable else "0+unknown"


__version__ = _installed_version()

_MODULES = {
    "ablate": "fixformer.experiments.ablate",
    "create_model": "fixformer.models.registry",
    "cross_validate": "fixformer.training.cross_validation",
    "evaluate": "fixformer.evaluation.evaluate",
    "export": "fixformer",
    "label": "fixformer.labelling.corpus",
    "list_models": "fixformer.models.registry",
    "load": "fixformer.evaluation.predictor",
    "plan": "fixformer.bench.capacity",
    "predict": "fixformer.evaluation.predictor",
    "train": "fixformer.training.run",
}

__all__ = [
    "__version__",
    "ablate",
    "create_model",
    "cross_validate",
    "evaluate",
    "export",
    "label",
    "list_models",
    "load",
    "plan",
    "predict",
    "train",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'fixformer' has no attribute {name!r}")
    if name == "export":  # the package itself, which can be called
        return import_module("fixformer.export")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
