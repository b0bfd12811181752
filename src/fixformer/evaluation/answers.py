"""What prediction answers, whatever computes it: guesses, or why there are none. No torch here."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from fixformer.errors import InputError, UserError, explain
from fixformer.evaluation.sources import name_of

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


def check_part(start: float | None, end: float | None) -> None:
    """Raise if the part of a video ends before it starts."""
    if start is not None and end is not None and start >= end:
        raise InputError(f"start={start} and end={end}: expected a start before the end.")


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


class PredictionError(UserError):
    """Why a video could not be classified; takes the place of its prediction."""

    def __init__(self, file: str, reason: Exception) -> None:
        text = (explain(reason) or str(reason)).rstrip(".") or type(reason).__name__
        super().__init__(text if file and text.startswith(file) else f"{file}: {text}")
        self.file = file

    def to_json(self) -> dict[str, Any]:
        return {"file": self.file, "error": str(self)}


def answer_each(predict: Callable[[Any], T], sources: Iterable[Any]) -> Iterator[T | PredictionError]:
    """What `predict` says of each source; for one that cannot be classified, the error in place of it."""
    for source in sources:
        try:
            yield predict(source)
        except (UserError, OSError, MemoryError, RuntimeError) as error:
            if explain(error) is None:  # a bug: torch has the same type for it as for an allocation that fails
                raise
            yield PredictionError(name_of(source), error)
