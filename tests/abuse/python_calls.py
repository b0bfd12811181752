"""Calls of the Python interface, with arguments that are right but for one or two."""

import random
from typing import Any

from nasty_text import any_text
from playground import TINY

RUN = {name: value for name, _, value in (word.partition("=") for word in TINY)}
EVALUATION = {"checkpoint": "run", "data": "folders", "views": "1x1", "aggregate": "logits", "split": "val"}
ENCODING = {"short_side": 32, "keyframes": 4, "quality": 20, "workers": 1}
LABELLING = {"format": "parquet", "views": "1x1", "top_k": 2, "limit": 4, "workers": 0, "threads": 1, "device": "cpu"}
CALLS: dict[str, dict[str, Any]] = {
    "fixformer.create_model": {"name": "fixformer_tiny", "num_classes": 3, "depth": 1, "attention": "linear"},
    "fixformer.list_models": {"pattern": "fix*"},
    "fixformer.load": {"checkpoint": "run", "device": "cpu"},
    "fixformer.predict": {"checkpoint": "run", "file": "good.mp4", "views": "1x1", "top_k": 2, "device": "cpu"},
    "fixformer.export.onnx_predict.load_onnx": {"path": "good.mp4", "threads": 1},
    "fixformer.evaluate": {**EVALUATION, "batch_size": 2, "workers": 0, "device": "cpu", "output": "out/eval"},
    "fixformer.train": {"recipe": "demo", "data": "folders", "output": "out/run", **RUN, "data.kind": "folders"},
    "fixformer.plan": {"name": "fixformer_tiny", "memory": "1GB", "device": "cuda:7", "depth": 1},
    "fixformer.label": {"source": "folders", "checkpoint": "run", "out": "out/labels", **LABELLING},
    "fixformer.data.listing.load_index": {"path": "folders", "kind": "folders", "seed": 0, "val_fraction": 0.2},
    "fixformer.data.video.open_video": {"source": "good.mp4", "backend": "pyav", "policy": "strict"},
    "fixformer.data.audit.check.check": {"data": "folders", "kind": "auto", "min_frames": 8, "workers": 1},
    "fixformer.data.prepare.prepare.prepare": {"src": "folders", "dst": "out/p", **ENCODING},
    "fixformer.models.cost.cost": {"name": "fixformer_tiny", "frames": 4, "size": 32},
}
OBJECTS: tuple[Any, ...] = (
    *(None, True, 0, 1, -1, 2.5, 10**9, 2**64, float("inf"), "", "x", "none", "max", "lax", b"", b"x"),
    *([], ["a"], {}, (1, 2), 1j),
)


def random_call(rng: random.Random, paths: tuple[str, ...]) -> tuple[str, str]:
    """A public function with one or two arguments of a random value, often of another type."""
    name = rng.choice(list(CALLS))
    arguments = dict(CALLS[name])
    for _ in range(rng.choice((1, 1, 2))):
        texts = (rng.choice(paths), any_text(rng).replace("\0", ""))
        arguments[rng.choice(list(arguments))] = rng.choice((*rng.choices(OBJECTS, k=2), *texts))
    return name, repr(arguments).replace("inf", "1e999")
