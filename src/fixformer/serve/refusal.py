"""An answer other than the one that was asked for: a status, a code for programs and a sentence for people."""

from typing import Any

from fixformer.errors import Portable


class Refusal(Portable):
    """Raised where a request cannot be answered; `interface` makes the response of it."""

    def __init__(self, status: int, code: str, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.retry_after = status, code, message, retry_after

    def to_json(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message}}

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}


def not_ready(message: str = "the model is being loaded; try again in a few seconds.") -> Refusal:
    return Refusal(503, "not_ready", message, retry_after=3)
