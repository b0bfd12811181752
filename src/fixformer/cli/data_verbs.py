"""The verbs on data sets: check and prepare."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from fixformer.errors import UserError

SHOWN_ITEMS = 10  # of each issue on the terminal; report.txt has all


def check(
    data: Positional[str],
    *,
    out: Path | None = None,
    kind: str = "auto",
    videos: Path | None = None,
    labels: Path | None = None,
    min_frames: int = 8,
    workers: int | None = None,
    again: bool = False,
    json: bool = False,
) -> None:
    """Decode every file of a data set and report what is wrong with it; exit status 1 if it is unusable.

    Args:
        data: the data set, in any layout that training accepts.
        out: directory for report.json, report.txt and histograms.png; check-NAME if not given.
        kind: the layout, if it is not to be detected.
        videos: directory of the files, if not that of the annotations.
        labels: a file of label names, one per line.
        min_frames: a video with fewer is reported as too short.
        workers: processes; by default one per available core.
        again: decode every file, ignoring the results of earlier checks.
        json: print JSON.
    """
    from fixformer.data.audit import check as audit
    from fixformer.data.audit.check_report import report_json, report_lines, write_report
    from fixformer.runtime.console import print_json

    report = audit.check(
        data, kind=kind, videos=videos, labels=labels, min_frames=min_frames, workers=workers, again=again
    )
    if json:
        print_json(report_json(report))
    else:
        print("\n".join(report_lines(report, SHOWN_ITEMS)))
    directory = out or Path(f"check-{Path(data).resolve().name}")
    write_report(report, directory)
    print(f"written: {directory}/report.json, report.txt, histograms.png", file=sys.stderr)
    if not report.usable:
        raise UserError(f"{data} is unusable: {report.reasons[0]}.")


def prepare(
    src: Positional[str],
    dst: Positional[str],
    *,
    short_side: int = 256,
    keyframes: int = 16,
    quality: int = 20,
    damaged: Literal["strict", "partial"] = "strict",
    shards: bool = False,
    shard_videos: int = 256,
    workers: int | None = None,
    kind: str = "auto",
    videos: Path | None = None,
    labels: Path | None = None,
    json: bool = False,
) -> None:
    """Encode every video of a data set again: smaller, upright, with key frames close together. Resumable.

    Args:
        src: the data set, in any layout that training accepts.
        dst: a new directory, or that of an interrupted `prepare` with the same settings.
        short_side: pixels of the shorter side; smaller videos keep their size.
        keyframes: frames from one key frame to the next.
        quality: x264's constant rate factor, lower is better.
        damaged: "strict" leaves out a video with damage in the middle, "partial" keeps its good frames.
        shards: write tar shards with an index instead of files with a CSV.
        shard_videos: videos in a shard.
        workers: processes; by default one per available core.
        kind: the layout, if it is not to be detected.
        videos: directory of the files, if not that of the annotations.
        labels: a file of label names, one per line.
        json: print JSON.
    """
    from fixformer.data.prepare import prepare as preparing
    from fixformer.runtime.console import print_json

    report = preparing.prepare(
        src,
        dst,
        short_side=short_side,
        keyframes=keyframes,
        quality=quality,
        damaged=damaged,
        shards=shards,
        shard_videos=shard_videos,
        workers=workers,
        kind=kind,
        videos=videos,
        labels=labels,
    )
    if json:
        print_json(asdict(report))
    else:
        print(f"{report.videos:,} videos, {report.bytes / 2**20:,.1f} MiB in {report.dst}")
        for path, problem in report.failed:
            print(f"failed: {path}: {problem}", file=sys.stderr)
        if report.missing:
            print(f"missing: {len(report.missing)} listed files, first {report.missing[0]}", file=sys.stderr)
    if not report.videos:
        raise UserError(f"nothing was prepared: none of {len(report.failed)} videos in {src} could be encoded.")
