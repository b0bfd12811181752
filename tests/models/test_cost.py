"""Costs: the exact counts of the released code, the paper's columns, and the split into parts."""

import pytest
import torch

from fixformer import create_model
from fixformer.errors import InputError
from fixformer.models.attention.kinds import LinearAttention
from fixformer.models.cost import as_published, cost, saved_bytes

PLAIN = {"fixation": "none", "association": "none"}


def golden_row(golden_costs: list[dict], **wanted: object) -> dict:
    return next(row for row in golden_costs if row["system"] == "LVT" and all(row[k] == v for k, v in wanted.items()))


@pytest.mark.parametrize(
    ("row", "settings"),
    [
        ({"gate": "none", "attention": "relu", "frames": 16}, PLAIN),
        ({"gate": "shared", "frames": 16, "size": 224}, {}),
        ({"gate": "unshared", "frames": 16, "size": 224}, {"fixation_shared": False}),
        ({"gate": "shared", "frames": 8}, {}),
        ({"gate": "shared", "frames": 32}, {}),
        ({"gate": "shared", "frames": 16, "size": 336}, {}),
        ({"gate": "none", "attention": "softmax"}, {**PLAIN, "attention": "softmax"}),
    ],
    ids=str,
)
def test_released_preset_is_exact(golden_costs: list[dict], row: dict, settings: dict) -> None:
    expected = golden_row(golden_costs, **row)
    counted = cost("fixformer_base_released", expected["frames"], expected["size"], **settings)
    assert counted.macs == expected["macs"]
    assert counted.by_operator == expected["macs_by_operator"]
    assert counted.params == expected["params"] - expected["of_which_unused_params"]["new_fc"]


@pytest.mark.parametrize(
    ("attention", "gflops"),
    [("performer", 250.571), ("cosformer", 250.571), ("linformer", 294.208), ("linear", 243.298), ("softmax", 253.355)],
)
def test_the_compared_attentions_in_our_backbone(attention: str, gflops: float) -> None:
    """systems.md, section 0: closed forms with 64 random features and 256 slots."""
    counted = cost("fixformer_base_released", attention=attention, **PLAIN)
    assert counted.macs / 1e9 == pytest.approx(gflops, abs=1e-3)
    plain = cost("fixformer_base_released", **PLAIN).params
    assert counted.params - plain == (12 * 256 * (2 * 289 + 16) if attention == "linformer" else 0)


@pytest.mark.parametrize(
    "settings", [{"attention": "mala"}, {"attention": "inline"}, {"attention": "rank"}, {"kernel": "polar"}]
)
def test_what_came_after_the_paper(settings: dict[str, str]) -> None:
    """A head's φ(k)ᵀv and φ(q)(φ(k)ᵀv) are 2·64² multiplications a token, of polar features twice as many.

    The mean query meets every key; powers are 64 for each of the 8 heads.
    """
    plain, counted = (cost("fixformer_base", **PLAIN, **more) for more in ({}, settings))
    tokens, attentions, heads = 16 * 17 * 17, 24, 8
    extra = {"rank": heads * 64, None: heads * 2 * 64**2}.get(settings.get("attention"), 0)
    assert counted.macs - plain.macs == attentions * tokens * extra
    assert counted.params - plain.params == (attentions * heads * 64 if "kernel" in settings else 0)
    assert counted.executed_macs < counted.macs


def test_the_gate_evaluated_once_makes_the_default_254_gflops() -> None:
    default = cost("fixformer_base")
    assert round(default.macs / 1e9, 1) == 254.2
    assert default.executed_macs < default.macs
    assert (default.paper_params_millions, default.paper_gflops) == (52.2, 257.8)
    assert cost("fixformer_base", fixation="none").paper_gflops is None


@pytest.mark.parametrize(("frames", "size", "printed"), [(32, 224, 530.2), (16, 336, 573.3)])
def test_variants_are_the_papers_to_a_thousandth(frames: int, size: int, printed: float) -> None:
    counted = cost("fixformer_base_released", frames, size)
    assert counted.paper_gflops == printed
    assert counted.macs / 1e9 == pytest.approx(printed, rel=1e-3)


@pytest.mark.parametrize(
    "name", ["fixformer_base", "fixformer_vit_tiny", "fixformer_base_released", "timesformer_base", "xvit_base"]
)
def test_parts_add_up(name: str) -> None:
    whole = cost(name, 4, 64)
    assert sum(part.macs for part in whole.parts) == whole.macs
    assert sum(part.params for part in whole.parts) == whole.params
    # The pooling between norm and head belongs to no part.
    assert sum(part.activations for part in whole.parts) == pytest.approx(whole.activations, rel=1e-2)


def test_cost_grows_linearly_with_frames() -> None:
    one, two = (cost("fixformer_base", frames, 224) for frames in (16, 32))
    head = next(part.macs for part in one.parts if part.name == "head")
    assert two.macs - head == 2 * (one.macs - head)


def test_a_failed_count_leaves_the_model_as_it_was() -> None:
    model = create_model("fixformer_tiny", depth=1)
    linear = next(module for module in model.modules() if isinstance(module, LinearAttention))
    with as_published(model):
        assert linear.product_order == "keys_values"
    with pytest.raises(InputError), as_published(model):
        model(torch.zeros(1, 1, 4, 32, 32))
    assert linear.product_order == "auto"
    with pytest.raises(InputError):
        saved_bytes(model, frames=0, size=32)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
