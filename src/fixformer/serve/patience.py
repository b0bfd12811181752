"""HTTP connections that close if the headers of a request do not arrive in time, which uvicorn's wait for for ever."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


def protocol(seconds: float) -> type[asyncio.Protocol]:
    """uvicorn's protocol with this much patience."""

    class Patient(H11Protocol):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._start()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:  # a request is being answered
                self._stop()
            elif self._deadline is None:
                self._start()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def _start(self) -> None:
            self._deadline = self.loop.call_later(seconds, self._give_up)

        def _stop(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _give_up(self) -> None:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

    return Patient
