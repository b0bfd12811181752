"""Wherever a function takes one of several words, another word is an error and never the last `else`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import fixformer
from fixformer.errors import UnknownName
from fixformer.evaluation.scores import combine
from fixformer.ops import linear_attention
from fixformer.ops.performer import orthogonal_projection

SOURCE = Path(fixformer.__file__).parent

# Functions that hand the word on to one that checks it, or get it from one that has.
UNCHECKED = {
    "bench/capacity.py::find_laws": "from plan",
    "bench/capacity_law.py::__init__": "from plan",
    "bench/capacity_law.py::measure_law": "from plan",
    "bench/capacity_law.py::unit": "from a Law",
    "data/audit/probe.py::_probe": "to open_video",
    "data/clips/frames.py::open_frames": "to open_video",
    "data/clips/views.py::file_views": "to open_video",
    "data/loading/reader.py::__init__": "to open_video",
    "data/video/image_folder.py::__init__": "from open_video",
    "data/video/pyav_decoder.py::__init__": "from open_video",
    "data/video/torchcodec_decoder.py::__init__": "from open_video",
    "data/clips/transforms.py::scaled_to": "from a ClipSpec",
    "evaluation/scores.py::of": "to combine",
    "models/attention/kinds.py::__init__": "to linear_attention",
    "ops/cosformer.py::cosformer_attention": "to linear_attention",
    "ops/performer.py::performer_attention": "to linear_attention",
    "runtime/files.py::open_file": "to open",
    # ops imports no schema; the last test here
    "ops/inline.py::inline_attention": "to weighted_sums",
    "ops/linear_attention.py::linear_attention": "to resolve_product_order",
    "ops/linear_attention.py::linear_attention_gradients": "from linear_attention",
    "ops/linear_attention.py::resolve_product_order": "checks it itself",
    "ops/linear_attention.py::weighted_sums": "to resolve_product_order",
    "ops/mala.py::mala_attention": "to weighted_sums",
    "ops/polar.py::polar_attention": "to linear_attention",
    "ops/rank.py::rank_attention": "to linear_attention",
    "ops/performer.py::orthogonal_projection": "checks it itself",
}


def choices() -> set[str]:
    """The names of all types that are a choice of words."""
    trees = (ast.parse(path.read_text()) for path in SOURCE.rglob("*.py"))
    found = (node for tree in trees for node in tree.body if isinstance(node, ast.Assign) and _is_literal(node.value))
    return {target.id for node in found for target in node.targets if isinstance(target, ast.Name)}


def _is_literal(node: ast.expr) -> bool:
    return any(isinstance(inner, ast.Name) and inner.id == "Literal" for inner in ast.walk(node))


def takers() -> Iterator[tuple[str, bool]]:
    """Every function with such a parameter, and whether it is `checked`."""
    names = choices() | {"Literal"}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                hints = [hint for argument in arguments if (hint := argument.annotation) is not None]
                words = {inner.id for hint in hints for inner in ast.walk(hint) if isinstance(inner, ast.Name)}
                if words & names:
                    is_checked = any(isinstance(d, ast.Name) and d.id == "checked" for d in node.decorator_list)
                    yield f"{path.relative_to(SOURCE).as_posix()}::{node.name}", is_checked


def test_every_function_that_takes_one_of_several_words_checks_it() -> None:
    outside = [place for place, is_checked in takers() if not is_checked and not place.startswith("cli/")]
    assert set(outside) <= UNCHECKED.keys()
    assert sum(is_checked for _, is_checked in takers()) >= 5


def test_another_word_is_named() -> None:
    q = torch.ones(1, 1, 2, 4)
    with pytest.raises(UnknownName, match="product_order 'fastest'"):
        linear_attention(q, q, q, product_order="fastest")  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="scaling 'none'"):
        orthogonal_projection(4, 4, scaling="none")  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="aggregate 'max'"):
        combine(torch.ones(1, 2, 3), "max")  # type: ignore[arg-type]
