"""The verbs on data sets: check and prepare."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fixformer.cli.arguments import DataSet, Directory, File, Layout, NewDirectory, Number, Pixels
from fixformer.errors import UserError

if TYPE_CHECKING:
    from fixformer.data.audit.check_report import CheckReport

SHOWN_ITEMS = 10  # of each issue on the terminal; report.txt has all


def check(
    data: DataSet,
    *,
    out: Directory | None = None,
    kind: Layout = "auto",
    videos: Directory | None = None,
    labels: File | None = None,
    min_frames: Number = 8,
    workers: Number | None = None,
    again: bool = False,
    json: bool = False,
) -> None:
    """Decode every file of a data set and report problems; exit status 1 if it is unusable.

    A report that cannot be written does not change the exit status, unless --out is wrong from the beginning.

    Args:
        data: the data set, in any layout that training accepts.
        out: directory for report.json, report.txt and histograms.png; by default check-NAME.
        kind: folders, images, csv, ssv2, kinetics, list, lsa64 or shards; auto detects it.
        videos: directory of the video files, if not beside the annotations.
        labels: file of label names, one per line.
        min_frames: videos with fewer frames are reported as too short.
        workers: processes; by default one per available core.
        again: decode every file, ignoring the results of earlier checks.
        json: print JSON.
    """
    from fixformer.data.audit import check as audit
    from fixformer.data.audit.check_report import report_json, report_lines
    from fixformer.runtime.console import print_json, show

    directory = _place_of_report(out, data)
    report = audit.check(
        data, kind=kind, videos=videos, labels=labels, min_frames=min_frames, workers=workers, again=again
    )
    if json:
        print_json(report_json(report))
    else:
        show("\n".join(report_lines(report, SHOWN_ITEMS)))
    if directory is not None:
        _write_if_possible(report, directory)
    if not report.usable:
        raise UserError(f"{data} is unusable: {report.reasons[0].rstrip('.')}.")


def _place_of_report(out: Path | None, data: str) -> Path | None:
    """The directory of the report; None if the user chose none and that by default cannot be used."""
    from fixformer.data.audit.check_report import require_place
    from fixformer.runtime.files import shortened

    directory = out or Path(shortened(f"check-{os.path.basename(os.path.realpath(data))}"))
    try:
        require_place(directory, data)
    except UserError as error:
        if out is not None:
            raise
        _note_unwritten(error)
        return None
    return directory


def _write_if_possible(report: "CheckReport", directory: Path) -> None:
    """Write the report; if that fails, as on a full disk, the verdict that was printed still holds."""
    from fixformer.data.audit.check_report import write_report
    from fixformer.runtime.console import note, printable

    try:
        names = write_report(report, directory)
    except UserError as error:
        _note_unwritten(error)
    else:
        note(f"written: {printable(str(directory))}/{', '.join(names)}")


def _note_unwritten(error: UserError) -> None:
    from fixformer.runtime.console import note, printable

    note(f"the report is not written: {printable(str(error))}")


def prepare(
    src: DataSet,
    dst: NewDirectory,
    *,
    short_side: Pixels = 256,
    keyframes: Number = 16,
    quality: Number = 20,
    damaged: Literal["strict", "partial"] = "strict",
    shards: bool = False,
    shard_videos: Number = 256,
    workers: Number | None = None,
    kind: Layout = "auto",
    videos: Directory | None = None,
    labels: File | None = None,
    json: bool = False,
) -> None:
    """Re-encode every video of a data set for fast reading: smaller, upright, with frequent key frames. Resumable.

    Args:
        src: the data set, in any layout that training accepts.
        dst: a new directory, or that of an interrupted `prepare` with the same settings.
        short_side: length of the shorter side in pixels; smaller videos keep their size.
        keyframes: frames between key frames.
        quality: constant rate factor of x264, 0 to 51; lower is better.
        damaged: "strict" skips a video with damage in the middle, "partial" keeps its good frames.
        shards: write tar shards with an index instead of files with a CSV.
        shard_videos: videos per shard.
        workers: processes; by default one per available core.
        kind: folders, images, csv, ssv2, kinetics, list, lsa64 or shards; auto detects it.
        videos: directory of the video files, if not beside the annotations.
        labels: file of label names, one per line.
        json: print JSON.
    """
    from fixformer.data.prepare import prepare as preparing
    from fixformer.runtime.console import note, print_json, printable, show

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
        show(f"{report.videos:,} videos, {report.bytes / 2**20:,.1f} MiB in {printable(report.dst)}")
        for path, problem in report.failed:
            note(f"failed: {printable(path)}: {printable(problem)}")
        if report.missing:
            note(f"missing: {len(report.missing)} listed files, first {printable(report.missing[0])}")
    if not report.videos:
        raise UserError(f"nothing was prepared: none of {len(report.failed)} videos in {src} could be encoded.")
