"""`fixformer check`: audit a data set before trusting a score on it.

Every listed file is decoded from beginning to end. The results are cached (`ProbeCache`), so a second check only
decodes what changed.
"""

from collections.abc import Iterator
from pathlib import Path

from fixformer.config.data import Workers
from fixformer.config.schema import Count, check_path, checked
from fixformer.data.audit.check_report import CheckReport, require_place, write_report
from fixformer.data.audit.duplicates import Duplicates, find_duplicates
from fixformer.data.audit.issues import find_issues, readable_counts
from fixformer.data.audit.probe import FileProbe, ProbeCache, probe_file
from fixformer.data.listing import Index, load_index
from fixformer.data.video.content import stamp_of
from fixformer.runtime.pools import crash_safe_map, processors
from fixformer.runtime.progress import counting

# Where a score stops meaning anything; both are judgement, not measurement. With more than 5 % of a split missing, a
# score is no longer comparable with one on the whole split. Public sets contain a few duplicates, but with 1 % of the
# test videos in training, the leak is as large as the differences between the methods that are compared.
UNREADABLE_SHARE = 0.05
LEAK_SHARE = 0.01
SAVE_EVERY = 200  # probes: an interrupted check loses no more than these


@checked
def check(
    data: str | Path,
    *,
    out: str | Path | None = None,
    kind: str = "auto",
    videos: str | Path | None = None,
    labels: str | Path | None = None,
    min_frames: Count = 8,
    workers: Workers | None = None,
    again: bool = False,
) -> CheckReport:
    """Decode every file of a data set and report what is wrong with it.

    Args:
        data: the data set, in any layout that training accepts; `kind`, `videos` and `labels` as for `load_index`.
        out: directory for report.json, report.txt and histograms.png.
        min_frames: a video with fewer is reported as too short.
        workers: processes; by default one per available core.
        again: decode every file, ignoring the results of earlier checks.
    """
    check_path(data, "data")
    if out is not None:
        check_path(out, "out")
        require_place(out, data)
    index = load_index(data, kind=kind, videos=videos, labels=labels, strict=False)
    files = probe_files(index, ProbeCache(data), workers or processors(), again)
    probes = {probe.path: probe for probe in files}
    duplicates = find_duplicates(index.samples, probes)
    report = CheckReport(
        data=str(data),
        kind=index.kind,
        labels=index.labels,
        splits={split: _count_split(index, split, probes, min_frames) for split in index.splits},
        class_counts={split: index.counts(split) for split in index.splits},
        issues=list(find_issues(index, probes, duplicates, min_frames)),
        reasons=list(_reasons(index, probes, duplicates)),
        files=files,
    )
    if out is not None:
        write_report(report, Path(out))
    return report


def probe_files(index: Index, cache: ProbeCache, workers: int, again: bool = False) -> list[FileProbe]:
    """Probes of every file of an index, from the cache where they are still valid."""
    paths = sorted({sample.path for sample in index.samples})
    known = {} if again else {path: probe for path in paths if (probe := cache.get(path))}
    waiting = [path for path in paths if path not in known]
    unsaved: list[FileProbe] = []
    with counting("decoding videos", len(waiting)) as progress:
        for path, result in crash_safe_map(probe_file, waiting, workers):
            known[path] = result or FileProbe(path, *stamp_of(path), "unreadable", "the decoder crashed")
            unsaved.append(known[path])
            progress.advance()
            if len(unsaved) >= SAVE_EVERY:
                cache.add(unsaved)
                unsaved = []
        cache.add(unsaved)
    return [known[path] for path in paths]


def _count_split(index: Index, split: str, probes: dict[str, FileProbe], min_frames: int) -> dict[str, int]:
    listed = [probes[sample.path] for sample in index.split(split)]
    missing = len(index.missing_in(split))
    return {
        "listed": len(listed) + missing,
        "missing": missing,
        "ok": sum(probe.status == "ok" for probe in listed),
        "damaged": sum(probe.status == "damaged" for probe in listed),
        "unreadable": sum(not probe.readable for probe in listed),
        "too_short": sum(0 < probe.frames < min_frames for probe in listed),
    }


def _reasons(index: Index, probes: dict[str, FileProbe], duplicates: Duplicates) -> Iterator[str]:
    """Why a score on this set would mean nothing."""
    yield from index.problems
    readable = readable_counts(index, probes)
    for split in index.splits:
        listed = len(index.split(split)) + len(index.missing_in(split))
        bad = listed - sum(count for (name, _), count in readable.items() if name == split)
        if bad > UNREADABLE_SHARE * listed:
            yield f"{bad} of {listed} {split} videos are missing, unreadable or unusable"
    empty = [name for i, name in enumerate(index.labels) if not readable["train", i]]
    if empty:
        yield f"{len(empty)} of {len(index.labels)} classes have no readable training video, first {empty[0]!r}"
    tested = sum(sample.split != "train" for sample in index.samples)
    leaked = sum(sample.split != "train" for group in duplicates.leaked for sample in group)
    if leaked > LEAK_SHARE * tested:
        yield f"{leaked} of {tested} test videos are also training videos"
