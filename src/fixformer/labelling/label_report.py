"""The report of a labelling: counts, rates, labels by share, and the rows that deserve a look, with thumbnails."""

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fixformer.evaluation.report import STYLE, embedded, text
from fixformer.labelling.decoding import Row
from fixformer.labelling.label_parts import PartFiles
from fixformer.labelling.thumbnails import thumbnail
from fixformer.models.checkpoint import read_info
from fixformer.runtime.console import printable
from fixformer.runtime.files import write_text
from fixformer.runtime.pools import crash_safe_map

UNCERTAIN, FAILED = 12, 50  # rows of each kind on the page; all are in the table
COLUMNS = ("row", "id", "path", "start", "end", "escaped_cells", "status", "error", "label", "probability", "seconds")


@dataclass(frozen=True)
class Summary:
    """A result in numbers.

    Args:
        listed, labelled: rows of the plan, and those in the result, whatever their status.
        statuses, labels: how often each occurs; labels with the most frequent first.
        video_seconds: duration of all videos whose duration is known.
        engine, videos_now, seconds_now: of the last call: how many videos it labelled in which time.
        rate: videos a second in the last call.
        real_time_factor: seconds of video per second of it, if its videos are like the others.
    """

    listed: int
    labelled: int
    statuses: dict[str, int]
    labels: dict[str, int]
    video_seconds: float
    engine: str
    videos_now: int
    seconds_now: float
    rate: float
    real_time_factor: float | None

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {status}" for status, count in self.statuses.items())
        factor = f", {self.real_time_factor:,.0f} times real time" if self.real_time_factor else ""
        left = f" of {self.listed:,} listed" if self.labelled < self.listed else ""
        return f"{self.labelled:,} videos{left}: {counts}; {self.rate:.3g} videos/s{factor}"


@dataclass(frozen=True)
class ShownRows:
    """The rows on the page."""

    uncertain: list[Row]
    failed: list[Row]


def summarise_rows(
    parts: PartFiles, listed: int, videos_now: int, seconds_now: float, engine: str
) -> tuple[Summary, ShownRows]:
    """One pass over the result, in the memory of a few rows."""
    statuses: Counter[str] = Counter()
    labels: Counter[str] = Counter()
    video_seconds = 0.0
    uncertain: list[tuple[float, int, Row]] = []
    failed: list[Row] = []
    for row in parts.rows(COLUMNS):
        statuses[row["status"]] += 1
        video_seconds += row["seconds"] or 0.0
        if row["status"] == "ok":
            labels[row["label"]] += 1
            heapq.heappush(uncertain, (-row["probability"], row["row"], row))
            if len(uncertain) > UNCERTAIN:
                heapq.heappop(uncertain)
        elif len(failed) < FAILED:
            failed.append(row)
    count, rate = statuses.total(), videos_now / max(seconds_now, 1e-9)
    factor = round(rate * video_seconds / count, 3) if count and video_seconds else None
    summary = Summary(
        listed,
        count,
        dict(statuses.most_common()),
        dict(labels.most_common()),
        round(video_seconds, 3),
        engine,
        videos_now,
        round(seconds_now, 3),
        round(rate, 4),
        factor,
    )
    return summary, ShownRows([row for _, _, row in sorted(uncertain, reverse=True)], failed)


def write_label_report(summary: Summary, shown: ShownRows, directory: Path, checkpoint: str) -> None:
    """report.html, which needs no other file."""
    draw = partial(thumbnail, spec=read_info(checkpoint).config.clip)
    # in other processes: what is wrong with a video may crash the decoder
    pictures = {row["row"]: png for row, png in crash_safe_map(draw, [*shown.uncertain, *shown.failed], 2)}
    title = f"Labels of {summary.labelled:,} videos"
    body = _numbers(summary) + _labels(summary.labels) + _uncertain(shown.uncertain, pictures)
    body += _failed(shown.failed, summary, pictures)
    head = f'<meta charset="utf-8"><title>{text(title)}</title><style>{STYLE}</style>'
    page = f"<!doctype html><html lang=en><head>{head}</head><body><h1>{text(title)}</h1>{body}</body></html>\n"
    write_text(directory / "report.html", page)


def _numbers(summary: Summary) -> str:
    factor = summary.real_time_factor
    rows: list[tuple[str, Any]] = [
        ("listed", f"{summary.listed:,}"),
        *((status, f"{count:,}") for status, count in summary.statuses.items()),
        ("hours of video", f"{summary.video_seconds / 3600:,.2f}"),
        (
            "rate",
            f"{summary.rate:.3g} videos/s ({summary.videos_now:,} in {summary.seconds_now:,.1f} s, {summary.engine})",
        ),
        ("real-time factor", "unknown" if factor is None else f"{factor:,.1f}"),
    ]
    return _table(rows)


def _labels(labels: dict[str, int]) -> str:
    total = sum(labels.values())
    rows = [(name, f"{count:,}", f"{count / total:.1%}") for name, count in labels.items()]
    return f"<h2>Labels by share</h2>{_table(rows, ('label', 'videos', 'share'))}" if rows else ""


def _uncertain(rows: list[Row], pictures: dict[int, bytes | None]) -> str:
    if not rows:
        return ""
    cells = ((_picture(row, pictures), f"{row['label']}, {row['probability']:.1%}", row["path"]) for row in rows)
    return f"<h2>Least certain</h2>{_pictures(cells)}"


def _failed(rows: list[Row], summary: Summary, pictures: dict[int, bytes | None]) -> str:
    count = summary.labelled - summary.statuses.get("ok", 0)
    if not count:
        return ""
    first = f", the first {len(rows)}" if len(rows) < count else ""
    cells = ((_picture(row, pictures), f"{row['status']}: {row['error']}", row["path"]) for row in rows)
    return f"<h2>Without a label: {count:,}{first}</h2>{_pictures(cells)}"


def _picture(row: Row, pictures: dict[int, bytes | None]) -> str:
    png = pictures[row["row"]]
    return embedded(png, printable(row["id"])) if png else '<span class="small">no frame</span>'


def _pictures(cells: Iterable[tuple[str, str, str]]) -> str:
    rows = (
        f"<tr><td>{picture}</td><td>{text(what)}<br><code>{text(path)}</code></td></tr>"
        for picture, what, path in cells
    )
    return f"<table>{''.join(rows)}</table>"


def _table(rows: Iterable[tuple[Any, ...]], heads: tuple[str, ...] = ()) -> str:
    lines = ["".join(f"<td>{text(cell)}</td>" for cell in row) for row in rows]
    head = "".join(f"<th>{text(name)}</th>" for name in heads)
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in ([head] if head else []) + lines) + "</table>"
