"""The rooms of the package: what each holds and what it may import; `python tools/rooms.py` draws docs/rooms.svg.

tests/test_imports.py checks the source against this table, and that the picture is up to date.
"""

from html import escape
from pathlib import Path
from typing import NamedTuple

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "rooms.svg"


class Room(NamedTuple):
    """`holds` is the text in the picture; `imports` are the rooms it may import beside itself and `errors`."""

    holds: str
    imports: frozenset[str]


def _room(holds: str, *imports: str) -> Room:
    return Room(holds, frozenset(imports))


_DATA_BASE = ("config", "runtime")
_BELOW_CLI = (
    *("config", "runtime", "models", "data", "evaluation", "training", "labelling", "bench", "diagnosis", "export"),
    *("serve", "experiments"),
)

ROOMS: dict[str, Room] = {
    "config": _room("settings, schema, recipes"),
    "ops": _room("the mathematics"),
    "runtime": _room("files, progress, processes, signals", "config"),
    "models/layers": _room("embeddings, MLPs, heads, dropout"),
    "models/attention": _room("module, kinds, fixation, shifts", "config", "ops", "models/layers"),
    "models": _room(
        "the video Transformer, presets, cost, checkpoints",
        *("config", "ops", "runtime", "models/layers", "models/attention"),
    ),
    "models/zoo/common": _room("parts", "config", "ops", "models", "models/layers", "models/attention"),
    "models/zoo": _room(
        "compared systems", "config", "ops", "models", "models/layers", "models/attention", "models/zoo/common"
    ),
    "models/weights": _room(
        "public weights", "config", "runtime", "models", "models/layers", "models/attention", "models/zoo"
    ),
    "data": _room(""),
    "data/video": _room("decoders: files to frames", *_DATA_BASE),
    "data/listing": _room("layouts to one index", *_DATA_BASE, "data/video"),
    "data/clips": _room("sampling, augmentation, views", *_DATA_BASE, "data/video", "data/listing"),
    "data/loading": _room("batches, cache, shards", *_DATA_BASE, "data/video", "data/listing", "data/clips"),
    "data/audit": _room("check a data set", *_DATA_BASE, "data/video", "data/listing", "data/clips"),
    "data/prepare": _room("re-encode,\nwrite shards", *_DATA_BASE, "data/video", "data/listing", "data/clips"),
    "data/synthetic": _room("motions set", *_DATA_BASE, "data/video", "data/listing", "data/clips"),
    "evaluation/timeline": _room("long videos", *_DATA_BASE, "data/video", "data/clips", "models", "models/layers"),
    "evaluation/explain": _room(
        "attention, occlusion", *_DATA_BASE, "ops", "data/video", "data/clips", "models", "models/attention"
    ),
    "evaluation": _room(
        "scores, metrics, report, predictor",
        *("config", "runtime", "models", "data", "evaluation/timeline", "evaluation/explain"),
    ),
    "training": _room("run, trainer, checkpoint store", "config", "runtime", "models", "data", "evaluation"),
    "labelling": _room("corpora: local and Ray", "config", "runtime", "models", "data", "evaluation"),
    "export": _room("ONNX, torch, Hugging Face", "config", "runtime", "models", "data", "evaluation"),
    "serve": _room("page and HTTP interface", "config", "runtime", "models", "data", "evaluation"),
    "bench": _room("measurements", "config", "runtime", "models", "data", "evaluation", "training"),
    "experiments": _room("studies, statistics", "config", "runtime", "models", "data", "evaluation", "training"),
    "diagnosis": _room("doctor", "config", "runtime", "models", "data"),
    "cli": _room("verbs and what they print", *_BELOW_CLI),
}
# These rooms may import every room inside the ones they name.
UPPER_FLOORS = ("evaluation", "training", "labelling", "export", "serve", "bench", "experiments", "diagnosis", "cli")

# Room -> left, top, width, height in the picture; a room that holds others is drawn first.
_PLACES = {
    "cli": (20, 16, 173, 48),
    "serve": (207, 16, 173, 48),
    "experiments": (393, 16, 173, 48),
    "bench": (580, 16, 173, 48),
    "diagnosis": (767, 16, 173, 48),
    "training": (20, 84, 298, 48),
    "labelling": (331, 84, 298, 48),
    "export": (642, 84, 298, 48),
    "evaluation": (20, 152, 920, 48),
    "evaluation/timeline": (640, 154, 144, 44),
    "evaluation/explain": (790, 154, 144, 44),
    "data": (20, 220, 450, 236),
    "data/loading": (34, 252, 205, 56),
    "data/audit": (251, 252, 205, 56),
    "data/prepare": (251, 318, 98, 56),
    "data/synthetic": (358, 318, 98, 56),
    "data/clips": (34, 318, 205, 56),
    "data/listing": (251, 384, 205, 56),
    "data/video": (34, 384, 205, 56),
    "models": (490, 220, 450, 236),
    "models/weights": (504, 268, 205, 48),
    "models/zoo": (721, 268, 205, 110),
    "models/zoo/common": (735, 318, 177, 48),
    "models/attention": (504, 330, 205, 48),
    "models/layers": (504, 392, 422, 48),
    "config": (20, 476, 294, 48),
    "runtime": (333, 476, 294, 48),
    "ops": (646, 476, 294, 48),
}
_SMALL = 'font-size="12" fill="#445"'
_FILL = {"data": "#eef4fb", "models": "#f6f1e7"}


def draw() -> str:
    """The picture as SVG text."""
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 560" font-family="system-ui, sans-serif">',
        '<rect width="960" height="560" fill="white"/>',
    ]
    for name, (left, top, width, height) in _PLACES.items():
        box = f'x="{left}" y="{top}" width="{width}" height="{height}" rx="6"'
        parts.append(f'<rect {box} fill="{_FILL.get(name, "white")}" stroke="#5b6b7b"/>')
        title, *rows = [f"{name.rpartition('/')[2]}/", *filter(None, ROOMS[name].holds.split("\n"))]
        parts.append(_text(left + width / 2, top + 22, title, 'font-size="15" font-weight="600"'))
        parts += [_text(left + width / 2, top + 39 + 13 * i, row, _SMALL) for i, row in enumerate(rows)]
    parts.append(
        _text(480, 546, "imports point down (tools/rooms.py says exactly how); errors.py is below everything", _SMALL)
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _text(x: float, y: float, words: str, style: str) -> str:
    return f'<text x="{x:g}" y="{y}" text-anchor="middle" {style}>{escape(words)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(draw())
