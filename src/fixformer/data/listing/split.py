"""Names of splits, and dividing samples into training and validation by seed and, where known, by group."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace

from fixformer.data.listing.index import ListingError, Sample

SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validate": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
}


def split_of_name(name: str) -> str | None:
    """The split that a file or directory name stands for: `train`, `kinetics-400_val`, `my.validation`."""
    words = name.lower().replace("-", "_").replace(".", "_").replace(" ", "_").split("_")
    found = {SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES}
    return found.pop() if len(found) == 1 else None


def stable_order(names: Iterable[str], seed: int) -> list[str]:
    """A shuffle in which adding a name does not change the order of the others."""
    return sorted(names, key=lambda name: stable_key(name, seed))


def stable_key(name: str, seed: int) -> bytes:
    """The sort key of `stable_order`."""
    return hashlib.blake2b(f"{seed}/{name}".encode("utf-8", "surrogateescape")).digest()


def split_by_seed(
    samples: list[Sample], seed: int, val_fraction: float, groups: dict[str, str], problems: list[str]
) -> list[Sample]:
    """Samples with their split set. With groups, no group is divided; without, every class is, in proportion."""
    grouped = [replace(s, group=groups.get(s.id, s.group)) for s in samples]
    if require_all_or_no_groups(grouped):
        held_out = _held_out_groups(grouped, seed, val_fraction)
        result = [replace(s, split="val" if s.group in held_out else "train") for s in grouped]
        problems += _uncovered(result)
        return result
    held_out = _held_out_ids(grouped, seed, val_fraction)
    return [replace(s, split="val" if s.id in held_out else "train") for s in grouped]


def require_all_or_no_groups(samples: list[Sample]) -> bool:
    """Whether groups are known; a `ListingError` if only those of some videos are."""
    ungrouped = [s.id for s in samples if s.group is None]
    if 0 < len(ungrouped) < len(samples):
        raise ListingError(
            f"{len(ungrouped)} of {len(samples)} videos have no group, first {ungrouped[0]!r}; "
            "give every video a group or none."
        )
    return bool(samples) and not ungrouped


def _held_out_groups(samples: list[Sample], seed: int, val_fraction: float) -> set[str]:
    sizes = Counter(s.group for s in samples if s.group is not None)
    if len(sizes) < 2:
        raise ListingError(f"only one group ({next(iter(sizes))!r}); a split by group needs two or more.")
    chosen: set[str] = set()
    held = 0
    for group in stable_order(sizes, seed)[:-1]:  # the last group stays for training
        # a group is held out if that brings the share nearer to the wanted one
        if chosen and held + sizes[group] / 2 > val_fraction * len(samples):
            break
        chosen.add(group)
        held += sizes[group]
    return chosen


def _held_out_ids(samples: list[Sample], seed: int, val_fraction: float) -> set[str]:
    by_label: dict[int, list[str]] = defaultdict(list)
    for sample in samples:
        by_label[sample.label].append(sample.id)
    held_out: set[str] = set()
    for ids in by_label.values():
        count = min(max(round(val_fraction * len(ids)), 1), len(ids) - 1)
        held_out.update(stable_order(ids, seed)[:count])
    return held_out


def _uncovered(samples: list[Sample]) -> list[str]:
    labels = {s.label for s in samples}
    problems = []
    for split in ("train", "val"):
        lacking = labels - {s.label for s in samples if s.split == split}
        if lacking:
            problems.append(
                f"the split by group leaves {len(lacking)} classes without a {split} video; try another seed."
            )
    return problems
