"""Messages between the processes: JSON behind its length in four bytes."""

import asyncio
import json
import socket
import struct
from typing import Any

_LENGTH = struct.Struct("!I")
MOST_BYTES = 256 << 20  # an explanation of many large frames has some tens of megabytes


def pack(message: dict[str, Any]) -> bytes:
    data = json.dumps(message, allow_nan=False).encode()
    if len(data) > MOST_BYTES:
        raise ValueError(f"a message of {len(data)} bytes")
    return _LENGTH.pack(len(data)) + data


def send(channel: socket.socket, message: dict[str, Any]) -> None:
    channel.sendall(pack(message))


def receive(channel: socket.socket) -> dict[str, Any] | None:
    """The next message; None if the other side is gone."""
    head = _read(channel, _LENGTH.size)
    if head is None:
        return None
    data = _read(channel, _LENGTH.unpack(head)[0])
    return None if data is None else json.loads(data)


def _read(channel: socket.socket, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        part = channel.recv(count - len(data))
        if not part:
            return None
        data += part
    return data


async def read_message(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The next message; an `EOFError` if the other side is gone or does not keep to the protocol."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > MOST_BYTES:
        raise EOFError(f"a message of {length} bytes")
    message = json.loads(await reader.readexactly(length))
    if not isinstance(message, dict):
        raise EOFError("a message that is not an object")
    return message
