"""Whatever a person has at hand as a video: files, folders, patterns, bytes, standard input, URLs, arrays.

`each_source` says which videos some words mean, `opened` makes one of them readable. No torch here: an exported
model answers without it.
"""

import glob
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import numpy as np

from fixformer.data.listing.folders import has_images, videos_in
from fixformer.data.video import VideoSource
from fixformer.data.video.array_frames import NAME, as_frames
from fixformer.data.video.image_folder import image_paths
from fixformer.data.video.suffixes import VIDEO_SUFFIXES
from fixformer.errors import InputError, shown
from fixformer.evaluation.remote import copy_bounded, download, is_url, shown_url
from fixformer.runtime.files import Spool

STANDARD_INPUT = "-"
DOWNLOAD_LIMIT = 1000  # MB


def each_source(sources: Any) -> Iterator[Any]:
    """The videos that are meant: a folder stands for all videos in it, at any depth, and a pattern for its matches.

    What is found is a `Path`, so that no name of a file is taken for a URL or for standard input. Sources may be made
    one after the other, without end.
    """
    is_one = isinstance(sources, str | Path | bytes) or hasattr(sources, "shape") or hasattr(sources, "read")
    for source in [sources] if is_one or not isinstance(sources, Iterable) else sources:
        yield from _videos_of(source)


def _videos_of(source: Any) -> list[Any]:
    if not isinstance(source, str | Path) or is_special(source):
        return [source]
    if os.path.isdir(source):
        return _in_folder(Path(source)) or [source]
    if is_pattern(source):
        matches = [Path(match) for match in sorted(glob.glob(str(source), recursive=True))]
        return [video for match in matches for video in _videos_of(match)] or [source]
    return [source]


def is_special(source: str | Path) -> bool:
    """Whether a word is no path: a URL, or `-`."""
    return isinstance(source, str) and (source == STANDARD_INPUT or is_url(source))


def is_pattern(source: str | Path) -> bool:
    """Whether a word has a `*`, `?` or `[` and is not itself the name of a file."""
    return glob.has_magic(str(source)) and "\0" not in str(source) and not os.path.lexists(source)


def _in_folder(folder: Path) -> list[Path]:
    """The videos in a folder; itself, if it holds the frames of one."""
    found = videos_in(folder, VIDEO_SUFFIXES, [])
    has_files = any(path.suffix.lower() in VIDEO_SUFFIXES for path in found)
    return [folder] if not has_files and has_images(os.listdir(folder)) else found


def name_of(source: Any) -> str:
    """What results and errors call a source."""
    if isinstance(source, str | Path):
        is_remote = isinstance(source, str) and is_url(source)
        return "standard input" if source == STANDARD_INPUT else shown_url(str(source)) if is_remote else str(source)
    if isinstance(source, bytes):
        return "bytes"
    return NAME if hasattr(source, "shape") else str(getattr(source, "name", "bytes"))


@contextmanager
def opened(source: Any, limit: int = DOWNLOAD_LIMIT) -> Iterator[VideoSource]:
    """A source as decoders take it. What is fetched for that, at most `limit` MB, is gone afterwards."""
    if hasattr(source, "shape") and hasattr(source, "dtype"):
        yield as_frames(source)
    elif isinstance(source, str) and is_special(source):
        with _fetched(source, limit * 1_000_000) as video:
            yield video
    else:
        _require_video(source)
        yield source


@contextmanager
def _fetched(source: str, limit: int) -> Iterator[VideoSource]:
    if source.lower().startswith(("file://", "local://")):
        yield url2pathname(urlsplit(source).path)
        return
    with Spool(name_of(source)) as spool:
        if source == STANDARD_INPUT:
            _read_standard_input(spool, limit)
        else:
            download(source, spool, limit)  # type: ignore[arg-type]
        spool.seek(0)
        yield spool  # type: ignore[misc]


def _read_standard_input(spool: Spool, limit: int) -> None:
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None or sys.stdin.isatty():
        raise InputError("standard input is no file or pipe; write: fixformer predict - < clip.mp4")
    copy_bounded(stream, spool, limit, "standard input")  # type: ignore[arg-type]


def _require_video(source: Any) -> None:
    """Raise an `InputError` for what cannot be one video; what only opening can tell is left to that."""
    is_path = isinstance(source, str | Path)
    if not is_path and not isinstance(source, bytes | np.ndarray) and not hasattr(source, "read"):
        expected = "a path, a URL, -, bytes, an open binary file, or an array of frames"
        raise InputError(f"{shown(source)} is no video; expected {expected}.")
    if not is_path or not os.path.isdir(source):
        if is_path and is_pattern(source):
            raise InputError(f"{source}: no file matches; check the pattern.")
        return
    if image_paths(Path(source)):
        return
    videos = videos_in(Path(source), VIDEO_SUFFIXES, [])
    if videos:
        raise InputError(f"{source} holds {len(videos)} videos; give one of them, or call predict_each.")
    raise InputError(f"{source} is a folder without videos and images; expected some, such as .mp4, .webm or .png.")
