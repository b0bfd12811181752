"""The video Transformer: its verbs, its sizes, its settings, and the ways it is run."""

import copy
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from fixformer import create_model, list_models
from fixformer.errors import InputError, SettingsConflict, UnknownName, UserError
from fixformer.models.attention.kinds import LinearAttention
from fixformer.models.attention.module import Attention
from fixformer.models.base import VideoModel
from fixformer.models.layers.heads import cell_means

SMALL: dict[str, Any] = {"num_classes": 7, "num_frames": 4, "image_size": 44, "depth": 2}


def tiny(**settings: Any) -> VideoModel:
    """A tiny model whose every parameter is random, so that nothing hides behind a zero."""
    torch.manual_seed(0)
    model = create_model("fixformer_tiny", **{**SMALL, **settings}).eval()
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, mean=1.0 if "norm.weight" in name else 0.0, std=0.05)
    return model


def clip(batch: int = 2, frames: int = 4, height: int = 44, width: int | None = None) -> Tensor:
    return torch.randn(batch, 3, frames, height, width or height, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", list_models("fixformer*"))
def test_every_preset_answers_the_verbs(name: str) -> None:
    sizes = {"embed_dim": 32, "num_heads": 2, "depth": 1, "head_hidden_dim": 16 if "vit" not in name else 0}
    model = create_model(name, num_classes=5, num_frames=2, image_size=32, **sizes)
    video = clip(2, 2, 32)
    features = model.forward_features(video)
    assert features.shape[:2] == (2, 2)
    assert features.shape[-1] == model.num_features == 32
    assert model.forward_head(features).shape == (2, 5)
    assert model.forward_head(features, pre_logits=True).ndim == 2
    model.reset_classifier(3)
    assert model(video).shape == (2, 3)
    assert model.num_classes == 3
    model(video).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert model.no_weight_decay() <= {name for name, _ in model.named_parameters()}
    assert "time_embed.slots" in model.no_weight_decay()


@pytest.mark.parametrize("settings", [{}, {"stem": "conv"}, {"pool": "grid"}, {"name": "fixformer_vit_tiny"}], ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 44, 44), (2, 9, 60, 33), (1, 3, 16, 100)])
def test_any_number_of_frames_and_any_resolution(settings: dict[str, Any], shape: tuple[int, ...]) -> None:
    model = create_model(**{"name": "fixformer_tiny", **SMALL, **settings})
    assert model(clip(*shape)).shape == (shape[0], 7)


def test_the_conv_stem_has_the_grid_it_says_and_sees_change_apart_from_what_stands_still() -> None:
    model = tiny(stem="conv", patch_size=8, image_size=44)
    side = model.patch_embed.grid(44)
    still = clip(1, 1).expand(-1, -1, 6, -1, -1)
    tokens = model.patch_embed(still)
    assert tokens.shape == (1, 6, side, side, 128)
    # Away from the ends of the clip, where convolutions see the padding, frames of a still are alike.
    assert torch.allclose(tokens[:, 2], tokens[:, 3], atol=1e-5)
    moving = still.clone()
    moving[:, :, 0] += 1
    assert not torch.allclose(model.patch_embed(moving)[:, 5], tokens[:, 5], atol=1e-3)  # the mean picture has changed


@given(size=st.integers(1, 40), count=st.integers(1, 9))
def test_cells_are_those_of_adaptive_pooling(size: int, count: int) -> None:
    x = torch.randn(3, size)
    assert torch.allclose(x @ cell_means(size, count, x), functional.adaptive_avg_pool1d(x, count), atol=1e-6)


def test_set_input_size_keeps_the_answer_and_resizes_the_tables() -> None:
    model = tiny(position_embedding="learned", patch_stride=16, patch_padding=0, image_size=64)
    video = clip(1, 6, 96)
    before = model(video)
    model.set_input_size(num_frames=6, image_size=96)
    assert (model.num_frames, model.image_size) == (6, 96)
    assert model.time_embed.slots.shape[0] == 6
    assert model.position_embed.table.shape[:2] == (6, 6)
    torch.testing.assert_close(model(video), before)


def params(*modules: nn.Module) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


