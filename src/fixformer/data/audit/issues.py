"""Everything that can be wrong with a data set, one kind of issue at a time."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fixformer.data.audit.differences import split_differences
from fixformer.data.audit.duplicates import Duplicates, SampleGroup
from fixformer.data.audit.probe import FileProbe
from fixformer.data.clips.sampling import part_problem
from fixformer.data.listing import Index, Sample

# Frame rates outside this range are nearly always wrong headers (1000 fps of some WebM files) or time-lapse.
USUAL_FPS = (5.0, 120.0)


@dataclass(frozen=True)
class Issue:
    """One kind of issue, and what has it: files, groups of files that are the same, or classes."""

    kind: str
    message: str
    items: list[str]


def find_issues(index: Index, probes: dict[str, FileProbe], duplicates: Duplicates, min_frames: int) -> Iterator[Issue]:
    """All issues, most serious first."""
    for problem in index.problems:
        yield Issue("listing", problem, [])
    readable = readable_counts(index, probes)
    tested = {label for split, label in readable if split != "train"}
    untrained = [name for i, name in enumerate(index.labels) if i in tested and not readable["train", i]]
    untested = [name for i, name in enumerate(index.labels) if tested and i not in tested]
    similar = [" = ".join(pair) for pair in duplicates.similar]
    found = {
        ("missing", "listed, but the file does not exist"): [sample.path for sample in index.missing],
        **_file_issues(probes.values(), min_frames),
        ("frame_count", "decoded frames differ from the listed number"): _wrong_frame_counts(index, probes),
        ("outside", "the listed part is not in the file"): _missing_parts(index, probes),
        ("leak", "in training and in test with identical content"): _group_lines(index, duplicates.leaked),
        ("similar", "test videos that look like a training video, though their bytes differ"): similar,
        ("label_conflict", "identical content under different labels"): _group_lines(index, duplicates.contradicting),
        ("duplicate", "identical content several times in one part"): _group_lines(index, duplicates.repeated),
        ("split_difference", "unlike the training videos, which may cost accuracy"): [
            *split_differences(index, probes)
        ],
        ("label_mismatch", "classes of test videos without a readable training video"): untrained,
        ("empty_class", "classes without a readable test video"): untested,
        ("ignored", "files among the videos without the suffix of a video"): index.ignored,
        ("skipped", "directories that fixformer wrote, which are not part of the set"): index.skipped,
    }
    for (kind, message), items in found.items():
        if items:
            yield Issue(kind, message, items)


def readable_counts(index: Index, probes: dict[str, FileProbe]) -> Counter[tuple[str, int]]:
    """Videos by (split, label) that are readable, give a clip and contain the listed part."""
    usable = (s for s in index.samples if probes[s.path].readable and not probes[s.path].unusable)
    good = (s for s in usable if not missing_part(s, probes[s.path]))
    return Counter((s.split, s.label) for s in good)


def missing_part(sample: Sample, probe: FileProbe) -> str | None:
    """Why a readable file does not contain the listed part; None if it does."""
    if sample.start is None and sample.end is None:
        return None
    if probe.frames > 1 and probe.duration == 0:
        return "the list gives seconds, but the video has no timestamps"
    return part_problem(sample.start, sample.end, probe.duration if probe.frames > 1 else math.inf)


def is_truncated(probe: FileProbe) -> bool:
    """Whether frames are missing at the end: the header promises clearly more time than there is.

    Headers round, and sound may outlast the pictures: half a second or 5 % is not counted.
    """
    if not probe.readable or probe.header_duration is None:
        return False
    return probe.header_duration - probe.duration > max(0.5, 0.05 * probe.header_duration)


def has_odd_rate(probe: FileProbe) -> bool:
    """Whether frame numbers and times are not related as the header says, to 10 %, or at an unusual rate."""
    if not probe.readable or probe.container == "images":
        return False
    if probe.fps is None or not USUAL_FPS[0] <= probe.fps <= USUAL_FPS[1]:
        return True
    measured = probe.measured_fps or probe.fps
    # NTSC's 29.97 for 30 and rounded headers differ by less than a tenth
    return probe.variable_rate or abs(measured / probe.fps - 1) > 0.1


def _file_issues(probes: Iterable[FileProbe], min_frames: int) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {
        ("unreadable", "cannot be decoded at all"): [],
        ("no_video", "no video stream"): [],
        ("damaged", "damaged; the good frames are usable"): [],
        ("truncated", "shorter than the header says"): [],
        ("unusable", "readable, but no clip can be cut from it"): [],
        ("too_short", f"fewer than {min_frames} frames"): [],
        ("odd_rate", "unusual, variable or unknown frame rate"): [],
    }
    unreadable, no_video, damaged, truncated, unusable, too_short, odd_rate = found.values()
    by_status = {"unreadable": unreadable, "missing": unreadable, "no_video": no_video, "damaged": damaged}
    for probe in probes:
        if probe.status in by_status:
            by_status[probe.status].append(f"{probe.path}: {probe.problem}")
        if is_truncated(probe):
            truncated.append(f"{probe.path}: {probe.duration:.1f} of {probe.header_duration:.1f} s")
        if probe.unusable:
            unusable.append(f"{probe.path}: {probe.unusable}")
        if 0 < probe.frames < min_frames:
            too_short.append(f"{probe.path}: {probe.frames}")
        if has_odd_rate(probe):
            header = "unknown" if probe.fps is None else f"{probe.fps:.2f}"
            measured = "" if probe.measured_fps is None else f", measured {probe.measured_fps:.2f}"
            variable = ", variable" if probe.variable_rate else ""
            odd_rate.append(f"{probe.path}: {header} fps in the header{measured}{variable}")
    return found


def _wrong_frame_counts(index: Index, probes: dict[str, FileProbe]) -> list[str]:
    """Lists of `path frames label` state a number of frames, which other tools may have counted differently."""
    whole = [(s, probes[s.path]) for s in index.samples if s.frames and s.start is None and probes[s.path].readable]
    return [f"{s.path}: {s.frames} listed, {probe.frames} decoded" for s, probe in whole if s.frames != probe.frames]


def _missing_parts(index: Index, probes: dict[str, FileProbe]) -> list[str]:
    readable = [(s, probes[s.path]) for s in index.samples if probes[s.path].readable]
    return [f"{s.path}: {problem}" for s, probe in readable if (problem := missing_part(s, probe))]


def _group_lines(index: Index, groups: Iterable[SampleGroup]) -> list[str]:
    """One line per group: its paths, with split and label where one path is listed several times."""
    lines = []
    for group in groups:
        times = Counter(sample.path for sample in group)
        names = []
        for sample in group:
            label = index.labels[sample.label] if sample.label >= 0 else "no label"
            names.append(f"{sample.path} ({sample.split}, {label})" if times[sample.path] > 1 else sample.path)
        lines.append(" = ".join(names))
    return lines
