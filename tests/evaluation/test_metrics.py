"""Metrics against their definitions, written out."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fixformer.evaluation.metrics import class_recall, compute_metrics, confusion_matrix, predicted, worst_confusions
from fixformer.evaluation.scores import Scores, combine, have_finite_scores, label_rank, probabilities


def make_scores(score: list[list[float]], label: list[int], ranks: list[list[int]] | None = None) -> Scores:
    count = len(label)
    clip_rank = torch.tensor(ranks) if ranks else torch.zeros(count, 1, dtype=torch.int64)
    return Scores(torch.tensor(score), torch.tensor(label), torch.arange(count), clip_rank)


def test_by_hand() -> None:
    score = [[3.0, 1, 0], [0, 2, 1], [5, 1, 2], [0, 0, 1]]
    scores = make_scores(score, [0, 1, 1, 2], [[0, 1], [0, 0], [2, 7], [0, 5]])
    metrics = compute_metrics(scores)
    assert metrics.video_top1 == 0.75
    assert metrics.video_top5 == 1.0
    assert metrics.mean_class == pytest.approx((1 + 0.5 + 1) / 3)
    assert metrics.clip_top1 == 4 / 8
    assert metrics.clip_top5 == 6 / 8
    assert confusion_matrix(scores).tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 1]]
    assert class_recall(confusion_matrix(scores)) == [1.0, 0.5, 1.0]
    assert [(c.label, c.taken_for, c.videos) for c in worst_confusions(scores)] == [(1, 0, [2])]


def test_a_class_without_videos_does_not_count() -> None:
    scores = make_scores([[1.0, 0, 0], [0, 1, 0]], [0, 0])
    assert compute_metrics(scores).mean_class == 0.5
    assert class_recall(confusion_matrix(scores)) == [0.5, None, None]


def test_one_value_that_is_no_number_spoils_a_video() -> None:
    """Also where only the sum of the views is none."""
    logits = torch.zeros(5, 2, 3)
    logits[1, 0, 2], logits[2, 1, 0], logits[3, :, 1] = float("nan"), float("-inf"), 3e38
    assert have_finite_scores(logits).tolist() == [True, False, False, False, True]


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(2, 9), st.integers(1, 3))
def test_ranks_and_aggregation(seed: int, videos: int, classes: int, levels: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    score = torch.randint(levels, (videos, classes), generator=rng).float()  # with ties
    label = torch.randint(classes, (videos,), generator=rng)
    order = [sorted(range(classes), key=lambda k: (-row[k].item(), k)) for row in score]
    assert label_rank(score, label).tolist() == [
        places.index(k) for places, k in zip(order, label.tolist(), strict=True)
    ]
    scores = Scores(score, label, torch.arange(videos), torch.zeros(videos, 1))
    assert predicted(scores).tolist() == [places[0] for places in order]
    logits = torch.randn(videos, 4, classes, generator=rng)
    torch.testing.assert_close(combine(logits, "logits"), logits.sum(1))
    torch.testing.assert_close(combine(logits, "probabilities"), logits.softmax(-1).mean(1))
    for aggregate in ("logits", "probabilities"):
        shares = probabilities(logits, aggregate)
        torch.testing.assert_close(shares.sum(-1), torch.ones(videos))
        assert (shares.argmax(-1) == combine(logits, aggregate).argmax(-1)).all()


def test_parts_join_in_the_order_of_the_split() -> None:
    first = Scores(torch.tensor([[1.0, 0], [2, 0]]), torch.tensor([0, 0]), torch.tensor([3, 1]), torch.zeros(2, 1))
    second = Scores(torch.tensor([[5.0, 0]]), torch.tensor([1]), torch.tensor([2]), torch.zeros(1, 1))
    joined = Scores.join([first, second, Scores.empty(2, 1)])
    assert joined.index_N.tolist() == [1, 2, 3]
    assert joined.score_NK[:, 0].tolist() == [2, 5, 1]
    assert joined.label_N.tolist() == [0, 1, 0]