@pytest.mark.parametrize(
    ("settings", "attention"),
    [({}, 1_062_976), ({"fixation": "none"}, 1_050_624), ({"fixation_shared": False}, 1_075_328)],
    ids=str,
)
def test_parameters_stage_by_stage(settings: dict[str, Any], attention: int) -> None:
    """systems.md E1; the 89,262 more of its total are a second classifier that the released code never uses."""
    with torch.device("meta"):
        model = create_model("fixformer_base", reading="released", **settings)
    assert (params(model.patch_embed), params(model.time_embed)) == (394_752, 4_096)
    for block in model.blocks:
        assert [params(branch.norm) for branch in block] == [1_024] * 3
        assert (params(block.time.body), params(block.space.body)) == (attention, attention)
        assert params(block.mlp.body) == 2_120_192
        assert params(block) == 4_249_216 + 2 * (attention - 1_062_976)
    assert (params(model.norm), params(model.head)) == (1_024, 528_814)
    parts = (model.patch_embed, model.time_embed, model.blocks, model.norm, model.head)
    assert params(model) == params(*parts) == 52_008_540 - 89_262 + 24 * (attention - 1_062_976)


def test_seed_decides_the_weights() -> None:
    one, two = tiny().state_dict(), tiny().state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)
    torch.manual_seed(1)
    other = create_model("fixformer_tiny", **SMALL).state_dict()
    assert not torch.equal(one["blocks.0.space.body.qkv.weight"], other["blocks.0.space.body.qkv.weight"])


def test_frames_that_repeat_give_features_that_repeat_with_the_tiled_embedding() -> None:
    """systems.md F12: with shifts off, t and t + 8 are told apart by nothing."""
    model = tiny(reading="released", association="none", num_frames=8)
    video = clip(1, 8).repeat(1, 1, 2, 1, 1)
    features = model.forward_features(video)
    torch.testing.assert_close(features[:, :8], features[:, 8:])


def test_one_frame_is_attention_in_space_plus_a_value_of_its_own() -> None:
    """With one frame, attention in time has one token to attend to and returns its value (appendix invariant)."""
    model = tiny(association="none")
    attention = model.blocks[0].time.body
    x = torch.randn(1, 1, 3, 3, 128)
    _, _, v = attention.project(x)
    torch.testing.assert_close(attention(x), attention.proj(v.flatten(-2)), atol=1e-4, rtol=1e-4)


