"""Videos that are in a data set twice: byte for byte, or to the eye."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fixformer.data.audit.facts import FileFacts
from fixformer.data.audit.fingerprint import similar_pairs
from fixformer.data.listing import UNLABELLED, Sample

Group = list[Sample]


@dataclass(frozen=True)
class Duplicates:
    """Groups of samples of the same content. `similar` are paths: a test video and a training video of other bytes."""

    leaked: list[Group]
    contradicting: list[Group]
    repeated: list[Group]
    similar: list[tuple[str, str]]


def find_duplicates(samples: list[Sample], by_path: dict[str, FileFacts]) -> Duplicates:
    """Compare content within and between splits, and pictures between training and test."""
    same = list(_identical(samples, by_path))
    return Duplicates(
        leaked=[group for group in same if crosses(sample.split for sample in group)],
        contradicting=[group for group in same if len({sample.label for sample in group} - {UNLABELLED}) > 1],
        repeated=[group for group in same if not crosses(sample.split for sample in group)],
        similar=[pair for pair in _similar(samples, by_path) if by_path[pair[0]].digest != by_path[pair[1]].digest],
    )


def crosses(splits: Iterable[str]) -> bool:
    """Whether there is a training video among them, and one that is not."""
    return len({split == "train" for split in splits}) == 2


def _identical(samples: list[Sample], by_path: dict[str, FileFacts]) -> Iterator[Group]:
    """Samples of one content, however often its path is listed; parts of a file are the same where they overlap."""
    by_content: dict[str, Group] = defaultdict(list)
    for sample in samples:
        by_content[by_path[sample.path].digest or sample.path].append(sample)
    for group in by_content.values():
        yield from (sorted(part, key=lambda s: s.path) for part in _overlapping(group) if len(part) > 1)


def _overlapping(samples: Group) -> Iterator[Group]:
    """The samples in groups that are connected in time."""
    group: Group = []
    reached = -math.inf
    for sample in sorted(samples, key=_begin):
        if group and _begin(sample) >= reached:
            yield group
            group = []
        group.append(sample)
        reached = max(reached, math.inf if sample.end is None else sample.end)
    yield group


def _begin(sample: Sample) -> float:
    return sample.start or 0.0


def _similar(samples: list[Sample], by_path: dict[str, FileFacts]) -> Iterator[tuple[str, str]]:
    seen = [sample for sample in samples if by_path[sample.path].fingerprint]
    train = list(dict.fromkeys(sample.path for sample in seen if sample.split == "train"))
    other = list(dict.fromkeys(sample.path for sample in seen if sample.split != "train"))
    if train and other:
        prints = [[by_path[path].fingerprint for path in paths] for paths in (other, train)]
        for i, j, _ in similar_pairs(*prints):
            yield other[i], train[j]
