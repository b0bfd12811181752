"""The kinds of attention as settings of the backbone: each equals its definition, alone and with our two modules."""

import copy
import warnings
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

from fixformer import create_model
from fixformer.config import ModelConfig
from fixformer.config.model import AttentionName
from fixformer.errors import SettingsConflict
from fixformer.models.attention.fixation import NoFixation
from fixformer.models.attention.kinds import (
    ATTENTION_KINDS,
    OrthoformerAttention,
    PerformerAttention,
    PolarAttention,
    resize_slots,
)
from fixformer.models.base import VideoModel
from fixformer.models.video_transformer import attentions
from fixformer.models.weights.loading import load_weights
from fixformer.ops import KERNELS, linear_attention_reference, softmax_attention_reference
from fixformer.ops.cosformer import cosformer_attention_reference
from fixformer.ops.inline import inline_attention_reference
from fixformer.ops.lara import lara_attention_reference
from fixformer.ops.linformer import linformer_attention_reference
from fixformer.ops.mala import mala_attention_reference
from fixformer.ops.nystrom import nystrom_attention_reference
from fixformer.ops.orthoformer import orthoformer_attention_reference
from fixformer.ops.performer import performer_attention_reference
from fixformer.ops.polar import polar_attention_reference, polar_features
from fixformer.ops.rank import rank_attention_reference

SMALL: dict[str, Any] = {"num_classes": 7, "num_frames": 4, "image_size": 44, "depth": 2}
FEW = {
    "performer": {"random_features": 16},
    "linformer": {"slots": 5},
    "orthoformer": {"landmarks": 3},
    "lara": {"landmarks": 4},
    "nystrom": {"landmarks": 3},
    "polar": {"attention": "linear", "kernel": "polar"},
}
# Every attention, and the kernel that is a kind of its own.
KINDS = [*get_args(AttentionName), "polar"]
PLAIN = {"fixation": "none", "association": "none"}


def tiny(attention: str, **settings: Any) -> VideoModel:
    """Every parameter random, so that nothing hides behind a zero."""
    torch.manual_seed(0)
    model = create_model(
        "fixformer_tiny", **{"attention": attention, **SMALL, **FEW.get(attention, {}), **settings}
    ).eval()
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, mean=1.0 if "norm.weight" in name else 0.0, std=0.1)
    return model


def clip(batch: int = 2, frames: int = 4, height: int = 44, width: int = 44) -> Tensor:
    return torch.randn(batch, 3, frames, height, width, generator=torch.Generator().manual_seed(1))


def definition(kind: str, attend: Any, q: Tensor, k: Tensor, v: Tensor, grid: tuple[int, ...]) -> Tensor:
    """The quadratic reference of a kind, with the settings and parameters of a module."""
    references = {
        "linear": lambda: linear_attention_reference(q, k, v),
        "softmax": lambda: softmax_attention_reference(q, k, v),
        "performer": lambda: performer_attention_reference(q, k, v, attend.projection_RE),
        "cosformer": lambda: cosformer_attention_reference(q, k, v),
        "linformer": lambda: linformer_attention_reference(
            *(q, k, v, attend.keys.flatten(0, -2)),
            (attend.keys if attend.values is None else attend.values).flatten(0, -2),
        ),
        "orthoformer": lambda: orthoformer_attention_reference(
            q, k, v, torch.zeros(q.shape[:2], dtype=torch.long), attend.landmarks
        ),
        "lara": lambda: lara_attention_reference(q, k, v, *attend.proposals(q, k, grid)),
        "nystrom": lambda: nystrom_attention_reference(q, k, v, attend.landmarks),
        "mala": lambda: mala_attention_reference(q, k, v),
        "inline": lambda: inline_attention_reference(q, k, v),
        "rank": lambda: rank_attention_reference(q, k, v),
        "polar": lambda: polar_attention_reference(q, k, v, attend.powers()),
    }
    return references[kind]()


