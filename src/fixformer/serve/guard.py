"""What every request passes first and every answer last: host, origin, token; headers; counting.

Pure ASGI, because a wrapper that buffers would hold back the messages of progress.
"""

import hmac
import time
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fixformer.serve.counters import Metrics
from fixformer.serve.refusal import Refusal
from fixformer.serve.settings import LOOPBACK, ServeSettings, is_loopback

HEADERS = {
    # only what this server itself sends; pictures also as data: and blob:, videos that were chosen as blob:
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "media-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
}
_NEEDS_TOKEN = ("/v1/", "/metrics")


class Guard:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, settings: ServeSettings, token: str, metrics: Metrics, paths: set[str]) -> None:
        self._app, self._token, self._metrics, self._paths = app, token, metrics, paths
        # bound to other addresses, the server does not know its names unless it is told; it then has a token
        knows_names = is_loopback(settings.host) or settings.allow_hosts
        self._hosts = {*LOOPBACK, settings.host, *settings.allow_hosts} if knows_names else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, status = time.perf_counter(), 499  # as nginx calls a client that is gone before its answer

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        path = scope["path"] if scope["path"] in self._paths else "other"
        try:
            refusal = self._refusal(Headers(scope=scope), scope["path"])
            app: Any = self._app if refusal is None else refusal_response(refusal)
            await app(scope, receive, send_guarded)
        finally:
            self._metrics.requests.labels(path, str(status)).inc()
            self._metrics.latency.labels(path).observe(time.perf_counter() - begin)

    def _refusal(self, headers: Headers, path: str) -> Refusal | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._hosts is not None and _name_of(host) not in self._hosts:
            # a foreign site whose name was made to point here
            return Refusal(421, "host", "this server is not known by that name; see --allow-hosts.")
        if origin is not None and origin.partition("://")[2] != host:
            return Refusal(403, "origin", "requests from pages of other sites are not answered.")
        if self._token and path.startswith(_NEEDS_TOKEN):
            kind, _, given = headers.get("authorization", "").partition(" ")
            if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token.encode()):
                return Refusal(401, "token", "a token is needed: send the header 'Authorization: Bearer TOKEN'.")
        return None


def refusal_response(refusal: Refusal) -> JSONResponse:
    headers = dict(refusal.headers)
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(refusal.to_json(), refusal.status, headers)


def _name_of(host: str) -> str:
    """`[::1]:8000` and `localhost:8000` without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
