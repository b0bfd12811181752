"""Being asked to stop: SIGTERM and the first Ctrl-C let the work at hand be saved, a second Ctrl-C does not wait."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Self

from fixformer.errors import Stopped

HANDLED = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Remembers a signal instead of dying of it; workers forked inside the block remember it too, and so survive it."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._before: dict[int, object] = {}

    def __bool__(self) -> bool:
        return self.number is not None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in HANDLED}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.number == signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = number

    def stopped(self, message: str) -> Stopped:
        """To raise; a process that was not asked itself stops like one that was asked by the system."""
        return Stopped(self.number or signal.SIGTERM, message)


NEVER = StopRequest()
