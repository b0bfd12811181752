"""How a trained model is scored: which views of a video, and how their scores are combined."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from fixformer.config.schema import Count, Expect, Settings, coerce, int_between

Aggregate = Literal["logits", "probabilities"]
# Up to 999 clips: papers use 1 to 10, and a video seldom has so many different ones.
VIEWS = re.compile(r"([1-9][0-9]{0,2})x([13])")
Views = Annotated[str, Expect("CLIPSxCROPS with 1 to 999 clips and 1 or 3 crops, such as 2x3", VIEWS.fullmatch)]
# The videos of a batch are in memory at the same time.
BatchSize = Annotated[int, int_between(1, 65_536)]


@dataclass(frozen=True)
class EvalConfig(Settings):
    """Settings of an evaluation.

    Args:
        views: CLIPSxCROPS, such as "2x3"; crops are 1 (centre) or 3.
        aggregate: sum the "logits" of the views, or average their "probabilities".
        batch_size: videos at a time.
        every: epochs between evaluations during training; 0 evaluates at the end only.
        baselines: after training, also score linear classifiers on pixels and on image features; a minute at most.
    """

    views: Views = "1x1"
    aggregate: Aggregate = "logits"
    batch_size: BatchSize = 8
    every: Count = 1
    baselines: bool = False


def parse_views(text: str) -> tuple[int, int]:
    """Clips and crops of "2x3"."""
    clips, crops = coerce(text, Views, "views").split("x")
    return int(clips), int(crops)
