"""How a trained model is scored: which views of a video, and how their scores become one. No torch here."""

import re
from dataclasses import dataclass
from typing import Literal

from fixformer.errors import UserError

Aggregate = Literal["logits", "probabilities"]


@dataclass(frozen=True)
class EvalConfig:
    """Settings of an evaluation.

    Args:
        views: CLIPSxCROPS, such as "2x3"; crops are 1 (centre) or 3.
        aggregate: sum the "logits" of the views, or average their "probabilities".
        batch_size: videos at a time.
        every: epochs between evaluations during training; 0 evaluates at the end only.
    """

    views: str = "1x1"
    aggregate: Aggregate = "logits"
    batch_size: int = 8
    every: int = 1

    def validate(self) -> None:
        parse_views(self.views)
        if self.batch_size < 1:
            raise UserError(f"eval.batch_size={self.batch_size}: at least 1 is needed.")
        if self.every < 0:
            raise UserError(f"eval.every={self.every}: at least 0 is needed.")


def parse_views(text: str) -> tuple[int, int]:
    """Clips and crops of "2x3"."""
    match = re.fullmatch(r"(\d+)x(\d+)", text)
    if match is None or int(match[1]) < 1 or int(match[2]) not in (1, 3):
        raise UserError(f"views={text!r}: write CLIPSxCROPS with 1 or 3 crops, such as 2x3.")
    return int(match[1]), int(match[2])
