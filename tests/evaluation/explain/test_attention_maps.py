"""Recorded matrices are what the attention does; concentration, roll-out and Fig. 2 of matrices that are known."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fixformer.evaluation.explain.attention_maps import Recorded, named_attentions, record_attentions
from fixformer.evaluation.explain.concentration import as_shares, measure, parts, rank_correlation
from fixformer.evaluation.explain.figure_two import figure_two, separately_fixated
from fixformer.evaluation.explain.rollout import MeanMatrix, roll_out
from fixformer.models.attention.kinds import ATTENTION_KINDS
from fixformer.models.base import VideoModel
from fixformer.models.registry import create_model
from fixformer.ops import linear_attention_matrix

VIDEO = torch.randn(1, 3, 4, 32, 32, generator=torch.Generator().manual_seed(0))


def tiny(**settings: Any) -> VideoModel:
    torch.manual_seed(0)
    sizes = {"num_classes": 3, "num_frames": 4, "image_size": 32, "patch_size": 8, "patch_stride": 8}
    shape = {"patch_padding": 0, "embed_dim": 32, "depth": 2, "num_heads": 2, "head_hidden_dim": 16}
    return create_model("fixformer_tiny", **{**sizes, **shape, **settings}).eval()


def record(model: VideoModel) -> tuple[list[Recorded], Tensor]:
    found: list[Recorded] = []
    return found, record_attentions(model, VIDEO, found.append)


@pytest.mark.parametrize("attention", list(ATTENTION_KINDS))
@pytest.mark.parametrize("pattern", ["factorised", "joint"])
def test_matrices_times_values_are_the_output(attention: str, pattern: str) -> None:
    """Of every kind, and recording changes nothing."""
    kernel = {} if attention != "linear" else {"kernel": "relu"}
    model = tiny(attention=attention, pattern=pattern, **kernel)
    found, logits = record(model)
    axes = ["space", "time"] if pattern == "factorised" else ["joint"]
    assert [row.name for row in found] == [f"{block}.{axis}" for block in range(2) for axis in axes]
    for row in found:
        q, k, v = row.attended
        torch.testing.assert_close(row.matrix() @ v, row.module.attend(q, k, v, row.grid), rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(row.softmax_twin().sum(-1), torch.ones(q.shape[:3]))
    with torch.no_grad():
        torch.testing.assert_close(model(VIDEO), logits)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("attention", ["linear", "softmax", "mala", "inline", "rank"])
def test_matrices_are_formed_by_the_quadratic_definition(attention: str) -> None:
    """Not by what the module does to unit vectors, which would test it against itself."""
    (row, *_), _ = record(tiny(attention=attention, local=True, output_gate=True))
    module = row.module
    module.attend.forward = lambda *_: pytest.fail("the module was called")  # type: ignore[method-assign, assignment]
    matrix = row.matrix()
    torch.testing.assert_close(matrix.sum(-1), torch.ones(matrix.shape[:3]), atol=1e-4, rtol=0)


def test_the_matrix_of_polar_attention_is_the_mean_over_the_channels_of_the_values() -> None:
    (row, *_), _ = record(tiny(kernel="polar"))
    q, k, v = row.attended
    tokens = torch.arange(16)[:, None]
    columns = [row.module.attend(q, k, (tokens == j) * torch.ones_like(v), row.grid) for j in range(16)]
    expected = torch.stack([column.mean(-1) for column in columns], dim=-1)
    torch.testing.assert_close(row.matrix(), expected)
    torch.testing.assert_close(row.matrix().sum(-1), torch.ones(q.shape[:3]), atol=1e-3, rtol=0)


@pytest.mark.parametrize("attention", ["mala", "rank"])
def test_figure_two_takes_features_as_they_are(attention: str) -> None:
    """ReLU would not change them, but it adds a constant."""
    (row, *_), _ = record(tiny(attention=attention, fixation="none"))
    q, k, _ = row.attended
    panel = figure_two(row, 0, 0).panels[0]
    expected = linear_attention_matrix(q, k)[0].mean(0).numpy()
    np.testing.assert_allclose(panel.matrix_NN, expected, atol=1e-6)


def test_layers_of_other_models_are_named() -> None:
    model = create_model(
        "timesformer_base", num_classes=3, num_frames=2, image_size=32, embed_dim=32, depth=2, num_heads=2
    )
    assert list(named_attentions(model)) == ["0.time", "0.space", "1.time", "1.space"]


def test_concentration_of_known_matrices() -> None:
    N = 25
    uniform, single = torch.full((1, 1, N, N), 1 / N), torch.eye(N)[None, None]
    flat = measure(uniform, uniform)
    assert flat.entropy == pytest.approx(1)
    assert flat.top_tenth == pytest.approx(3 / N)
    assert flat.to_softmax == 0
    sharp = measure(single, uniform)
    assert sharp.entropy == pytest.approx(0, abs=1e-6)
    assert sharp.top_tenth == 1
    assert sharp.to_softmax == pytest.approx(1 - 1 / N)
    assert measure(torch.ones(1, 1, 1, 1), torch.ones(1, 1, 1, 1)).entropy == 1
    half = measure(torch.tensor([[[[0.5, 0.5, 0, 0]]]]), torch.full((1, 1, 1, 4), 0.25))
    assert half.entropy == pytest.approx(math.log(2) / math.log(4))
    assert half.to_softmax == pytest.approx(0.5)


def test_shares_of_negative_weights() -> None:
    torch.testing.assert_close(as_shares(torch.tensor([[-1.0, 3.0]])), torch.tensor([[0.25, 0.75]]))


def test_large_matrices_are_formed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    (row, *_), _ = record(tiny())
    whole = row.matrix()
    monkeypatch.setattr("fixformer.evaluation.explain.concentration.MATRIX_BYTES", 3 * 4 * 2 * 16 * 16)
    slices = list(parts(row))
    assert [part.stop - part.start for part in slices] == [3, 3]
    torch.testing.assert_close(torch.cat([row.matrix(part) for part in slices]), whole)


def test_rank_correlation() -> None:
    a = np.array([3.0, 1, 2, 5])
    assert rank_correlation(a, a**3) == pytest.approx(1)
    assert rank_correlation(a, -a) == pytest.approx(-1)
    # Spearman's with ties, by hand: ranks 1, 2.5, 2.5, 4 and 1, 3, 2, 4
    assert rank_correlation(np.array([0, 1, 1, 2]), np.array([0, 2, 1, 3])) == pytest.approx(math.sqrt(0.9))
    assert rank_correlation(a, np.zeros(4)) is None


def test_roll_out_follows_the_attention() -> None:
    """Shares add up to one; if all queries look at one token of each frame, it gets their half."""
    found, _ = record(tiny())
    means = [MeanMatrix(row.module, row.size_BTHW, as_shares(row.matrix()).mean(1)) for row in found]
    assert roll_out(means).sum() == pytest.approx(1, rel=1e-4)
    space = found[0]
    _, T, H, W = space.size_BTHW
    looks = torch.zeros(T, H * W, H * W)
    looks[:, :, 6] = 1
    share_THW = roll_out([MeanMatrix(space.module, space.size_BTHW, looks)])
    even = 1 / (T * H * W)
    assert share_THW[2, 6 // W, 6 % W] == pytest.approx(even / 2 + 1 / T / 2)
    assert share_THW[2, 0, 0] == pytest.approx(even / 2)


def test_figure_two_has_what_the_checkpoint_has() -> None:
    titles = {}
    for fixation in ("none", "separate", "cooperative"):
        (row, *_), _ = record(tiny(fixation=fixation))
        found = figure_two(row, 1, 3)
        titles[fixation] = [panel.title for panel in found.panels]
        assert len(found.notes) == (fixation != "cooperative")
        actual = as_shares(row.matrix())[1].mean(0).numpy()
        panel = {"none": 0, "separate": 1, "cooperative": 2}[fixation]
        np.testing.assert_allclose(found.panels[panel].matrix_NN, actual, atol=1e-6)
        assert found.panels[-1].concentration.to_softmax == pytest.approx(0, abs=1e-6)
    assert titles["none"] == ["linear", "softmax"]
    assert titles["separate"] == ["linear", "+ separate fixation", "softmax"]
    assert titles["cooperative"] == ["linear", "+ separate fixation", "+ cooperative fixation", "softmax"]


@pytest.mark.parametrize("order", ["association_first", "fixation_first"])
def test_the_matrices_of_both_orders(order: str) -> None:
    (row, *_), _ = record(tiny(order=order))
    cooperative = figure_two(row, 0, 0).panels[2]
    np.testing.assert_allclose(cooperative.matrix_NN, as_shares(row.matrix())[0].mean(0).numpy(), atol=1e-6)


@pytest.mark.parametrize("shared", [True, False])
def test_separate_fixation_of_a_cooperative_gate(shared: bool) -> None:
    """A gate that looks at nothing but the query gives the query what it gave before, whatever the others are."""
    model = tiny(fixation_shared=shared)
    fixate = named_attentions(model)["0.space"].fixate
    gate = fixate.gate if shared else fixate.gate_q
    with torch.no_grad():
        gate.fc.weight[:, 16:] = 0  # type: ignore[union-attr, operator, index]
    (row, *_), _ = record(model)
    pair = separately_fixated(row)
    assert pair is not None
    q, k, v = row.to_fixate
    torch.testing.assert_close(pair[0], fixate(q, k, v)[0])
    assert not torch.allclose(pair[1], fixate(q, k, v)[1])