SETTINGS: list[dict[str, Any]] = [
    {"attention": "softmax"},
    {"attention": "softmax", "fixation": "none", "association": "none"},
    {"kernel": "elu1"},
    {"kernel": "sigmoid"},
    {"fixation": "none"},
    {"fixation": "separate"},
    {"fixation_sources": "qk"},
    {"fixation_shared": False},
    {"fixation_merge": "add"},
    {"fixation_merge": "multiply"},
    {"association": "none"},
    {"association": "time", "shift_time": 2},
    {"association": "space", "shift_space": 2, "shift_shape": "square"},
    {"order": "fixation_first"},
    {"pattern": "joint"},
    {"pattern": "windowed"},
    {"attention_order": "time_space"},
    {"shift_keep": 0.25},
    {"reading": "released"},
    {"stem": "conv", "patch_size": 8},
    {"pool": "grid"},
    {"attention": "mala"},
    {"attention": "inline"},
    {"attention": "rank"},
    {"kernel": "polar"},
    {"local": True},
    {"output_gate": True},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_every_setting_changes_the_model_and_trains(settings: dict[str, Any]) -> None:
    video = clip()
    model = tiny(**settings)
    out = model(video)
    assert not torch.allclose(out, tiny()(video))
    out.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def called_in(model: VideoModel) -> list[str]:
    """The steps of the first attention in the order in which they are called."""
    called: list[str] = []
    attention = model.blocks[0].space.body
    for name in ("associate", "fixate", "attend"):
        getattr(attention, name).register_forward_pre_hook(lambda *_, name=name: called.append(name))
    attention.kernel = lambda x, kernel=attention.kernel: called.append("kernel") or kernel(x)
    model(clip())
    return called


def test_association_first_differs_from_fixation_first_only_in_the_order_of_steps() -> None:
    first, last = tiny(), tiny(order="fixation_first")
    assert first.state_dict().keys() == last.state_dict().keys()
    assert called_in(first) == ["associate", "associate", "kernel", "kernel", "fixate", "attend"]
    assert called_in(last) == ["kernel", "kernel", "fixate", "associate", "associate", "attend"]


def test_weight_files_keep_the_name_of_the_gate() -> None:
    """Checkpoints written by every version so far."""
    names = [name for name in tiny().state_dict() if name.startswith("blocks.0.space.body.")]
    parts = ("qkv", "steps.fixate.gate.fc", "proj")
    assert names == [f"blocks.0.space.body.{part}.{kind}" for part in parts for kind in ("weight", "bias")]


def test_attention_order() -> None:
    assert list(dict(tiny().blocks[0].named_children())) == ["space", "time", "mlp"]
    assert list(dict(tiny(reading="released").blocks[0].named_children())) == ["time", "space", "mlp"]
    assert list(dict(tiny(pattern="windowed").blocks[0].named_children())) == ["space", "mlp"]


def test_attention_equals_itself_written_out_through_the_reference() -> None:
    """The whole attention of Eq. 3-5 against the quadratic reference with an explicit matrix."""
    from fixformer.ops import linear_attention_reference

    model = tiny().double()
    attention = model.blocks[0].space.body
    assert isinstance(attention, Attention)
    x = torch.randn(1, 4, 5, 5, 128, dtype=torch.float64)
    fast = attention(x)
    forward = {"forward": lambda self, q, k, v, grid: linear_attention_reference(q, k, v)}
    attention.attend = type("Reference", (nn.Module,), forward)()
    torch.testing.assert_close(fast, attention(x), atol=1e-11, rtol=0)


@pytest.mark.parametrize("settings", [{}, {"attention": "softmax", "fixation": "none"}], ids=str)
def test_gradient_checkpointing_gives_identical_gradients(settings: dict[str, Any]) -> None:
    plain = tiny(**settings)
    saving = copy.deepcopy(plain)
    saving.set_grad_checkpointing()
    for model in (plain, saving):
        model.train()
        torch.manual_seed(3)
        model(clip()).square().sum().backward()
    for one, two in zip(plain.parameters(), saving.parameters(), strict=True):
        assert torch.equal(one.grad, two.grad)


def test_autocast_is_close_and_finite() -> None:
    model, video = tiny(), clip()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = model(video)
    assert low.isfinite().all()
    torch.testing.assert_close(low.float(), model(video), atol=0.05, rtol=0.05)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(1e3 * video).isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"attention": "softmax"}, {"pattern": "joint"}], ids=str)
def test_compiles_as_one_graph(settings: dict[str, Any]) -> None:
    torch.compiler.reset()
    model, video = tiny(**settings), clip()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(video), model(video), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("settings", [{}, {"attention": "softmax"}, {"reading": "released"}], ids=str)
def test_exports_with_a_free_batch_size(settings: dict[str, Any]) -> None:
    model = tiny(**settings)
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(model, (clip(2),), dynamic_shapes=({0: batch},))
    for size in (1, 3):
        torch.testing.assert_close(program.module()(clip(size)), model(clip(size)), atol=1e-6, rtol=1e-5)


def test_without_blocks_a_model_is_its_stem_its_pool_and_its_head() -> None:
    video_BCTHW = torch.randn(2, 3, 4, 44, 44)
    model = create_model("fixformer_tiny", **SMALL | {"depth": 0}).eval()
    with torch.no_grad():
        logits_BK = model(video_BCTHW)
        shuffled_BK = model(video_BCTHW[:, :, [2, 0, 3, 1]])
    assert logits_BK.shape == (2, 7)
    torch.testing.assert_close(shuffled_BK, logits_BK)  # a mean over time does not know an order
    model.train()(video_BCTHW).sum().backward()


def test_dropout_and_drop_path_act_in_training_only() -> None:
    model = tiny(drop_path=0.5, dropout=0.5)
    assert torch.equal(model(clip()), model(clip()))
    model.train()
    assert not torch.equal(model(clip()), model(clip()))
    rates = [branch.drop_path.rate for block in model.blocks for branch in block.children()]
    assert rates == [0.0] * 3 + [0.5] * 3


def test_released_reading_always_multiplies_keys_and_values_first() -> None:
    forms = {m.product_order for m in tiny(reading="released").modules() if isinstance(m, LinearAttention)}
    assert forms == {"keys_values"}
    assert {m.product_order for m in tiny().modules() if isinstance(m, LinearAttention)} == {"auto"}


