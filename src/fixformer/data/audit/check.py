"""`fixformer check`: look at every file of a data set before trusting a score on it.

Every listed file is decoded from beginning to end. What is learned is kept (`facts`), so a second check only looks at
what changed.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fixformer.data.audit.duplicates import Duplicates, find_duplicates
from fixformer.data.audit.facts import FactStore, FileFacts, examine
from fixformer.data.audit.findings import Finding, all_findings, readable_counts
from fixformer.data.listing import Index, load_index
from fixformer.data.video.content import stamp_of
from fixformer.runtime.pools import crash_safe_map
from fixformer.runtime.progress import counting

UNREADABLE_SHARE = 0.05
LEAK_SHARE = 0.01
SAVE_EVERY = 200


@dataclass
class CheckReport:
    """What a check found. A set that is not `usable` has `reasons`; `findings` are worth reading in any case."""

    data: str
    kind: str
    labels: list[str]
    splits: dict[str, dict[str, int]]
    class_counts: dict[str, dict[str, int]]
    findings: list[Finding]
    reasons: list[str]
    facts: list[FileFacts] = field(repr=False)

    @property
    def usable(self) -> bool:
        return not self.reasons


def check(
    data: str | Path,
    *,
    out: str | Path | None = None,
    kind: str = "auto",
    videos: str | Path | None = None,
    labels: str | Path | None = None,
    min_frames: int = 8,
    workers: int | None = None,
    again: bool = False,
) -> CheckReport:
    """Decode every file of a data set and report what is wrong with it.

    Args:
        data: the data set, in any layout that training accepts.
        out: directory for report.json, report.txt and histograms.png.
        kind: the layout, if it is not to be recognised.
        videos: where the files lie, if not beside the annotations.
        labels: a file of label names, one per line.
        min_frames: a video with fewer is reported as too short.
        workers: processes; by default as many as the machine has cores.
        again: forget what earlier checks learned.
    """
    index = load_index(data, kind=kind, videos=videos, labels=labels, strict=False)
    facts = learn(index, FactStore(data), workers or os.cpu_count() or 1, again)
    by_path = {one.path: one for one in facts}
    duplicates = find_duplicates(index.samples, by_path)
    report = CheckReport(
        data=str(data),
        kind=index.kind,
        labels=index.labels,
        splits={split: _count_split(index, split, by_path, min_frames) for split in index.splits},
        class_counts={split: index.counts(split) for split in index.splits},
        findings=list(all_findings(index, by_path, duplicates, min_frames)),
        reasons=list(_reasons(index, by_path, duplicates)),
        facts=facts,
    )
    if out is not None:
        from fixformer.data.audit.check_report import write_report

        write_report(report, Path(out))
    return report


def learn(index: Index, store: FactStore, workers: int, again: bool = False) -> list[FileFacts]:
    """Facts about every file of an index, from the store where they are still true."""
    paths = sorted({sample.path for sample in index.samples})
    known = {} if again else {path: facts for path in paths if (facts := store.get(path))}
    waiting = [path for path in paths if path not in known]
    fresh: list[FileFacts] = []
    with counting("looking at videos", len(waiting)) as progress:
        for path, result in crash_safe_map(examine, waiting, workers):
            known[path] = result or _killer(path)
            fresh.append(known[path])
            progress.advance()
            if len(fresh) >= SAVE_EVERY:
                store.add(fresh)
                fresh = []
        store.add(fresh)
    return [known[path] for path in paths]


def _killer(path: str) -> FileFacts:
    return FileFacts(path, *stamp_of(path), "unreadable", "the decoder crashed on it")


def _count_split(index: Index, split: str, by_path: dict[str, FileFacts], min_frames: int) -> dict[str, int]:
    facts = [by_path[sample.path] for sample in index.split(split)]
    missing = len(index.missing_in(split))
    return {
        "listed": len(facts) + missing,
        "missing": missing,
        "ok": sum(one.status == "ok" for one in facts),
        "damaged": sum(one.status == "damaged" for one in facts),
        "unreadable": sum(not one.readable for one in facts),
        "too_short": sum(0 < one.frames < min_frames for one in facts),
    }


def _reasons(index: Index, by_path: dict[str, FileFacts], duplicates: Duplicates) -> Iterator[str]:
    """Why a model trained or scored on this set would mean nothing."""
    yield from index.problems
    readable = readable_counts(index, by_path)
    for split in index.splits:
        listed = len(index.split(split)) + len(index.missing_in(split))
        bad = listed - sum(count for (name, _), count in readable.items() if name == split)
        if bad > UNREADABLE_SHARE * listed:
            yield f"{bad} of {listed} {split} videos are missing or unreadable"
    empty = [name for i, name in enumerate(index.labels) if not readable["train", i]]
    if empty:
        yield f"{len(empty)} of {len(index.labels)} classes have no readable training video, first {empty[0]!r}"
    tested = sum(sample.split != "train" for sample in index.samples)
    leaked = sum(sample.split != "train" for group in duplicates.leaked for sample in group)
    if leaked > LEAK_SHARE * tested:
        yield f"{leaked} of {tested} test videos are also training videos"
