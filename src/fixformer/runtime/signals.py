"""Graceful shutdown: SIGTERM and the first Ctrl-C let a run save before it stops, a second Ctrl-C stops at once."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Self

from fixformer.errors import Interrupted

HANDLED = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """True once a signal has arrived inside its `with` block. Workers forked inside the block ignore the signal too."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._previous_handlers: dict[int, object] = {}

    def __bool__(self) -> bool:
        return self.signal is not None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous_handlers = {number: signal.signal(number, self._handle) for number in HANDLED}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal == signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number

    def interruption(self, message: str) -> Interrupted:
        """The exception to raise. A process that stops because another one got the signal reports SIGTERM."""
        return Interrupted(self.signal or signal.SIGTERM, message)


NEVER_STOP = StopRequest()
