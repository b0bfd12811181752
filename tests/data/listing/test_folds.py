"""Cross-validation folds: nothing is lost or scored twice, no group is divided, every training part has every class."""

from collections import Counter
from dataclasses import replace
from itertools import chain, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixformer.data.listing import UNLABELLED, Index, ListingError, Sample, folds, load_index
from fixformer.errors import UserError

Pairs = list[tuple[int, int]]


def index_of(samples: list[Sample], missing: list[Sample] | None = None) -> Index:
    classes = max((s.label for s in samples), default=0) + 1
    return Index(Path("set"), "csv", samples, [f"class {i}" for i in range(classes)], missing or [])


def grouped(pairs: Pairs) -> Index:
    """One training video for every (label, group)."""
    return index_of([Sample(f"{i}.mp4", a, "train", f"{i}", group=f"g{b}") for i, (a, b) in enumerate(pairs)])


def numbered(labels: list[int]) -> Index:
    """Videos without groups, every third of them in the validation split."""
    return index_of([Sample(f"{i}.mp4", a, "val" if i % 3 == 2 else "train", f"{i}") for i, a in enumerate(labels)])


def held_out(parts: list[Index]) -> list[list[str]]:
    return [[s.id for s in part.split("val")] for part in parts]


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), min_size=6, max_size=60), st.integers(2, 6), st.integers(0, 99))
def test_without_groups_every_class_is_divided_evenly(labels: list[int], count: int, seed: int) -> None:
    index = numbered(labels)
    parts = folds(index, count, seed)
    assert sorted(chain.from_iterable(held_out(parts))) == sorted(s.id for s in index.samples)
    sizes = [len(part.split("val")) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    for label in set(labels):
        counts = [sum(s.label == label for s in part.split("val")) for part in parts]
        assert max(counts) - min(counts) <= 1
    for part in parts:
        assert [replace(s, split="") for s in part.samples] == [replace(s, split="") for s in index.samples]
        trained = {s.label for s in part.split("train")}
        assert all(label in trained for label, videos in Counter(labels).items() if videos > 1)
    assert parts == folds(index, count, seed)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=60),
    st.integers(2, 5),
    st.integers(0, 99),
)
def test_groups_are_never_divided(pairs: Pairs, count: int, seed: int) -> None:
    index = grouped(pairs)
    groups = {s.group for s in index.samples}
    if len(groups) < count:
        with pytest.raises(ListingError, match=f"only {len(groups)} groups"):
            folds(index, count, seed)
        return
    parts = folds(index, count, seed)
    assert sorted(chain.from_iterable(held_out(parts))) == sorted(s.id for s in index.samples)
    for part in parts:
        assert part.split("val")
        assert {s.group for s in part.split("train")}.isdisjoint(s.group for s in part.split("val"))
        trained = {s.label for s in part.split("train")}
        assert bool(part.problems) == (len(trained) < len(part.labels))


def uncovered(pairs: Pairs, fold_of: dict[int, int]) -> int:
    """Classes that are in one fold only, by the definition."""
    return sum(len({fold_of[b] for a, b in pairs if a == label}) == 1 for label in {a for a, _ in pairs})


@settings(deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=4, max_size=24, unique=True), st.integers(2, 3)
)
def test_as_many_classes_as_possible_are_in_every_training_part(pairs: Pairs, count: int) -> None:
    """Compared with the best of all ways to deal out the groups; derandomised, because dealing them out is a search."""
    groups = sorted({b for _, b in pairs})
    if len(groups) < count:
        return
    parts = folds(grouped(pairs), count, 0)
    fold_of = {int(s.group[1:]): i for i, part in enumerate(parts) for s in part.split("val") if s.group}
    ways = (dict(zip(groups, way, strict=True)) for way in product(range(count), repeat=len(groups)))
    assert uncovered(pairs, fold_of) == min(uncovered(pairs, way) for way in ways)


def test_equal_groups_make_equal_folds() -> None:
    parts = folds(grouped([(label, group) for label in range(4) for group in range(10) for _ in range(3)]), 5)
    assert [len(part.split("val")) for part in parts] == [24] * 5
    assert [len({s.group for s in part.split("val")}) for part in parts] == [2] * 5


def test_seeds_give_other_folds() -> None:
    index = numbered([0, 1] * 20)
    assert len({str(held_out(folds(index, 4, seed))) for seed in range(4)}) == 4


def test_test_videos_stay_and_missing_files_are_dealt_out_once() -> None:
    samples = [*numbered([0, 1] * 4).samples, Sample("t.mp4", 0, "test", "t"), Sample("u.mp4", UNLABELLED, "test", "u")]
    parts = folds(index_of(samples, [Sample("gone.mp4", 1, "train", "gone")]), 3)
    assert [[s.id for s in part.split("test")] for part in parts] == [["t", "u"]] * 3
    assert sorted(len(part.missing_in("val")) for part in parts) == [0, 0, 1]
    assert sorted(len(part.missing_in("train")) for part in parts) == [0, 1, 1]


def test_parts_of_one_file_stay_together() -> None:
    samples = [Sample(f"{i // 4}.mp4", i % 2, "train", f"{i}", i % 4, i % 4 + 1) for i in range(24)]
    for part in folds(index_of(samples), 3):
        assert {s.path for s in part.split("train")}.isdisjoint(s.path for s in part.split("val"))


def test_a_class_of_one_group_is_a_problem_of_one_fold() -> None:
    parts = folds(grouped([(0, 0), (0, 1), (0, 2), (1, 1), (1, 1)]), 3)
    [problem] = [problem for part in parts for problem in part.problems]
    assert "no training video of 1 classes, first 'class 1'" in problem
    with pytest.raises(ListingError, match="class 1"):
        next(part for part in parts if part.problems).require_trainable()


def test_errors_say_what_to_change() -> None:
    with pytest.raises(UserError, match="count=1: expected an int of at least 2"):
        folds(numbered([0, 1]), 1)
    with pytest.raises(ListingError, match=r"folds=5: .* has only 4 videos"):
        folds(numbered([0, 1, 0, 1]), 5)
    unlabelled = Sample("x.mp4", UNLABELLED, "val", "x")
    with pytest.raises(ListingError, match=r"1 videos in .* have no label, first 'x'"):
        folds(index_of([*numbered([0, 1] * 4).samples, unlabelled]), 2)
    with pytest.raises(ListingError, match="1 of 3 videos have no group, first '9'"):
        folds(index_of([*grouped([(0, 0), (1, 1)]).samples, Sample("9.mp4", 0, "train", "9")]), 2)


def test_groups_of_a_set_that_is_already_split(tmp_path: Path) -> None:
    names = [f"{split}/{c}/{i}.mp4" for split in ("train", "val") for c in "ab" for i in range(4)]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    rows = [f"{name},person {i % 4}" for i, name in enumerate(names)]
    (tmp_path / "groups.csv").write_text("\n".join(["path,subject", *rows]))
    index = load_index(tmp_path)
    assert [s.group for s in index.samples] == [f"person {i % 4}" for i in range(16)]
    assert all(len({s.group for s in part.split("val")}) == 1 for part in folds(index, 4))


def test_signers_of_lsa64(shared: Path) -> None:
    index = load_index(shared / "data" / "lsa64")
    parts = folds(index, 4)
    assert [len({s.group for s in part.split("val")}) for part in parts] == [2] * 4
    assert all(len(part.split("test")) == 640 and not part.problems for part in parts)