@pytest.mark.parametrize("grid", [(3, 4), (5,), (2, 3, 2)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_equals_its_definition(kind: str, grid: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    config = ModelConfig(**{"attention": kind, "embed_dim": 16, "num_heads": 2, **FEW.get(kind, {})}).filled()
    attend = ATTENTION_KINDS[config.attention](config, grid).double().eval()
    q, k, v = torch.rand(3, 2, 2, torch.Size(grid).numel(), 8, dtype=torch.float64)
    torch.testing.assert_close(attend(q, k, v, grid), definition(kind, attend, q, k, v, grid), atol=1e-11, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_both_modules_are_switched_independently(kind: str) -> None:
    outputs = []
    for fixation in ("none", "cooperative"):
        for association in ("none", "both"):
            model = tiny(kind, fixation=fixation, association=association)
            first = attentions(model)[0]
            parts = isinstance(first.fixate, NoFixation), not first.associate.groups
            assert parts == (fixation == "none", association == "none")
            outputs.append(model(clip()))
    differences = [(a - b).abs().max() for i, a in enumerate(outputs) for b in outputs[:i]]
    assert min(differences) > 1e-5


@pytest.mark.parametrize("pattern", ["factorised", "joint", "windowed"])
@pytest.mark.parametrize("kind", KINDS)
def test_trains_in_every_pattern(kind: str, pattern: str) -> None:
    model = tiny(kind, pattern=pattern, depth=1).train()
    model(clip()).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def seen_by_the_gate(model: VideoModel) -> tuple[Tensor, Tensor]:
    seen: list[Tensor] = []
    gate = attentions(model)[0].fixate
    gate.register_forward_hook(lambda _module, inputs, _output: seen.extend(inputs))
    model(clip())
    return seen[0], seen[1]


@pytest.mark.parametrize("kind", KINDS)
def test_what_fixation_sees(kind: str) -> None:
    """Features for linear, MALA and rank-augmented attention, relu for cosFormer, queries and keys for the others."""
    least = min(x.min().item() for x in seen_by_the_gate(tiny(kind, association="none")))
    if kind == "linear":
        assert least == 64**-0.5
    elif kind in ("mala", "rank"):
        assert 0 < least < 64**-0.5
    elif kind == "cosformer":
        assert least == 0
    else:
        assert least < 0


@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_is_deterministic(kind: str) -> None:
    model = tiny(kind)
    assert torch.equal(model(clip()), model(clip()))


@pytest.mark.parametrize("kind", ["orthoformer", "lara"])
def test_training_draws_from_torchs_generator(kind: str) -> None:
    model = tiny(kind, dropout=0.0).train()
    outputs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outputs.append(model(clip()))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])


def test_performer_draws_anew_in_training_only() -> None:
    model = tiny("performer", redraw_every=3, dropout=0.0)
    attend = attentions(model)[0].attend
    assert isinstance(attend, PerformerAttention)
    drawn = attend.projection_RE.clone()
    for _ in range(4):
        model(clip())
    model.train()
    same = []
    for _ in range(4):
        model(clip())
        same.append(torch.equal(attend.projection_RE, drawn))
    assert same == [True, True, False, False]
    other = tiny("performer", redraw_every=3, dropout=0.0)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.eval()(clip()), model.eval()(clip()))
    assert int(attentions(other)[0].attend.passes) == 4


def test_performer_draws_alike_in_every_process() -> None:
    """Processes are seeded apart; they share what a model is built, or resumed, with."""
    first = tiny("performer", redraw_every=2, dropout=0.0).train()
    second = copy.deepcopy(first)
    drawn = []
    for seed, model in enumerate((first, second)):
        torch.manual_seed(seed)
        for _ in range(2):
            model(clip())
        drawn.append([attention.attend.projection_RE for attention in attentions(model)])
    assert all(torch.equal(one, two) for one, two in zip(*drawn, strict=True))
    assert not torch.equal(drawn[0][0], drawn[0][1])


@pytest.mark.parametrize("kind", ["performer", "orthoformer", "lara"])
def test_recomputed_blocks_see_the_same_draw(kind: str) -> None:
    settings = {"redraw_every": 1} if kind == "performer" else {}
    plain = tiny(kind, **settings).train()
    saving = copy.deepcopy(plain)
    saving.set_grad_checkpointing()
    for model in (plain, saving):
        torch.manual_seed(3)
        model(clip()).square().sum().backward()
    for one, two in zip(plain.parameters(), saving.parameters(), strict=True):
        assert torch.equal(one.grad, two.grad)


def test_orthoformer_starts_at_the_first_token_in_evaluation() -> None:
    attend, (q, k, v) = OrthoformerAttention(2).eval(), torch.randn(3, 1, 1, 6, 4)
    expected = orthoformer_attention_reference(q, k, v, torch.zeros(1, 1, dtype=torch.long), 2)
    torch.testing.assert_close(attend(q, k, v, (6,)), expected)


def test_linformer_at_another_size_is_interpolated_and_says_so() -> None:
    model, video = tiny("linformer"), clip(1, 6, 60, 60)
    with pytest.warns(UserWarning, match="for 4x4 tokens"), pytest.warns(UserWarning, match="for 4 tokens"):
        before = model(video)
    model.set_input_size(num_frames=6, image_size=60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(model(video), before)
    space, time = (attention.attend for attention in attentions(model)[:2])
    assert (space.keys.shape, space.values.shape) == ((5, 5, 5), (5, 5, 5))
    assert (time.keys.shape, time.values) == ((6, 5), None)
    assert all(parameter.is_contiguous() for parameter in model.parameters())


@pytest.mark.slow
def test_linformer_at_another_size_says_so_when_it_is_exported_or_compiled() -> None:
    model, video = tiny("linformer", depth=1, **PLAIN), clip(1, 6, 60, 60)
    with pytest.warns(UserWarning, match="for 4x4 tokens"):
        torch.export.export(model, (video,))
    torch.compiler.reset()
    with pytest.warns(UserWarning, match="for 4x4 tokens"):
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)(video)
    with pytest.warns(UserWarning, match="for 4x4 tokens"):
        torch.testing.assert_close(compiled, model(video), atol=1e-5, rtol=1e-4)


def test_linformers_projections_are_interpolated_at_load_and_reported() -> None:
    source, target = tiny("linformer"), tiny("linformer", num_frames=6, image_size=60)
    report = load_weights(target, source.state_dict(), quiet=True)
    projections = [f"blocks.{i}.{axis}.body.attend.keys" for i in (0, 1) for axis in ("space", "time")]
    projections += [f"blocks.{i}.space.body.attend.values" for i in (0, 1)]
    assert sorted(report.interpolated) == sorted([*projections, "time_embed.slots"])
    source.set_input_size(num_frames=6, image_size=60)
    for name in projections:
        torch.testing.assert_close(target.state_dict()[name], source.state_dict()[name])


def test_interpolated_projections_keep_their_sum() -> None:
    """A slot that averages over the clip still does on every grid."""
    table = torch.randn(3).expand(4, 5, 6, 3)
    for grid in ((2, 5, 9), (7, 3, 6), (1, 1, 1)):
        resized = resize_slots(table, grid)
        assert resized.shape == (*grid, 3)
        torch.testing.assert_close(resized.sum((0, 1, 2)), table.sum((0, 1, 2)))
    assert resize_slots(table, (4, 5, 6)) is table


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:Linformer")
def test_any_number_of_frames_and_any_resolution(kind: str) -> None:
    model = tiny(kind)
    for shape in ((1, 1, 44, 44), (2, 9, 60, 33), (1, 3, 16, 100)):
        assert model(clip(*shape)).isfinite().all()


@pytest.mark.parametrize("kind", KINDS[2:])
def test_exports_with_a_free_batch_size(kind: str) -> None:
    model = tiny(kind, depth=1, pattern="windowed")
    program = torch.export.export(model, (clip(2),), dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=64)},))
    torch.testing.assert_close(program.module()(clip(3)), model(clip(3)), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_autocast_is_close(kind: str) -> None:
    model = tiny(kind, **PLAIN)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = model(clip())
    # Which query is the landmark may change with its last bits.
    tolerance = 0.3 if kind == "orthoformer" else 0.1
    torch.testing.assert_close(low.float(), model(clip()), atol=tolerance, rtol=0.1)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"attention": "linear", "landmarks": 3}, ["landmarks=3", "attention='linear'"]),
        ({"attention": "softmax", "slots": 3}, ["slots=3", "attention='softmax'"]),
        ({"attention": "cosformer", "kernel": "relu"}, ["kernel='relu'", "attention='cosformer'"]),
        ({"attention": "lara", "random_features": 8}, ["random_features=8", "attention='lara'"]),
        ({"attention": "linformer", "redraw_every": 8}, ["redraw_every=8", "attention='linformer'"]),
        ({"attention": "mala", "kernel": "relu"}, ["kernel='relu'", "attention='mala'"]),
        ({"attention": "inline", "kernel": "elu1"}, ["kernel='elu1'", "attention='inline'"]),
        ({"attention": "rank", "kernel": "polar"}, ["kernel='polar'", "attention='rank'"]),
        ({"attention": "softmax", "kernel": "polar"}, ["kernel='polar'", "attention='softmax'"]),
    ],
    ids=str,
)
def test_settings_of_another_kind_are_refused(settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(SettingsConflict) as error:
        create_model("fixformer_tiny", **SMALL, **settings)
    assert all(word in str(error.value) for word in words)


def test_every_choice_has_its_module() -> None:
    assert set(ATTENTION_KINDS) == set(get_args(AttentionName))


@pytest.mark.parametrize("kernel", ["relu", "sigmoid"])
def test_rank_augmented_attention_takes_any_kernel_of_linear_attention(kernel: str) -> None:
    model = tiny("rank", kernel=kernel)
    assert attentions(model)[0].kernel is KERNELS[kernel]
    assert attentions(tiny("rank"))[0].kernel is attentions(tiny("mala"))[0].kernel is KERNELS["elu1"]
    assert not torch.allclose(model(clip()), tiny("rank")(clip()))


def test_powers_of_the_polar_kernel() -> None:
    """3 at first, between 1 and 5 always, of each head and channel, and not pulled anywhere by weight decay."""
    model = create_model("fixformer_tiny", kernel="polar", **SMALL)
    attend = attentions(model)[0].attend
    assert isinstance(attend, PolarAttention)
    assert torch.equal(attend.powers(), torch.full((2, 64), 3.0))
    attend.power.data.uniform_(-9, 9)
    assert 1 < attend.powers().min() < attend.powers().max() < 5
    assert "blocks.1.time.body.attend.power" in model.no_weight_decay()


def test_the_gate_in_front_of_the_polar_kernel_reweights_its_features() -> None:
    """relu(γx)^p = γ^p relu(x)^p."""
    x, ratio, power = torch.randn(2, 3, 5, 8), torch.rand(2, 3, 5, 8), 1 + 4 * torch.rand(3, 8)
    expected = polar_features(x, power) * (ratio ** power[:, None]).repeat(1, 1, 1, 2)
    torch.testing.assert_close(polar_features(ratio * x, power), expected)


@pytest.mark.parametrize("kind", ["mala", "inline", "rank", "polar"])
@pytest.mark.parametrize("order", ["association_first", "fixation_first"])
def test_what_came_after_the_paper_in_both_orders(kind: str, order: str) -> None:
    model = tiny(kind, order=order).train()
    logits = model(clip())
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in model.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mala", "inline", "rank", "polar"])
def test_what_came_after_the_paper_compiles_as_one_graph(kind: str) -> None:
    torch.compiler.reset()
    model = tiny(kind, depth=1, local=True, output_gate=True)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(clip()), model(clip()), atol=1e-6, rtol=1e-5)
