"""Videos that occur twice in a data set: with identical bytes, or with the same pictures."""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from fixformer.data.audit.fingerprint import similar_pairs
from fixformer.data.audit.probe import FileProbe
from fixformer.data.listing import UNLABELLED, Sample

SampleGroup = list[Sample]


@dataclass(frozen=True)
class Duplicates:
    """Groups of samples with the same content: in training and test, under several labels, or within one part.

    `similar` are pairs of paths: a test video and a training video of other bytes that look the same.
    """

    leaked: list[SampleGroup]
    contradicting: list[SampleGroup]
    repeated: list[SampleGroup]
    similar: list[tuple[str, str]]


def find_duplicates(samples: list[Sample], probes: dict[str, FileProbe]) -> Duplicates:
    """Compare content within and between splits, and pictures between training and test."""
    groups = list(_identical(samples, probes))
    leaked: list[SampleGroup] = []
    repeated: list[SampleGroup] = []
    for group in groups:
        in_train = {sample.split == "train" for sample in group}
        (leaked if len(in_train) == 2 else repeated).append(group)
    return Duplicates(
        leaked=leaked,
        contradicting=[group for group in groups if len({sample.label for sample in group} - {UNLABELLED}) > 1],
        repeated=repeated,
        similar=[(a, b) for a, b in _similar(samples, probes) if probes[a].digest != probes[b].digest],
    )


def _identical(samples: list[Sample], probes: dict[str, FileProbe]) -> Iterator[SampleGroup]:
    """Samples of the same content, however often its path is listed; parts of a file only where they overlap."""
    by_content: dict[str, SampleGroup] = defaultdict(list)
    for sample in samples:
        by_content[probes[sample.path].digest or sample.path].append(sample)
    for group in by_content.values():
        yield from (sorted(part, key=lambda s: s.path) for part in _overlapping(group) if len(part) > 1)


def _overlapping(samples: SampleGroup) -> Iterator[SampleGroup]:
    """The samples in groups that are connected in time."""
    group: SampleGroup = []
    group_end = -math.inf
    for sample in sorted(samples, key=lambda s: s.start or 0.0):
        if group and (sample.start or 0.0) >= group_end:
            yield group
            group = []
        group.append(sample)
        group_end = max(group_end, math.inf if sample.end is None else sample.end)
    yield group


def _similar(samples: list[Sample], probes: dict[str, FileProbe]) -> Iterator[tuple[str, str]]:
    """(test, training) paths whose fingerprints agree."""
    decoded = [sample for sample in samples if probes[sample.path].fingerprint]
    train = list(dict.fromkeys(sample.path for sample in decoded if sample.split == "train"))
    test = list(dict.fromkeys(sample.path for sample in decoded if sample.split != "train"))
    if train and test:
        prints = [[probes[path].fingerprint for path in paths] for paths in (test, train)]
        for i, j, _ in similar_pairs(*prints):
            yield test[i], train[j]
