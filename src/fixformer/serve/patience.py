"""HTTP connections that close if a client keeps them waiting: with its headers, or with reading what it asked for.

uvicorn waits for both for ever.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


def protocol(seconds: float) -> type[asyncio.Protocol]:
    """uvicorn's protocol with this much patience."""

    class Patient(H11Protocol):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._headers = _Timer(self.loop, seconds, self._without_request)
            self._reader = _Timer(self.loop, seconds, self._without_reader)

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._headers.start()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:  # a request is being answered
                self._headers.stop()
            else:
                self._headers.start()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._reader.start()

        def resume_writing(self) -> None:
            super().resume_writing()
            self._reader.stop()

        def connection_lost(self, exc: Exception | None) -> None:
            self._headers.stop()
            self._reader.stop()
            super().connection_lost(exc)

        def _without_request(self) -> None:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

        def _without_reader(self) -> None:
            self.transport.abort()  # to close it would wait for the reader, too

    return Patient


class _Timer:
    """Calls a function if it is not stopped in time; starting it again does not give more time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, call: Any) -> None:
        self._loop, self._seconds, self._call = loop, seconds, call
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._handle is None:
            self._handle = self._loop.call_later(self._seconds, self._call)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
