"""Write the table of models that `fixformer models` prints; tests/models/test_model_table.py keeps it true."""

from typing import Any

import torch

from fixformer.models.cost import count_params
from fixformer.models.model_table import FILE
from fixformer.models.registry import create_model, describe, list_models
from fixformer.runtime.files import write_json


def make_row(name: str) -> dict[str, Any]:
    with torch.device("meta"):
        model = create_model(name)
    sizes = {"frames": model.num_frames, "size": model.image_size, "classes": model.num_classes}
    return {"model": name, "params": count_params(model), **sizes, "about": describe(name)}


if __name__ == "__main__":
    write_json(FILE, [make_row(name) for name in list_models()])
