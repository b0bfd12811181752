"""A quick look for the same video in training and in test, or under two labels, before a run.

`check` decodes every file and compares all there is. This reads nothing of most files: only those of equal size can
have equal content, and nearly all of these differ near their beginning or end.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator

from fixformer.data.audit.duplicates import SampleGroup, identical_groups, is_contradicting, is_leaked
from fixformer.data.listing import Index
from fixformer.data.video.content import content_digest, digest_of
from fixformer.data.video.shard_member import file_of, parse_member
from fixformer.runtime.console import printable
from fixformer.runtime.files import open_file

# Beyond so many videos only their paths are compared: at half a millisecond each, as on a network file system, even
# asking for their sizes would take longer than ten seconds.
MOST_FILES = 20_000
SHOWN_PATHS = 2  # of one content; a set may hold it any number of times
ENDS = 1 << 16  # bytes from the beginning and the end of a file, which hold its headers and tables


def overlap_notes(index: Index) -> Iterator[str]:
    """A sentence about videos that make the score of a run meaningless, and one about labels that contradict."""
    paths = list(dict.fromkeys(sample.path for sample in index.samples))
    groups = list(identical_groups(index.samples, quick_digests(paths) if len(paths) <= MOST_FILES else {}))
    if leaked := list(filter(is_leaked, groups)):
        # as `check` counts them: every test video that was learnt raises the score
        count = sum(sample.split != "train" for group in leaked for sample in group)
        yield _note("videos in training and in test, so that the score is too high", count, leaked[0])
    if contradicting := list(filter(is_contradicting, groups)):
        yield _note("videos with more than one label", len(contradicting), contradicting[0])


def _note(what: str, count: int, first: SampleGroup) -> str:
    paths = list(dict.fromkeys(printable(sample.path) for sample in first))
    more = f" and {len(paths) - SHOWN_PATHS:,} more" if len(paths) > SHOWN_PATHS else ""
    return f"{what}: {count:,}, first {' = '.join(paths[:SHOWN_PATHS])}{more}; `fixformer check` lists them"


def quick_digests(paths: Iterable[str]) -> dict[str, str]:
    """What identifies the content of each path that has the same content as another; the others have none."""
    groups = [list(paths)]
    for key in (_size, _ends, content_digest):
        groups = [same for group in groups for same in _same(group, key)]
    return {path: f"content {number}" for number, group in enumerate(groups) for path in group}


def _same(paths: list[str], key: Callable[[str], Hashable]) -> Iterator[list[str]]:
    """The paths with equal keys; those without a key, or whose file cannot be read, are nobody's equals."""
    found: dict[Hashable, list[str]] = defaultdict(list)
    for path in paths:
        try:
            found[key(path)].append(path)
        except (OSError, ValueError):  # DecodeError, too; a reader will name the file
            continue
    return (group for value, group in found.items() if value and len(group) > 1)


def _size(path: str) -> int | None:
    """The bytes of a video; None for a folder of images, whose many files would have to be asked one by one."""
    place, member = file_of(path), parse_member(path)
    if not os.path.isfile(place):
        return None
    return member.size if member else place.stat().st_size


def _ends(path: str) -> str:
    member, size = parse_member(path), _size(path) or 0
    begin = member.offset if member else 0
    with open_file(file_of(path), "rb") as file:
        file.seek(begin)
        first = file.read(min(ENDS, size))
        file.seek(begin + max(0, size - ENDS))
        return digest_of(first + file.read(min(ENDS, size)))
