"""The report of a check: text for people, JSON for programs, histograms."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fixformer.data.audit.issues import Issue
from fixformer.data.audit.probe import FileProbe
from fixformer.runtime.console import printable
from fixformer.runtime.figures import drawable, new_figure, optional, save_figure
from fixformer.runtime.files import (
    check_writable,
    claim_output,
    make_output,
    require_outside_runs,
    write_json,
    write_text,
)
from fixformer.runtime.locks import locked

MOST_SIZES = 10  # frame sizes in a summary; a set from the web has hundreds


@dataclass
class CheckReport:
    """What a check found. A set that is not `usable` has `reasons`; `issues` are worth reading in any case."""

    data: str
    kind: str
    labels: list[str]
    splits: dict[str, dict[str, int]]
    class_counts: dict[str, dict[str, int]]
    issues: list[Issue]
    reasons: list[str]
    files: list[FileProbe] = field(repr=False)

    @property
    def usable(self) -> bool:
        return not self.reasons


def require_place(directory: str | Path, data: str | Path) -> None:
    """Raise a `UserError` if the report on a data set cannot be written to a directory, or must not be."""
    check_writable(directory)
    require_outside_runs(directory)
    if os.path.isdir(directory):
        with locked(directory):
            claim_output(directory, data, "check")


def write_report(report: CheckReport, directory: Path) -> list[str]:
    """report.json, report.txt and, if it can be drawn, histograms.png; returns the names of those that were written."""
    make_output(directory, "check")  # before it is locked, which would make the directories above without a mark
    names = ["report.json", "report.txt"]
    with locked(directory):
        write_json(directory / "report.json", report_json(report))
        write_text(directory / "report.txt", "\n".join(report_lines(report)) + "\n")
        with optional("histograms.png"):
            draw_histograms(report, directory / "histograms.png")
            names.append("histograms.png")
    return names


def report_json(report: CheckReport) -> dict[str, Any]:
    """Everything but the fingerprints, which only the cache needs."""
    return {
        "data": report.data,
        "kind": report.kind,
        "usable": report.usable,
        "reasons": report.reasons,
        "labels": report.labels,
        "splits": report.splits,
        "class_counts": report.class_counts,
        "summary": summary(report.files),
        "issues": [asdict(issue) for issue in report.issues],
        "files": [{k: v for k, v in asdict(probe).items() if k != "fingerprint"} for probe in report.files],
    }


def summary(files: list[FileProbe]) -> dict[str, Any]:
    """Minimum, median and maximum of what is measured; how often each codec and size occurs."""
    readable = [probe for probe in files if probe.readable]
    result: dict[str, Any] = {
        name: [round(float(np.quantile(values, q)), 3) for q in (0, 0.5, 1)]
        for name, values in {"frames": [float(probe.frames) for probe in readable], **_measured(readable)}.items()
        if values
    }
    result["codecs"] = _tally(probe.codec for probe in readable)
    sizes = _tally(f"{probe.width}x{probe.height}" for probe in readable)
    result["sizes"] = dict(list(sizes.items())[:MOST_SIZES])
    return result


def _measured(readable: list[FileProbe]) -> dict[str, list[float]]:
    return {
        "seconds": [probe.duration for probe in readable],
        "fps": [rate for probe in readable if (rate := probe.measured_fps or probe.fps)],
        "short side": [float(min(probe.width, probe.height)) for probe in readable],
    }


def _tally(values: Iterator[str]) -> dict[str, int]:
    """How often each value occurs, most frequent first."""
    return dict(sorted(Counter(values).items(), key=lambda item: (-item[1], item[0])))


def report_lines(report: CheckReport, most: int | None = None) -> Iterator[str]:
    """The report as lines of text, with at most this many items of each issue."""
    return map(printable, _lines(report, most))


def _lines(report: CheckReport, most: int | None) -> Iterator[str]:
    verdict = "usable" if report.usable else "UNUSABLE"
    yield f"{report.data} ({report.kind}, {len(report.labels)} classes): {verdict}"
    yield from (f"  because {reason}" for reason in report.reasons)
    yield ""
    yield f"{'':8}" + "".join(f"{name:>12}" for name in next(iter(report.splits.values()), {}))
    for split, counts in report.splits.items():
        yield f"{split:8}" + "".join(f"{count:12,}" for count in counts.values())
    yield ""
    for name, value in summary(report.files).items():
        if isinstance(value, list):
            least, median, greatest = value
            yield f"{name}: {least:g} to {greatest:g}, median {median:g}"
        else:
            yield f"{name}: {', '.join(f'{key} {count:,}' for key, count in value.items())}"
    for split, counts in report.class_counts.items():
        if counts:
            rarest, commonest = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
            yield f"videos per class, {split}: {counts[rarest]} ({rarest}) to {counts[commonest]} ({commonest})"
    for issue in report.issues:
        yield ""
        yield f"{issue.kind} ({len(issue.items)}): {issue.message}" if issue.items else f"{issue.kind}: {issue.message}"
        yield from (f"  {item}" for item in issue.items[:most])
        if most is not None and len(issue.items) > most:
            yield f"  ... and {len(issue.items) - most} more"
    if not report.issues:
        yield ""
        yield "no issues found"


def draw_histograms(report: CheckReport, path: Path) -> None:
    """Durations, frame rates, sizes and classes in one figure."""
    readable = [probe for probe in report.files if probe.readable]
    figure, axes = new_figure(2, 2)
    *histograms, classes = axes.flat
    for axis, (title, values) in zip(histograms, _measured(readable).items(), strict=True):
        low, high = min(values, default=0.0), max(values, default=1.0)
        # a set of equal values would have bins of no width
        spread = (low, high) if high - low > 1e-3 * high else (low - 0.5, high + 0.5)
        axis.hist(values, bins=40, range=spread, color="#4477aa")
        axis.set(xlabel=title, ylabel="videos")
    for split, counts in report.class_counts.items():
        classes.step(range(len(counts)), sorted(counts.values(), reverse=True), where="mid", label=split)
    classes.set(xlabel="classes, largest first", ylabel="videos", ylim=(0, None))
    classes.legend()
    figure.suptitle(f"{drawable(report.data)}: {len(readable):,} of {len(report.files):,} files readable")
    save_figure(figure, path)
