"""Trained models for other programs: ONNX, int8, torch.export and Hugging Face, each with the preprocessing in it.

`fixformer.export` is both this package and its one verb, so it can be called.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    """Calls `fixformer.export.export_model.export`, which is imported then: it needs torch, `onnx_predict` does not."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return import_module("fixformer.export.export_model").export(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage
