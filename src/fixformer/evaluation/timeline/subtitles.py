"""Segments as subtitles, which players show over the video."""

from collections.abc import Iterable
from typing import Protocol

from fixformer.runtime.console import printable


class Cue(Protocol):
    """A segment: seconds, label and certainty."""

    @property
    def start(self) -> float: ...

    @property
    def end(self) -> float: ...

    @property
    def label(self) -> str: ...

    @property
    def certainty(self) -> float: ...


def vtt(segments: Iterable[Cue]) -> str:
    """WebVTT."""
    cues = [f"{_clock(s.start, '.')} --> {_clock(s.end, '.')}\n{_escaped(_text(s))}\n" for s in segments]
    return "\n".join(["WEBVTT\n", *cues])


def srt(segments: Iterable[Cue]) -> str:
    """SubRip, numbered from 1."""
    cues = enumerate(segments, 1)
    # players take <b> for markup but have no way to write < itself, and --> separates times
    return "\n".join(
        f"{number}\n{_clock(s.start, ',')} --> {_clock(s.end, ',')}\n{_text(s).replace('<', '‹').replace('>', '›')}\n"
        for number, s in cues
    )


def _text(segment: Cue) -> str:
    return f"{printable(segment.label)} ({segment.certainty:.0%})"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _clock(seconds: float, point: str) -> str:
    """`01:02:03.456`."""
    thousandths = round(seconds * 1000)
    minutes, rest = divmod(thousandths, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{point}{rest % 1000:03}"
