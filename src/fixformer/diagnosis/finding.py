"""One line of `fixformer doctor`."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

# "absent" is something optional that is not there; "broken" means that fixformer cannot do its work.
State = Literal["ok", "absent", "broken"]


@dataclass(frozen=True)
class Finding:
    """What was found about one thing; `remedy` is the command that mends it, if anything needs mending."""

    topic: str
    name: str
    state: State
    detail: str
    remedy: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
