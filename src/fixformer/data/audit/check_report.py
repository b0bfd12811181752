"""The report of a check: text for people, JSON for programs, histograms for the eye."""

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fixformer.data.audit.check import CheckReport, check
from fixformer.data.audit.facts import FileFacts
from fixformer.errors import UserError
from fixformer.runtime.figures import new_figure, save_figure
from fixformer.runtime.files import write_json, write_text

SHOWN = 10


def run_check(data: str, *, out: str | Path | None = None, json: bool = False, **settings: Any) -> None:
    """`check`, printed; a `UserError`, hence exit status 1, if the set is unusable."""
    directory = Path(out) if out is not None else Path(f"check-{Path(data).resolve().name}")
    report = check(data, out=directory, **settings)
    if json:
        import json as text

        print(text.dumps(to_json(report), indent=1))
    else:
        print("\n".join(report_lines(report, SHOWN)))
    print(f"written: {directory}/report.json, report.txt, histograms.png", file=sys.stderr)
    if not report.usable:
        raise UserError(f"{data} is unusable: {report.reasons[0]}.")


def write_report(report: CheckReport, directory: Path) -> None:
    write_json(directory / "report.json", to_json(report))
    write_text(directory / "report.txt", "\n".join(report_lines(report)) + "\n")
    draw_histograms(report, directory / "histograms.png")


def to_json(report: CheckReport) -> dict[str, Any]:
    """Everything but the fingerprints, which only mean something to the cache."""
    return {
        "data": report.data,
        "kind": report.kind,
        "usable": report.usable,
        "reasons": report.reasons,
        "labels": report.labels,
        "splits": report.splits,
        "class_counts": report.class_counts,
        "summary": summary(report.facts),
        "findings": [asdict(finding) for finding in report.findings],
        "files": [{k: v for k, v in asdict(one).items() if k != "fingerprint"} for one in report.facts],
    }


def summary(facts: list[FileFacts]) -> dict[str, Any]:
    """Least, median and most of what can be measured; how often each codec and size occurs."""
    readable = [one for one in facts if one.readable]
    numbers: dict[str, list[float]] = {
        "frames": [one.frames for one in readable],
        "seconds": [one.duration for one in readable],
        "fps": [rate for one in readable if (rate := one.measured_fps or one.fps)],
        "short side": [min(one.width, one.height) for one in readable],
    }
    result: dict[str, Any] = {
        name: [round(float(np.quantile(values, q)), 3) for q in (0, 0.5, 1)]
        for name, values in numbers.items()
        if values
    }
    result["codecs"] = _tally(one.codec for one in readable)
    result["sizes"] = dict(list(_tally(f"{one.width}x{one.height}" for one in readable).items())[:SHOWN])
    return result


def _tally(values: Iterator[str]) -> dict[str, int]:
    names, counts = np.unique(np.array(list(values), dtype=str), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return {str(names[i]): int(counts[i]) for i in order}


def report_lines(report: CheckReport, most: int | None = None) -> Iterator[str]:
    """The readable report, at most so many lines for each finding."""
    verdict = "usable" if report.usable else "UNUSABLE"
    yield f"{report.data} ({report.kind}, {len(report.labels)} classes): {verdict}"
    yield from (f"  because {reason}" for reason in report.reasons)
    yield ""
    yield f"{'':8}" + "".join(f"{name:>12}" for name in next(iter(report.splits.values()), {}))
    for split, counts in report.splits.items():
        yield f"{split:8}" + "".join(f"{count:12,}" for count in counts.values())
    yield ""
    for name, value in summary(report.facts).items():
        yield f"{name}: {_range(value) if isinstance(value, list) else _pairs(value)}"
    labelled = {split: counts for split, counts in report.class_counts.items() if counts}
    for split, counts in labelled.items():
        least, greatest = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
        yield f"videos per class, {split}: {counts[least]} ({least}) to {counts[greatest]} ({greatest})"
    for finding in report.findings:
        yield ""
        yield f"{finding.kind}: {len(finding.items) or ''} {finding.message}".replace(":  ", ": ")
        yield from (f"  {item}" for item in finding.items[:most])
        if most is not None and len(finding.items) > most:
            yield f"  ... and {len(finding.items) - most} more"
    if not report.findings:
        yield ""
        yield "nothing wrong was found"


def _range(values: list[float]) -> str:
    least, median, most = values
    return f"{least:g} to {most:g}, median {median:g}"


def _pairs(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def draw_histograms(report: CheckReport, path: Path) -> None:
    """Lengths, rates, sizes and classes in one picture."""
    readable = [one for one in report.facts if one.readable]
    figure, axes = new_figure(2, 2)
    panels: dict[str, list[float]] = {
        "seconds": [one.duration for one in readable],
        "frames per second": [rate for one in readable if (rate := one.measured_fps or one.fps)],
        "shorter side, pixels": [min(one.width, one.height) for one in readable],
    }
    for axis, (title, values) in zip(axes.flat, panels.items(), strict=False):
        low, high = min(values, default=0.0), max(values, default=1.0)
        spread = (low, high) if high - low > 1e-3 * high else (low - 0.5, high + 0.5)
        axis.hist(values, bins=40, range=spread, color="#4477aa")
        axis.set(xlabel=title, ylabel="videos")
    for split, counts in report.class_counts.items():
        axes[1, 1].step(range(len(counts)), sorted(counts.values(), reverse=True), where="mid", label=split)
    axes[1, 1].set(xlabel="classes, largest first", ylabel="videos", ylim=(0, None))
    axes[1, 1].legend()
    figure.suptitle(f"{report.data}: {len(readable):,} of {len(report.facts):,} files readable")
    save_figure(figure, path)
