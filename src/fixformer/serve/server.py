"""`fixformer serve`: the token, the socket, the server and its end."""

import asyncio
import os
import secrets
import socket
from typing import Any

from fixformer.config.schema import load
from fixformer.errors import InputError, MissingExtra, UserError
from fixformer.runtime.console import note, printable
from fixformer.runtime.files import read_text
from fixformer.serve.settings import ServeSettings

TOKEN_VARIABLE = "FIXFORMER_TOKEN"
SHORTEST_TOKEN = 16


def serve(*, token_file: str | None = None, **limits: Any) -> None:
    """Serve a model until SIGTERM or Ctrl-C; then finish what runs.

    Args:
        token_file: a file with the bearer token; otherwise `FIXFORMER_TOKEN`. Where other machines can reach the server
            and neither is given, one is made up and printed.
        limits: the fields of `ServeSettings`.
    """
    settings = load(ServeSettings, limits)
    try:
        import uvicorn

        from fixformer.serve.interface import make_app
        from fixformer.serve.patience import protocol
    except ImportError as error:
        if (error.name or "").startswith("fixformer"):
            raise
        raise MissingExtra("serve", "serve") from None
    with listen(settings) as listener:
        app = make_app(settings, find_token(settings, token_file))
        config = uvicorn.Config(
            app,
            http=protocol(settings.header_seconds),
            ws="none",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=settings.connections,
            h11_max_incomplete_event_size=16 << 10,
            timeout_keep_alive=15,
            # what runs may use all its time, then it is stopped
            timeout_graceful_shutdown=int(settings.seconds + settings.queue_seconds) + 1,
        )
        server = uvicorn.Server(config)

        def give_up() -> None:
            server.should_exit = True

        app.state.on_failure = give_up
        _announce(settings, listener)
        asyncio.run(server.serve(sockets=[listener]))
        failure = app.state.workshop.failure
    if failure is not None:
        raise UserError(failure)


def find_token(settings: ServeSettings, token_file: str | None) -> str:
    """The token to ask for; empty if none is needed."""
    if token_file is not None:
        try:
            token = read_text(token_file).strip()
        except OSError as error:
            raise UserError(f"cannot read the token: {token_file}: {error.strerror}; check the path.") from None
    else:
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if token and (len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token):
        raise InputError(f"the token: expected at least {SHORTEST_TOKEN} printable ASCII characters without a space.")
    if token_file is not None and not token:
        raise InputError(f"{token_file} is empty; expected a token.")
    if not token and not settings.is_private:
        token = secrets.token_urlsafe(24)
        note(f"token for this run (or set {TOKEN_VARIABLE}): {token}")
    return token


def listen(settings: ServeSettings) -> socket.socket:
    """The port, taken."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()  # before the address is announced: who connects at once waits and is not refused
    except OSError as error:
        where = f"{printable(settings.host)}, port {settings.port}"
        raise UserError(f"cannot listen on {where}: {error.strerror or error}; choose another.") from None
    return listener


def _announce(settings: ServeSettings, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    note(f"fixformer serves http://{printable(host)}:{port}/ (Ctrl-C ends it)")
