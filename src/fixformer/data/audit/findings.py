"""What can be wrong with a data set, one kind at a time."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fixformer.data.audit.duplicates import Duplicates, Group
from fixformer.data.audit.facts import FileFacts
from fixformer.data.clips.sampling import part_problem
from fixformer.data.listing import Index, Sample

PLAIN_RATES = (5.0, 120.0)


@dataclass(frozen=True)
class Finding:
    """One kind of thing that is wrong, and what it is wrong with: a file, several that are one, or a class."""

    kind: str
    message: str
    items: list[str]


def all_findings(
    index: Index, by_path: dict[str, FileFacts], duplicates: Duplicates, min_frames: int
) -> Iterator[Finding]:
    """Everything worth reading, gravest first."""
    for problem in index.problems:
        yield Finding("listing", problem, [])
    found = {
        ("missing", "listed, but there is no such file"): [sample.path for sample in index.missing],
        **_files(list(by_path.values()), min_frames),
        ("frame_count", "has another number of frames than the list says"): _wrong_claims(index, by_path),
        ("outside", "is a part that its file does not have"): _outside(index, by_path),
        ("leak", "is in the training and in the test part, byte for byte"): _lines(index, duplicates.leaked),
        ("similar", "looks the same as a training video, though its bytes differ"): list(
            map(" = ".join, duplicates.similar)
        ),
        ("label_conflict", "has the same content under different labels"): _lines(index, duplicates.contradicting),
        ("duplicate", "is several times in its part"): _lines(index, duplicates.repeated),
        ("label_mismatch", "is a class of test videos that no readable training video has"): _untrained(index, by_path),
        ("empty_class", "is a class without a readable test video"): _untested(index, by_path),
        ("ignored", "lies among the videos, but is none by its name"): index.ignored,
    }
    for (kind, message), items in found.items():
        if items:
            yield Finding(kind, message, items)


def readable_counts(index: Index, by_path: dict[str, FileFacts]) -> Counter[tuple[str, int]]:
    """Videos by (split, label) that are readable and have the listed part."""
    good = (s for s in index.samples if by_path[s.path].readable and not missing_part(s, by_path[s.path]))
    return Counter((s.split, s.label) for s in good)


def missing_part(sample: Sample, facts: FileFacts) -> str | None:
    """Why a readable file does not have the part that a sample is; None if it does."""
    if sample.start is None and sample.end is None:
        return None
    if facts.frames > 1 and facts.duration == 0:
        return "a part in seconds of a video without a clock"
    return part_problem(sample.start, sample.end, facts.duration if facts.frames > 1 else math.inf)


def truncated(facts: FileFacts) -> bool:
    """Whether frames are missing at the end: the header promises clearly more time than there is."""
    if not facts.readable or facts.header_duration is None:
        return False
    return facts.header_duration - facts.duration > max(0.5, 0.05 * facts.header_duration)


def odd_rate(facts: FileFacts) -> bool:
    """Whether time and frame number do not go together as they usually do."""
    if not facts.readable or facts.container == "images":
        return False
    if facts.fps is None or not PLAIN_RATES[0] <= facts.fps <= PLAIN_RATES[1]:
        return True
    measured = facts.measured_fps or facts.fps
    return facts.variable_rate or abs(measured / facts.fps - 1) > 0.1


def _files(facts: list[FileFacts], min_frames: int) -> dict[tuple[str, str], list[str]]:
    def having(*states: str) -> list[str]:
        return [f"{one.path}: {one.problem}" for one in facts if one.status in states]

    return {
        ("unreadable", "cannot be decoded at all"): having("unreadable", "missing"),
        ("no_video", "holds no video stream"): having("no_video"),
        ("damaged", "breaks while it is decoded; its good frames are usable"): having("damaged"),
        ("truncated", "is shorter than its header says"): [
            f"{one.path}: {one.duration:.1f} of {one.header_duration:.1f} s" for one in facts if truncated(one)
        ],
        ("too_short", f"has fewer than {min_frames} frames"): [
            f"{one.path}: {one.frames}" for one in facts if 0 < one.frames < min_frames
        ],
        ("odd_rate", "has an odd, variable or unknown frame rate"): [
            f"{one.path}: {_rate(one)}" for one in facts if odd_rate(one)
        ],
    }


def _rate(facts: FileFacts) -> str:
    header = "unknown" if facts.fps is None else f"{facts.fps:.2f}"
    measured = "" if facts.measured_fps is None else f", measured {facts.measured_fps:.2f}"
    return f"{header} fps in the header{measured}{', variable' if facts.variable_rate else ''}"


def _wrong_claims(index: Index, by_path: dict[str, FileFacts]) -> list[str]:
    """Lists of `path frames label` claim a number of frames, of which other tools may have counted differently."""
    whole = [(s, by_path[s.path]) for s in index.samples if s.frames and s.start is None and by_path[s.path].readable]
    return [f"{s.path}: {s.frames} listed, {f.frames} decoded" for s, f in whole if s.frames != f.frames]


def _untrained(index: Index, by_path: dict[str, FileFacts]) -> list[str]:
    readable = readable_counts(index, by_path)
    tested = {label for split, label in readable if split != "train"}
    return [name for i, name in enumerate(index.labels) if i in tested and not readable["train", i]]


def _untested(index: Index, by_path: dict[str, FileFacts]) -> list[str]:
    tested = {label for split, label in readable_counts(index, by_path) if split != "train"}
    return [name for i, name in enumerate(index.labels) if i not in tested] if tested else []


def _outside(index: Index, by_path: dict[str, FileFacts]) -> list[str]:
    readable = [(s, by_path[s.path]) for s in index.samples if by_path[s.path].readable]
    return [f"{s.path}: {problem}" for s, facts in readable if (problem := missing_part(s, facts))]


def _lines(index: Index, groups: Iterable[Group]) -> list[str]:
    return [" = ".join(_names(index, group)) for group in groups]


def _names(index: Index, group: Group) -> Iterator[str]:
    """Paths; with what sets them apart where one path is listed several times."""
    times = Counter(sample.path for sample in group)
    for sample in group:
        label = index.labels[sample.label] if sample.label >= 0 else "no label"
        yield f"{sample.path} ({sample.split}, {label})" if times[sample.path] > 1 else sample.path
