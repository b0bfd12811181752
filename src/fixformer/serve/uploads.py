"""The body of a request as a file in a private directory, deleted with the request; nothing of it is kept in memory.

A body is the video itself, or a form (multipart/form-data) with one file. What the client calls the file is shown,
never used as a path.
"""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from fixformer.runtime.console import printable
from fixformer.runtime.files import new_file
from fixformer.serve.counters import Metrics
from fixformer.serve.refusal import Refusal
from fixformer.serve.settings import ServeSettings

RAW_TYPES = ("application/octet-stream", "video/", "image/gif", "")
LONGEST_NAME = 200
DRAIN_BYTES, DRAIN_SECONDS = 64 << 20, 5.0
_FORM_ROOM = 1 << 20  # bytes of a form beside its file


@asynccontextmanager
async def received(
    request: Request, folder: Path, settings: ServeSettings, metrics: Metrics
) -> AsyncIterator[tuple[Path, str]]:
    """The uploaded file and its name; a `Refusal` if it is too large, too slow, empty or none."""
    path = folder / uuid.uuid4().hex
    try:
        with new_file(path) as file:
            try:
                async with asyncio.timeout(settings.upload_seconds):
                    name = await _receive(request, file, settings, metrics)
            except ClientDisconnect:
                raise Refusal(499, "gone", "the client closed the connection.") from None
            except TimeoutError:
                sentence = f"the upload took longer than {settings.upload_seconds:g} s; send a smaller file."
                raise Refusal(408, "slow_upload", sentence) from None
            if file.tell() == 0:
                raise Refusal(400, "empty", f"{name}: the file is empty; send a video.")
        yield path, name
    finally:
        with suppress(FileNotFoundError):
            os.unlink(path)


async def _receive(request: Request, file: BinaryIO, settings: ServeSettings, metrics: Metrics) -> str:
    header = request.headers.get("content-type", "")
    kind, options = parse_options_header(header)
    media = kind.decode("latin-1").lower()
    limit, form = settings.upload_bytes, None
    if media == "multipart/form-data":
        form = _Form(options.get(b"boundary", b""), file)
        limit += _FORM_ROOM
    elif not any(media == known or (known.endswith("/") and media.startswith(known)) for known in RAW_TYPES):
        shown = repr(printable(header)[:100])
        raise Refusal(415, "media_type", f"a body of type {shown}: expected a video or a form with one.")
    sentence = f"the upload exceeds the limit of {settings.upload_mb:g} MB; send a smaller file."
    too_large = Refusal(413, "too_large", sentence)
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced[:20]) > limit:
        raise too_large
    count = 0
    async for chunk in request.stream():
        count += len(chunk)
        metrics.bytes.inc(len(chunk))
        if count > limit:
            raise too_large
        form.feed(chunk) if form else file.write(chunk)
    if form and file.tell() > settings.upload_bytes:
        raise too_large
    return form.finish() if form else shown_name(request.headers.get("x-file-name", ""))


def shown_name(name: str) -> str:
    """The last part of a name, without what acts on a page or a terminal."""
    last = PurePosixPath(name.replace("\\", "/")).name
    return printable(last)[:LONGEST_NAME] or "video"


class _Form:
    """Writes the file of a form that is fed in pieces, and remembers its name."""

    def __init__(self, boundary: bytes, file: BinaryIO) -> None:
        self._file, self._is_complete = file, False
        self._name: str | None = None
        self._field, self._value = b"", b""
        self._headers: dict[bytes, bytes] = {}
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._headers.clear,
                    "on_header_field": self._on_field,
                    "on_header_value": self._on_value,
                    "on_header_end": self._on_header_end,
                    "on_headers_finished": self._on_part,
                    "on_part_data": self._on_data,
                    "on_end": self._on_end,
                },
            )
        except FormParserError as error:
            raise _bad_form(error) from None

    def feed(self, chunk: bytes) -> None:
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise _bad_form(error) from None

    def finish(self) -> str:
        if not self._is_complete or self._name is None:
            raise Refusal(400, "form", "the form ends early or holds no file; send one field 'file' with a video.")
        return self._name

    def _on_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _on_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        self._headers[self._field.lower()] = self._value
        self._field = self._value = b""

    def _on_part(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        if options.get(b"name") != b"file" or self._name is not None:
            raise Refusal(400, "form", "the form has other fields; send one field 'file' with a video.")
        self._name = shown_name(options.get(b"filename", b"").decode("utf-8", "replace"))

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        self._file.write(data[start:end])

    def _on_end(self) -> None:
        self._is_complete = True


def _bad_form(error: Exception) -> Refusal:
    return Refusal(400, "form", f"the form is damaged ({printable(str(error))[:100]}); send multipart/form-data.")


async def drain(request: Request) -> None:
    """Read what the client still sends, up to a limit, so that it gets to read the answer.

    If a connection is closed while data arrives, the client's system throws the answer away.
    """
    if "100-continue" in request.headers.get("expect", "").lower():
        return  # such a client waits for the answer before it sends
    count = 0
    with suppress(TimeoutError, ClientDisconnect, RuntimeError):  # the latter if the body was read before
        async with asyncio.timeout(DRAIN_SECONDS):
            async for chunk in request.stream():
                count += len(chunk)
                if count > DRAIN_BYTES:
                    return
