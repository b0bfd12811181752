"""Videos that are in a data set twice: byte for byte, or to the eye."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fixformer.data.facts import FileFacts
from fixformer.data.hashing import similar_pairs
from fixformer.data.index import Sample

Group = list[str]


@dataclass(frozen=True)
class Duplicates:
    """Groups of paths. `similar` are pairs of a test video and a training video that are not already `leaked`."""

    leaked: list[Group]
    contradicting: list[Group]
    repeated: list[Group]
    similar: list[Group]

    @property
    def leaked_paths(self) -> set[str]:
        return {path for group in self.leaked for path in group}


def find_duplicates(samples: list[Sample], by_path: dict[str, FileFacts]) -> Duplicates:
    """Compare content within and between splits, and pictures between training and test."""
    split = {sample.path: sample.split for sample in samples}
    label = {sample.path: sample.label for sample in samples}
    same = list(_identical(split, by_path))
    leaked = [group for group in same if crosses(split[path] for path in group)]
    return Duplicates(
        leaked=leaked,
        contradicting=[group for group in same if len({label[path] for path in group}) > 1],
        repeated=[group for group in same if group not in leaked],
        similar=[pair for pair in _similar(split, by_path) if by_path[pair[0]].digest != by_path[pair[1]].digest],
    )


def crosses(splits: Iterable[str]) -> bool:
    """Whether there is a training video among them, and one that is not."""
    return len({split == "train" for split in splits}) == 2


def _identical(paths: Iterable[str], by_path: dict[str, FileFacts]) -> Iterator[Group]:
    groups: dict[str, Group] = defaultdict(list)
    for path in paths:
        if by_path[path].digest:
            groups[by_path[path].digest].append(path)
    return (sorted(group) for group in groups.values() if len(group) > 1)


def _similar(split: dict[str, str], by_path: dict[str, FileFacts]) -> Iterator[Group]:
    seen = [path for path in split if by_path[path].fingerprint]
    train = [path for path in seen if split[path] == "train"]
    other = [path for path in seen if split[path] != "train"]
    if train and other:
        prints = [[by_path[path].fingerprint for path in paths] for paths in (other, train)]
        for i, j, _ in similar_pairs(*prints):
            yield [other[i], train[j]]
