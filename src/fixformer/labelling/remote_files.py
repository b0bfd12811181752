"""Videos and lists at URLs, through fsspec. Only the schemes below: fsspec knows others, which run or unpack things."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from fixformer.errors import MissingExtra, UserError

SCHEMES = ("s3", "gs", "gcs", "az", "abfs", "abfss", "hf", "https", "http", "memory")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://.+", re.DOTALL)
# A server that sends files only as a whole gives no part of one: then the file is read into memory, up to here.
MOST_BYTES = 1 << 30


def is_url(text: str) -> bool:
    """Whether a text is a URL rather than the path of a file."""
    return _URL.match(text) is not None


def file_system(url: str) -> Any:
    """The fsspec file system of a URL; a `UserError` for a scheme that is not read, or needs another package."""
    found = _URL.match(url)
    assert found is not None, url
    scheme = found[1].lower()
    if scheme not in SCHEMES or "::" in url:
        raise UserError(f"{url}: URLs of {scheme!r} are not read; use one of {', '.join(SCHEMES)}, or copy the files.")
    try:
        import fsspec
    except ImportError:
        raise MissingExtra(f"reading {url}", "remote") from None
    try:
        return fsspec.filesystem(scheme)
    except ImportError as error:  # fsspec says which package the scheme needs: s3fs, gcsfs, ...
        raise UserError(f"{url} cannot be read: {error}; install that package.") from None


@contextmanager
def open_url(url: str) -> Iterator[BinaryIO]:
    """A file at a URL; parts of it are fetched as they are read."""
    import io

    with file_system(url).open(url, "rb") as file:
        if file.seekable():
            yield file
            return
        data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise OSError(f"the server sends it only as a whole, and it has more than {MOST_BYTES >> 30} GiB")
        yield io.BytesIO(data)


def find_urls(url: str, suffixes: frozenset[str]) -> Iterator[str]:
    """The URLs of all files below a URL, or that match it if it has a wildcard, in order."""
    system = file_system(url)
    with reading_url(url):
        is_pattern = any(letter in url for letter in "*?[")
        names = sorted(system.glob(url) if is_pattern else system.find(url))
        for name in names:
            if name.lower().endswith(tuple(suffixes)):
                yield system.unstrip_protocol(name)


@contextmanager
def reading_url(url: str) -> Iterator[None]:
    """Turns any failure of a list or a folder at a URL into a sentence."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        # every scheme is another library (botocore, aiohttp, gcsfs), with errors of its own
        raise UserError(f"cannot read {url}: {describe(error)}; check the address and your access to it.") from None


def describe(error: BaseException) -> str:
    """An error of any library on one line."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
