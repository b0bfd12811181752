"""Cross-validation: a set divided into folds, each of which is the validation split once.

What belongs together stays together: the videos of one group (a person, a recording) where groups are known, otherwise
the parts of one file. Every class is spread over the folds as evenly as that allows.
"""

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Annotated

from fixformer.config.schema import at_least, checked
from fixformer.data.listing.index import UNLABELLED, Index, ListingError, Sample, full_name
from fixformer.data.listing.split import require_all_or_no_groups, stable_key

# A class may end up in one fold only because of the order in which the groups are dealt out; finding the best order is
# a hard problem (set splitting), another order usually is enough.
TRIES = 50


@checked
def folds(index: Index, count: Annotated[int, at_least(2)], seed: int = 0) -> list[Index]:
    """The set `count` times, with another part as its validation split each time; the same for the same seed.

    The training and the validation videos are divided: each is in exactly one validation fold. Test videos stay what
    they are, so that a set with a test split keeps it for the end. Missing files are dealt out with the others, so that
    they are counted once. A fold whose training part lacks a class says so in its `problems`: that happens if the class
    has one video or one group only.
    """
    listed = [*index.samples, *index.missing]
    divided = [sample for sample in listed if sample.split != "test"]
    _require_labels(divided, index)
    require_all_or_no_groups(divided)
    names = [sample.path if sample.group is None else sample.group for sample in divided]
    units: dict[str, Counter[int]] = defaultdict(Counter)
    for name, sample in zip(names, divided, strict=True):
        units[name][sample.label] += 1
    if len(units) < count:
        what = "videos" if all(sample.group is None for sample in divided) else "groups"
        raise ListingError(f"folds={count}: {full_name(index.root)} has only {len(units)} {what}; use fewer folds.")
    fold_of = _deal(units, count, seed)
    return [_fold(index, fold_of, number, count) for number in range(count)]


def _require_labels(samples: list[Sample], index: Index) -> None:
    unlabelled = [sample.id for sample in samples if sample.label == UNLABELLED]
    if unlabelled:
        raise ListingError(
            f"{len(unlabelled)} videos in {full_name(index.root)} have no label, first {unlabelled[0]!r}; "
            "cross-validation scores every video, so label them or remove them."
        )


def _deal(units: dict[str, Counter[int]], count: int, seed: int) -> dict[str, int]:
    """The fold of every unit. Large units first, then one class after the other, is the order that balances best."""
    shuffled = sorted(units, key=lambda name: stable_key(name, seed))
    best = _deal_in_order(sorted(shuffled, key=lambda name: (-units[name].total(), min(units[name]))), units, count)
    for number in range(1, TRIES):
        if not _stranded(units, best):
            break
        order = sorted(units, key=lambda name: stable_key(f"{number}/{name}", seed))
        best = min(best, _deal_in_order(order, units, count), key=lambda dealt: len(_stranded(units, dealt)))
    return best


def _deal_in_order(order: list[str], units: dict[str, Counter[int]], count: int) -> dict[str, int]:
    """Each unit goes to the fold that has the smallest share of its classes and, of those, the fewest videos.

    Before that, the last unit of a class does not join all others of its class in one fold.
    """
    per_class: Counter[int] = Counter()
    waiting: Counter[int] = Counter()  # units with a class that are not dealt out yet
    for labels in units.values():
        per_class.update(labels)
        waiting.update(labels.keys())
    held: list[Counter[int]] = [Counter() for _ in range(count)]
    dealt: dict[str, int] = {}
    folds_of: dict[int, set[int]] = defaultdict(set)
    for name in order:
        labels = units[name]
        waiting.subtract(labels.keys())

        def cost(fold: int, labels: Counter[int] = labels) -> tuple[int, float, int, int]:
            stranded = sum(not waiting[label] and folds_of[label] == {fold} for label in labels)
            share = sum(held[fold][label] * videos / per_class[label] for label, videos in labels.items())
            return stranded, share, held[fold].total(), fold

        fold = dealt[name] = min(range(count), key=cost)
        held[fold].update(labels)
        for label in labels:
            folds_of[label].add(fold)
    return dealt


def _stranded(units: dict[str, Counter[int]], fold_of: dict[str, int]) -> list[int]:
    """Classes of several units that are all in one fold."""
    found: dict[int, list[int]] = defaultdict(list)
    for name, labels in units.items():
        for label in labels:
            found[label].append(fold_of[name])
    return [label for label, places in found.items() if len(places) > 1 and len(set(places)) == 1]


def _fold(index: Index, fold_of: dict[str, int], number: int, count: int) -> Index:
    def placed(sample: Sample) -> Sample:
        if sample.split == "test":
            return sample
        is_held_out = fold_of[sample.path if sample.group is None else sample.group] == number
        return replace(sample, split="val" if is_held_out else "train")

    samples, missing = list(map(placed, index.samples)), list(map(placed, index.missing))
    trained = {sample.label for sample in samples if sample.split == "train"}
    lacking = [name for i, name in enumerate(index.labels) if i not in trained]
    problems = list(index.problems)
    if lacking:
        problems.append(
            f"fold {number + 1} of {count} of {full_name(index.root)} has no training video of {len(lacking)} classes, "
            f"first {lacking[0]!r}, whose videos are all in one group or fold; add videos or remove the class."
        )
    return replace(index, samples=samples, missing=missing, problems=problems)
