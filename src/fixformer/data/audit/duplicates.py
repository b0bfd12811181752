"""Videos that occur twice in a data set: with identical bytes, or with the same pictures."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
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
    groups = list(identical_groups(samples, {path: probe.digest for path, probe in probes.items()}))
    leaked: list[SampleGroup] = []
    repeated: list[SampleGroup] = []
    for group in groups:
        (leaked if is_leaked(group) else repeated).append(group)
    return Duplicates(
        leaked=leaked,
        contradicting=[group for group in groups if is_contradicting(group)],
        repeated=repeated,
        similar=[(a, b) for a, b in _similar(samples, probes) if probes[a].digest != probes[b].digest],
    )


def is_leaked(group: SampleGroup) -> bool:
    """Whether the same content is in training and in test."""
    return len({sample.split == "train" for sample in group}) == 2


def is_contradicting(group: SampleGroup) -> bool:
    """Whether the same content has several labels."""
    return len({sample.label for sample in group} - {UNLABELLED}) > 1


def identical_groups(samples: list[Sample], digests: Mapping[str, str]) -> Iterator[SampleGroup]:
    """Samples of the same content, however often its path is listed; parts of a file only where they overlap.

    Args:
        digests: of the content, by path; a path without one is compared by its name only.
    """
    by_content: dict[str, SampleGroup] = defaultdict(list)
    for sample in samples:
        by_content[digests.get(sample.path) or sample.path].append(sample)
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
