"""How a trained model is scored: which views of a video, and how their scores are combined."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from fixformer.config.schema import Count, Expect, PositiveInt, Settings, coerce

Aggregate = Literal["logits", "probabilities"]
VIEWS = re.compile(r"([1-9]\d*)x([13])")
Views = Annotated[str, Expect("CLIPSxCROPS with 1 or 3 crops, such as 2x3", VIEWS.fullmatch)]


@dataclass(frozen=True)
class EvalConfig(Settings):
    """Settings of an evaluation.

    Args:
        views: CLIPSxCROPS, such as "2x3"; crops are 1 (centre) or 3.
        aggregate: sum the "logits" of the views, or average their "probabilities".
        batch_size: videos at a time.
        every: epochs between evaluations during training; 0 evaluates at the end only.
    """

    views: Views = "1x1"
    aggregate: Aggregate = "logits"
    batch_size: PositiveInt = 8
    every: Count = 1


def parse_views(text: str) -> tuple[int, int]:
    """Clips and crops of "2x3"."""
    clips, crops = coerce(text, Views, "views").split("x")
    return int(clips), int(crops)
