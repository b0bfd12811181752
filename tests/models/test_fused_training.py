"""The backward passes written by hand equal autograd's, and give way wherever somebody would notice the difference.

The plain composition of modules is the definition; in float64 both agree to ten digits.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from fixformer import create_model
from fixformer.models import fused, fused_parts
from fixformer.models.base import VideoModel
from fixformer.models.fused import make_operator, run_block, weights_of
from fixformer.models.layers.noise import share_of_batch
from fixformer.models.layers.residual import Branch

COOPERATIVE = [
    {"fixation_sources": sources, "fixation_shared": shared, "fixation_merge": merge}
    for sources, shared, merge in product(("qk", "qkv"), (True, False), ("concat", "add", "multiply"))
]
FIXATIONS = [{"fixation": "none"}, {"fixation": "separate"}, *COOPERATIVE]
SHIFTS = [
    {"association": "none"},
    {"association": "time", "shift_time": 2},
    {"association": "space", "shift_space": 2, "shift_keep": 0.0},
    {"shift_shape": "square", "shift_keep": 0.3},
    {"reading": "released"},
    {"reading": "released", "shift_shape": "square"},
    {"reading": "released", "shift_segment": 1},
]
OTHERS = [{"pattern": "joint"}, {"pattern": "windowed"}, {"mlp_conv": False}, {"drop_path": 0.5}]
# Clips of more and of fewer tokens in a sequence than a head is wide (8), which decides the order of the products.
SIZES = [(2, 3, 2, 5), (1, 10, 1, 1), (1, 1, 3, 4)]


@pytest.fixture(autouse=True)
def always_and_in_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_parts, "CHUNK_BYTES", 3_000)
    monkeypatch.setattr(fused, "SMALLEST_TRAINING_BYTES", 0)


def tiny(**settings: Any) -> VideoModel:
    torch.manual_seed(0)
    small = {"embed_dim": 16, "num_heads": 2, "depth": 1, "num_classes": 3, "head_hidden_dim": 0, "mlp_ratio": 2.0}
    model = create_model("fixformer_tiny", **{**small, **settings}).train()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def by_hand(branch: Branch, x_BTHWD: Tensor) -> Tensor:
    """The operator itself, also in float64."""
    operator = make_operator(branch)
    return fused._FusedBranch.apply(branch, operator, branch.drop_path.factor(x_BTHWD), x_BTHWD, *weights_of(operator))


def results(run: Callable[[Branch, Tensor], Tensor], branch: Branch, x_BTHWD: Tensor) -> list[Tensor]:
    """What a branch returns, and the gradients of its input and weights."""
    x_BTHWD = x_BTHWD.detach().requires_grad_()
    torch.manual_seed(1)  # of stochastic depth
    y_BTHWD = run(branch, x_BTHWD)
    weight_BTHWD = torch.linspace(-1, 1, y_BTHWD.numel(), dtype=y_BTHWD.dtype).view_as(y_BTHWD)
    return [y_BTHWD, *torch.autograd.grad((y_BTHWD * weight_BTHWD).sum(), [x_BTHWD, *branch.parameters()])]


@pytest.mark.parametrize("kernel", ["relu", "elu1", "sigmoid"])
@pytest.mark.parametrize("settings", [*FIXATIONS, *SHIFTS, *OTHERS], ids=str)
def test_equals_autograd(settings: dict[str, Any], kernel: str) -> None:
    model = tiny(kernel=kernel, **settings).double()
    for size, branch in product(SIZES, model.blocks[0]):
        if settings.get("shift_segment") and size[1] % settings["shift_segment"]:
            continue
        x_BTHWD = torch.randn(*size, 16, dtype=torch.float64)
        plain, own = (results(run, branch, x_BTHWD) for run in (Branch.__call__, by_hand))
        for one, other in zip(own, plain, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("settings", [{"fixation_shared": False}, {"fixation_merge": "multiply"}], ids=str)
def test_gradients_are_those_of_finite_differences(settings: dict[str, Any]) -> None:
    for branch in tiny(kernel="elu1", **settings).double().blocks[0]:
        x_BTHWD = torch.randn(1, 2, 3, 2, 16, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda x, branch=branch: by_hand(branch, x), [x_BTHWD], fast_mode=True)


def test_can_be_differentiated_twice() -> None:
    for branch in tiny(kernel="elu1", drop_path=0.5).double().blocks[0]:
        x_BTHWD = torch.randn(1, 2, 2, 2, 16, dtype=torch.float64, requires_grad=True)

        def run(x: Tensor, branch: Branch = branch) -> Tensor:
            torch.manual_seed(1)
            return by_hand(branch, x)

        assert torch.autograd.gradgradcheck(run, [x_BTHWD], fast_mode=True)


def test_a_graph_that_is_kept_gives_the_same_again() -> None:
    model, x_BTHWD = tiny(), torch.randn(2, 3, 2, 2, 16, requires_grad=True)
    y_BTHWD = run_block(model.blocks[0], x_BTHWD)
    first, second = (torch.autograd.grad(y_BTHWD.sum(), x_BTHWD, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_frozen_weights_get_no_gradient() -> None:
    model, x_BTHWD = tiny(), torch.randn(1, 3, 2, 2, 16)
    for name, parameter in model.blocks.named_parameters():
        parameter.requires_grad_("bias" in name)
    y_BTHWD = run_block(model.blocks[0], x_BTHWD)
    assert count(y_BTHWD) == 3
    y_BTHWD.sum().backward()
    assert all((parameter.grad is not None) == ("bias" in name) for name, parameter in model.blocks.named_parameters())


@pytest.mark.parametrize(
    "settings", [{}, {"attention": "mala"}, {"kernel": "polar", "local": True, "output_gate": True}]
)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_model_trains_the_same(checkpointing: bool, settings: dict[str, Any]) -> None:
    """Stochastic depth and a part of the batch included."""
    model, video = tiny(depth=2, drop_path=0.5, dropout=0.1, **settings), torch.randn(2, 3, 3, 40, 33)
    model.set_grad_checkpointing(checkpointing)
    found = []
    for enable in (True, False):
        model.set_fused_training(enable)
        model.zero_grad()
        torch.manual_seed(1)
        with share_of_batch(2, 4, total=6):
            model(video).logsumexp(-1).sum().backward()
        found.append([parameter.grad for parameter in model.parameters()])
    for own, plain in zip(*found, strict=True):
        torch.testing.assert_close(own, plain, rtol=1e-4, atol=1e-5)


def count(y_BTHWD: Tensor) -> int:
    """How many branches on the way to y were run by hand."""
    nodes, seen = [y_BTHWD.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            nodes += [parent for parent, _ in node.next_functions]
    return sum(node.name() == "_FusedBranchBackward" for node in seen)


HOOKS = ["register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"]
WATCHED = ["space", "space.norm", "space.body", "space.body.attend", "space.body.steps.fixate", "space.body.qkv",
           "space.body.steps.fixate.gate.fc", "space.body.associate"]  # fmt: skip


@pytest.mark.parametrize(("hook", "name"), [*product(HOOKS[:1], WATCHED), *product(HOOKS[1:], WATCHED[3:4])])
def test_who_watches_a_module_sees_it(hook: str, name: str) -> None:
    """Only the branch it is in runs as it is defined."""
    model, x_BTHWD, calls = tiny(), torch.randn(1, 3, 2, 2, 16, requires_grad=True), []
    assert count(run_block(model.blocks[0], x_BTHWD)) == 3
    handle = getattr(model.blocks[0].get_submodule(name), hook)(lambda *_: calls.append(1))
    y_BTHWD = run_block(model.blocks[0], x_BTHWD)
    assert count(y_BTHWD) == 2
    y_BTHWD.sum().backward()
    assert calls
    handle.remove()
    assert count(run_block(model.blocks[0], x_BTHWD)) == 3


class LoraLinear(nn.Linear):
    """What a library for fine-tuning puts in the place of a Linear."""


def replace_projection(model: VideoModel) -> None:
    model.blocks[0].time.body.qkv = LoraLinear(16, 48)


def drop_bias(model: VideoModel) -> None:
    model.blocks[0].time.body.proj = nn.Linear(16, 16, bias=False)


def replace_forward(model: VideoModel) -> None:
    body = model.blocks[0].time.body
    body.forward = body.forward


@pytest.mark.parametrize("change", [replace_projection, drop_bias, replace_forward])
def test_a_branch_with_something_foreign_inside_runs_as_it_is(change: Callable[[VideoModel], None]) -> None:
    model = tiny()
    change(model)
    assert count(run_block(model.blocks[0], torch.randn(1, 3, 2, 2, 16, requires_grad=True))) == 2


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        *[({"attention": kind}, 1) for kind in ("softmax", "cosformer", "mala", "inline", "rank")],
        *[(settings, 1) for settings in ({"kernel": "polar"}, {"local": True}, {"output_gate": True})],
        *[({"order": "fixation_first"}, 1), ({}, 3)],
    ],
    ids=str,
)
def test_other_attentions_keep_autograd(settings: dict[str, Any], expected: int) -> None:
    model = tiny(**settings)
    assert count(run_block(model.blocks[0], torch.randn(1, 3, 2, 2, 16, requires_grad=True))) == expected


def test_gives_way_to_what_looks_inside() -> None:
    model, x_BTHWD = tiny(), torch.randn(1, 3, 2, 2, 16, requires_grad=True)
    block = model.blocks[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert count(run_block(block, x_BTHWD)) == 0
    with FlopCounterMode(display=False) as counter:
        assert count(run_block(block, x_BTHWD)) == 0
    assert counter.get_total_flops() > 0
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    assert count(run_block(block, x_BTHWD)) == 0
    handle.remove()
    through = torch.func.grad(lambda x: run_block(block, x).sum())(x_BTHWD.detach())
    torch.testing.assert_close(through, torch.autograd.grad(run_block(block, x_BTHWD).sum(), x_BTHWD)[0])
    _, tangent = torch.func.jvp(lambda x: run_block(block, x).sum(), (x_BTHWD.detach(),), (through,))
    torch.testing.assert_close(tangent, through.square().sum())
    assert count(run_block(block.double(), x_BTHWD.double())) == 0


def test_small_clips_keep_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    model = tiny()
    tokens = fused.SMALLEST_TRAINING_BYTES // (4 * 32)
    large, small = (torch.zeros(1, 1, 1, length, 16, requires_grad=True) for length in (tokens, tokens - 1))
    assert (count(run_block(model.blocks[0], large)), count(run_block(model.blocks[0], small))) == (3, 0)
