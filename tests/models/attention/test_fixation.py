"""Feature fixation: golden gates, and the ratios' meaning."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from fixformer.models.attention.fixation import (
    MERGES,
    Gate,
    SeparateFixation,
    SharedFixation,
    TwiceEvaluatedFixation,
    UnsharedFixation,
    concat,
)
from fixformer.ops import linear_attention, relu

WIDTH = 8


def golden_fixation(golden: dict[str, torch.Tensor], kind: str) -> nn.Module:
    module = SharedFixation(WIDTH, 3) if kind == "shared" else UnsharedFixation(WIDTH, 3)
    names = {"shared": {"gate": "pgate"}, "unshared": {"gate_q": "q_gate", "gate_k": "k_gate"}}[kind]
    for ours, theirs in names.items():
        for part in ("weight", "bias"):
            getattr(module, ours).fc.register_parameter(
                part, nn.Parameter(golden[f"weights.gate_{kind}.{theirs}.{part}"])
            )
    return module.double()


@pytest.mark.parametrize("kind", ["shared", "unshared"])
def test_golden_output_and_gradients(golden_dir: Path, kind: str) -> None:
    golden = load_file(golden_dir / "op_relu_linear.safetensors")
    q, k, v = (golden[name].double().requires_grad_() for name in "qkv")
    out = linear_attention(*golden_fixation(golden, kind)(relu(q), relu(k), v), v)
    torch.testing.assert_close(out, golden[f"gate_{kind}.out"], atol=1e-11, rtol=0)
    grads = torch.autograd.grad((out * golden["cotangent"]).sum(), (q, k, v))
    for name, grad in zip("qkv", grads, strict=True):
        torch.testing.assert_close(grad, golden[f"gate_{kind}.grad_{name}"], atol=1e-11, rtol=0)


@pytest.mark.parametrize("merge", MERGES.values(), ids=MERGES)
@pytest.mark.parametrize("sources", [2, 3])
@pytest.mark.parametrize("kind", [SharedFixation, TwiceEvaluatedFixation, UnsharedFixation])
def test_ratios_lie_between_zero_and_one(kind, sources: int, merge) -> None:
    q, k, v = (torch.rand(2, 5, WIDTH) + 0.1 for _ in range(3))
    new_q, new_k = kind(WIDTH, sources, merge)(q, k, v)
    for new, old in ((new_q, q), (new_k, k)):
        ratio = new / old
        assert (ratio > 0).all()
        assert (ratio < 1).all()


def test_a_shared_ratio_is_the_same_for_query_and_key_and_twice_evaluated_changes_nothing() -> None:
    q, k, v = (torch.rand(2, 5, WIDTH) + 0.1 for _ in range(3))
    once, twice = SharedFixation(WIDTH, 3), TwiceEvaluatedFixation(WIDTH, 3)
    twice.load_state_dict(once.state_dict())
    new_q, new_k = once(q, k, v)
    torch.testing.assert_close(new_q / q, new_k / k)
    torch.testing.assert_close(twice(q, k, v), (new_q, new_k))


def test_sources_decide_what_the_ratio_depends_on() -> None:
    q, k, v = (torch.rand(2, 5, WIDTH) for _ in range(3))
    for fixation, changes in ((SharedFixation(WIDTH, 3), True), (SharedFixation(WIDTH, 2), False)):
        assert (not torch.equal(fixation(q, k, v)[0], fixation(q, k, v + 1)[0])) == changes
    separate = SeparateFixation(WIDTH)
    assert torch.equal(separate(q, k, v)[0], separate(q, k + 1, v + 1)[0])


def test_one_gate_serves_all_heads() -> None:
    assert Gate(64, 3, concat).fc.weight.shape == (64, 192)
    assert Gate(64, 3, MERGES["add"]).fc.weight.shape == (64, 64)
