"""README.md for a model that is shared: what it is, what it scored, by which protocol, and how to use it."""

import json
from pathlib import Path
from typing import Any

from fixformer.config import ClipSpec
from fixformer.config.schema import load
from fixformer.errors import UserError
from fixformer.evaluation.evaluate import EVALUATION_FILE
from fixformer.evaluation.predictor import Classifier
from fixformer.export.metadata import sampling_rule
from fixformer.models.checkpoint import find_checkpoint
from fixformer.runtime.console import printable
from fixformer.runtime.files import read_json

CARD = "README.md"
MOST_LABELS = 100  # that are listed


def about(classifier: Classifier, checkpoint: str | Path) -> dict[str, Any]:
    """What a card tells beside the settings: recipe, data, versions, and the score if it is of this very checkpoint."""
    info = classifier.info
    told: dict[str, Any] = {"versions": info.versions, "commit": info.commit, "step": info.step}
    if info.is_trained:
        told |= {"recipe": info.config.recipe, "data": Path(info.config.data.path).name}
    folder = find_checkpoint(checkpoint)
    for run in (folder.parent, folder.resolve().parent.parent):
        try:
            values = read_json(run / "evaluation" / EVALUATION_FILE)
            if values["protocol"]["step"] == info.step and values["labels"] == info.labels:
                return told | {"protocol": values["protocol_line"], "metrics": values["metrics"]}
        except (UserError, KeyError, TypeError):
            continue
    return told


def model_card(config: dict[str, Any]) -> str:
    """The text, from the values of `config.json`; names are from anywhere, and stay text."""
    told, labels = config.get("about") or {}, [str(name) for name in config["id2label"].values()]
    spec = load(ClipSpec, config["clip"] or {}, "clip")
    head: dict[str, Any] = {
        "library_name": "fixformer",
        "pipeline_tag": "video-classification",
        "tags": ["fixformer", "video"],
    }
    if "metrics" in told:
        head["model-index"] = [_index(config["model_name"], told)]
    parts = [
        # JSON is YAML, and its strings need no further escapes
        "---\n" + "\n".join(f"{name}: {json.dumps(value)}" for name, value in head.items()) + "\n---",
        f"# {_text(config['model_name'])}: {len(labels)} classes of video",
        _training(told),
        _score(told),
        '## Use\n\n```python\nimport fixformer.export.hugging_face  # pip install "fixformer[hf]"\n'
        "import transformers\n\n"
        'classify = transformers.pipeline("video-classification", "THIS REPOSITORY")\nclassify("clip.mp4")\n```\n\n'
        f"A clip is {spec.frames} frames ({sampling_rule(spec)}) at {spec.size} x {spec.size} pixels. The processor "
        "reads the video file itself, so that a video is prepared exactly as in training.",
        "## Limits\n\nIt names one of the classes below for every video, also for one that shows none of them, and its "
        "probabilities are those of videos like the ones it was trained on. It has not been tested for anything else.",
        "## Classes\n\n" + ", ".join(map(_text, labels[:MOST_LABELS])) + (" …" if len(labels) > MOST_LABELS else ""),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _training(told: dict[str, Any]) -> str:
    versions = ", ".join(f"{_text(name)} {_text(number)}" for name, number in (told.get("versions") or {}).items())
    made = f" with {versions}" if versions else ""
    if "recipe" not in told:
        return f"Not trained by fixformer{made}."
    return (
        f"Trained on the data set {_text(told['data'])} by the recipe {_text(told['recipe'])} of "
        f"[fixformer](https://github.com/fixformer/fixformer){made}, step {told['step']}, "
        f"commit {_text(told['commit'] or 'unknown')}."
    )


def _score(told: dict[str, Any]) -> str:
    if "metrics" not in told:
        return "## Score\n\nNo evaluation came with this checkpoint."
    one, five = (100 * told["metrics"][name] for name in ("video_top1", "video_top5"))
    protocol = printable(told["protocol"]).replace("`", "'")
    return f"## Score\n\nTop-1 {one:.1f} %, top-5 {five:.1f} %.\n\n`{protocol}`"


def _index(name: str, told: dict[str, Any]) -> dict[str, Any]:
    """The score where the hub looks for it."""
    data = {"name": told.get("data", ""), "type": told.get("data", "")}
    value = {"type": "accuracy", "value": told["metrics"]["video_top1"], "name": told["protocol"]}
    return {"name": name, "results": [{"task": {"type": "video-classification"}, "dataset": data, "metrics": [value]}]}


def _text(value: object) -> str:
    """A name without what Markdown or HTML would obey."""
    safe = printable(str(value))
    for sign in "\\`*_[]<>|#&":
        safe = safe.replace(sign, f"\\{sign}" if sign not in "<>&" else {"<": "&lt;", ">": "&gt;", "&": "&amp;"}[sign])
    return safe