@pytest.mark.parametrize(
    ("video", "message"),
    [
        (torch.zeros(3, 4, 44, 44), "5 axes"),
        (torch.zeros(1, 1, 4, 44, 44), "3 channels"),
        (torch.zeros(1, 4, 3, 44, 44), "permute"),
        (torch.zeros(1, 3, 4, 44, 44, dtype=torch.uint8), "uint8"),
        (torch.zeros(1, 3, 4, 44, 15), "44x15"),
        (torch.zeros(1, 3, 0, 44, 44), "0 frames"),
        (torch.full((1, 3, 4, 44, 44), float("nan")), "NaN"),
        (torch.full((1, 3, 4, 44, 44), float("inf")), "infinite"),
    ],
)
def test_what_is_not_a_video_is_refused_in_one_sentence(video: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        tiny()(video)
    assert "\n" not in str(error.value)


def test_large_finite_values_are_not_taken_for_nan() -> None:
    assert tiny()(torch.full((1, 3, 4, 44, 44), 3e38)).shape == (1, 7)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"num_heads": 5}, ["num_heads=5", "embed_dim=128"]),
        ({"image_size": 8}, ["image_size=8", "patch_size=16"]),
        ({"stem": "conv", "patch_size": 14}, ["stem='conv'", "patch_size=14"]),
        ({"attention": "softmax", "kernel": "relu"}, ["kernel='relu'", "attention='softmax'"]),
        ({"fixation": "none", "fixation_merge": "add"}, ["fixation_merge='add'", "fixation='none'"]),
        ({"fixation": "separate", "fixation_sources": "qkv"}, ["fixation='separate'", "fixation_sources='qkv'"]),
        ({"fixation": "separate", "fixation_shared": True}, ["fixation='separate'", "fixation_shared=True"]),
        ({"association": "none", "shift_time": 1}, ["shift_time=1", "association='none'"]),
        ({"association": "time", "shift_space": 1}, ["shift_space=1", "association='time'"]),
        ({"association": "none", "order": "fixation_first"}, ["order='fixation_first'", "association='none'"]),
        ({"pattern": "joint", "attention_order": "time_space"}, ["attention_order='time_space'", "pattern='joint'"]),
        ({"pattern": "windowed", "association": "space"}, ["pattern='windowed'", "association='space'"]),
        ({"pattern": "joint", "reading": "released"}, ["reading='released'", "pattern='joint'"]),
        ({"reading": "released", "shift_segment": 3}, ["shift_segment=3", "num_frames=4"]),
    ],
    ids=str,
)
def test_meaningless_combinations_name_both_settings(settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(SettingsConflict) as error:
        create_model("fixformer_tiny", **{**SMALL, **settings})
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize("setting", ["embed_dim", "depth", "num_classes", "num_frames", "shift_time", "dropout"])
def test_values_out_of_range_are_named(setting: str) -> None:
    with pytest.raises(UserError, match=f"{setting}=-1"):
        create_model("fixformer_tiny", **{**SMALL, setting: -1})


def test_unknown_names_offer_the_nearest() -> None:
    with pytest.raises(UnknownName, match="fixformer_base"):
        create_model("fixformer_bse")
    with pytest.raises(UnknownName, match="fixation"):
        create_model("fixformer_tiny", fixaton="none")
    with pytest.raises(UnknownName, match="softmax"):
        create_model("fixformer_tiny", attention="sofmax")
    with pytest.raises(UnknownName, match="sigmoid"):
        create_model("fixformer_tiny", kernel="sigmod")


def test_without_a_kernel_the_weights_are_those_of_queries_and_keys_themselves() -> None:
    """kernel=identity: Eq. 3 as it stands; training and inference by hand know it, too."""
    torch.manual_seed(0)
    model = create_model("fixformer_tiny", kernel="identity", num_frames=4, image_size=44, num_classes=3, depth=1)
    attention = next(module for module in model.modules() if isinstance(module, Attention))
    x = torch.linspace(-3, 3, 7)
    assert torch.equal(attention.kernel(x), x)
    model.train()
    model(torch.randn(2, 3, 4, 44, 44)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
