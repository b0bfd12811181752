"""Averaged weights."""

import torch
from torch import nn

from fixformer.models.attention.kinds import PerformerAttention
from fixformer.training.ema import Ema
from fixformer.training.loss import soft_cross_entropy


def test_the_average_follows_its_definition() -> None:
    model = nn.Linear(1, 1, bias=False)
    ema = Ema(model, decay=0.5)
    expected = model.weight.item()
    for step, value in enumerate((1.0, 3.0, -2.0)):
        with torch.no_grad():
            model.weight.fill_(value)
        ema.update(model, step)
        keep = min(0.5, (1 + step) / (10 + step))
        expected = keep * expected + (1 - keep) * value
        assert abs(ema.average["weight"].item() - expected) < 1e-6


def test_borrowing_the_model_leaves_no_trace() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    ema = Ema(model, decay=0.9)
    model(torch.randn(8, 4))
    with torch.no_grad():
        model[0].weight.mul_(1.1)
    ema.update(model, 100)
    trained = {name: value.clone() for name, value in model.state_dict().items()}
    average = {name: value.clone() for name, value in ema.average.items()}
    assert not torch.equal(trained["0.weight"], average["0.weight"])
    with ema.in_place_of(model):
        assert all(torch.equal(value, average[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(value, trained[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(value, average[name]) for name, value in ema.average.items())
    assert ema.average["1.num_batches_tracked"] == 1


def test_batch_statistics_are_averaged_and_random_features_copied() -> None:
    model = nn.Sequential(nn.BatchNorm1d(4), PerformerAttention(4, 8, redraw_every=1))
    ema = Ema(model, decay=0.9)
    for step in range(20):
        model[0](torch.randn(8, 4) + 3)
        model[1].count_pass()
        ema.update(model, step)
    assert torch.equal(ema.average["1.projection_RE"], model[1].projection_RE)
    assert 0 < ema.average["0.running_mean"].mean() < model[0].running_mean.mean()


def test_the_loss_is_smoothing_cross_entropy() -> None:
    """(1 - 0.3) NLL + 0.3 mean over classes of -log p, as the released code writes it."""
    logits, labels = torch.randn(5, 7, dtype=torch.float64), torch.tensor([0, 3, 6, 2, 2])
    targets = torch.nn.functional.one_hot(labels, 7) * 0.7 + 0.3 / 7
    log_p = logits.log_softmax(-1)
    expected = 0.7 * -log_p[range(5), labels].mean() + 0.3 * -log_p.mean()
    torch.testing.assert_close(soft_cross_entropy(logits, targets), expected.float(), rtol=1e-5, atol=1e-6)
