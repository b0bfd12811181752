"""What an exported graph says about itself: labels, clip and views, as text in its metadata. No torch here."""

import json
from dataclasses import dataclass
from typing import Any

from fixformer.config import ClipSpec, EvalConfig
from fixformer.config.data import Backend
from fixformer.config.schema import coerce, dump, load
from fixformer.data.video import Policy
from fixformer.errors import UserError
from fixformer.runtime.files import parse_json

KEY = "fixformer"
FORMAT = 1
# For people and for programs that know nothing of this package.
FRAMES_TEXT = "uint8 RGB frames [batch, time, height, width, 3] of any height and width, chosen by the sampling rule"
KEPT_TEXT = (
    "; in training they were first scaled to a short side of {} pixels by FFmpeg's bilinear filter: feed them so for "
    "the very numbers of fixformer, or in full size, which the graph scales itself and nearly the same"
)


@dataclass(frozen=True)
class ExportInfo:
    """What is needed beside the graph to classify a video as the checkpoint does."""

    model: str
    labels: list[str]
    clip: ClipSpec
    scoring: EvalConfig
    backend: Backend = "pyav"
    damaged: Policy = "strict"

    def to_texts(self) -> dict[str, str]:
        """The metadata of the graph."""
        spec = self.clip
        values = {
            "format": FORMAT,
            "model": self.model,
            "labels": self.labels,
            "clip": dump(spec),
            "eval": dump(self.scoring),
            "backend": self.backend,
            "damaged": self.damaged,
        }
        kept = KEPT_TEXT.format(spec.keep_short_side) if spec.keep_short_side else ""
        return {
            KEY: json.dumps(values, allow_nan=False),
            "labels": json.dumps(self.labels),
            "views": self.scoring.views,
            "sampling": f"{spec.frames} frames, {sampling_rule(spec)}",
            "input": FRAMES_TEXT + kept,
        }

    @staticmethod
    def from_texts(texts: dict[str, str], file: str) -> "ExportInfo":
        """The same of a file, which may come from anywhere."""
        if KEY not in texts:
            raise UserError(f"{file} was not made by fixformer export; it does not say how its clips are chosen.")
        try:
            return _read(parse_json(texts[KEY]))
        except KeyError as error:
            problem = f"{error} is missing"
        except (ValueError, TypeError) as error:
            problem = str(error).rstrip(".")
        raise UserError(f"the metadata of {file} is damaged ({problem}); export the model again.")


def _read(values: Any) -> ExportInfo:
    if not isinstance(values, dict) or values["format"] != FORMAT:
        raise ValueError(f"expected a table of format {FORMAT}")
    labels = values["labels"]
    if not isinstance(labels, list) or not labels or not all(isinstance(name, str) for name in labels):
        raise ValueError("labels: expected a list of names")
    return ExportInfo(
        coerce(values["model"], str, "model"),
        labels,
        load(ClipSpec, values["clip"], "clip"),
        load(EvalConfig, values["eval"], "eval"),
        coerce(values["backend"], Backend, "backend"),
        coerce(values["damaged"], Policy, "damaged"),
    )


def sampling_rule(spec: ClipSpec) -> str:
    """In words, which frames of a video the first view takes."""
    kept = f" of at most {spec.keep_frames} evenly spaced ones" if spec.keep_frames else ""
    if spec.sampling == "uniform":
        return f"the middle of as many equal segments of the video{kept}"
    rate = f" at {spec.fps:g} frames a second" if spec.fps else ""
    return f"{spec.stride} apart{rate}{kept}, from the beginning of the video"
