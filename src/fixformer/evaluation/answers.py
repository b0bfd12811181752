"""What prediction answers, whatever computes it: guesses, or why there are none. No torch here."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Guess:
    """A label and its probability."""

    label: str
    probability: float


@dataclass(frozen=True)
class Prediction:
    """The best guesses for one video, best first. `scores_K` are the combined scores of all classes."""

    file: str
    views: str
    guesses: list[Guess]
    scores_K: "Tensor"

    @property
    def label(self) -> str:
        return self.guesses[0].label

    def to_json(self) -> dict[str, Any]:
        top = [{"label": guess.label, "probability": guess.probability} for guess in self.guesses]
        return {"file": self.file, "views": self.views, "top": top}
