"""Videos from other machines: http(s) and every other URL that fsspec knows (extra `remote`).

A URL is opened only where the user gives one; a list or a checkpoint cannot name one (SECURITY.md).
"""

import re
import time
from typing import Any, BinaryIO
from urllib.parse import urlsplit, urlunsplit

from fixformer.errors import InputError, MissingExtra, UserError

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(::[A-Za-z][A-Za-z0-9+.-]*)*://.+", re.DOTALL)
BLOCK = 1 << 20
SILENCE, DEADLINE = 30.0, 600.0  # seconds without a byte, and in all


class RemoteError(UserError):
    """A URL that cannot be read."""


def is_url(text: str) -> bool:
    return _URL.fullmatch(text) is not None


def shown_url(url: str) -> str:
    """A URL without what may be a secret in it: user and password, and the query, which may be a signature."""
    if "::" in url:  # a chain, such as zip://a.mp4::https://...
        return "::".join(shown_url(part) if "://" in part else part for part in url.split("::"))
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.partition("?")[0].rpartition("@")[2]
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def copy_bounded(source: Any, target: BinaryIO, limit: int, name: str) -> None:
    """Copy what can be read, which may be endless; an `InputError` after `limit` bytes or the deadline."""
    end, size = time.monotonic() + DEADLINE, 0
    while block := source.read(BLOCK):
        size += len(block)
        if size > limit:
            raise InputError(f"{name}: more than {limit / 1e6:,.0f} MB; raise the limit (--download-limit) or cut it.")
        if time.monotonic() > end:
            raise InputError(f"{name}: not complete after {DEADLINE:.0f} s; fetch it to a file first.")
        target.write(block)
    if not size:
        raise InputError(f"{name} is empty; expected a video.")


def download(url: str, target: BinaryIO, limit: int) -> None:
    """Fetch at most `limit` bytes."""
    name = shown_url(url)
    try:
        import fsspec
    except ImportError:
        raise MissingExtra(f"a video from {name}", "remote") from None
    try:
        with _open(fsspec, url) as source:
            copy_bounded(source, target, limit, name)
    except UserError:
        raise
    except ImportError as error:  # of a file system that is a package of its own
        raise RemoteError(f"{name}: {error or 'a package for this kind of URL is missing'}") from None
    except _failures() as error:
        raise RemoteError(f"{name} cannot be read ({_reason(error, url)}); check the address.") from None


def _open(fsspec: Any, url: str) -> Any:
    if not url.lower().startswith(("http://", "https://")):
        return fsspec.open(url, "rb").open()
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=DEADLINE, sock_connect=SILENCE, sock_read=SILENCE)
    # a URL with escapes is sent as it is: a signature in it is of these very bytes
    system = fsspec.filesystem("http", client_kwargs={"timeout": timeout}, encoded="%" in url)
    # as one stream of unknown length (`size` keeps fsspec from asking for it): a server may not know it, or lie
    return system.open(url, "rb", block_size=0, size=1)


def _failures() -> tuple[type[Exception], ...]:
    """What a file system raises."""
    own: tuple[type[Exception], ...] = (OSError, ValueError, RuntimeError, NotImplementedError)
    try:
        from aiohttp import ClientError
    except ImportError:
        return own
    return (*own, ClientError)


def _reason(error: Exception, url: str) -> str:
    status = getattr(error, "status", None)
    if status:
        return f"the server answers {status}"
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = (str(error).strip().splitlines() or [""])[0].rstrip(".")
    return text.replace(url, shown_url(url)) or type(error).__name__
