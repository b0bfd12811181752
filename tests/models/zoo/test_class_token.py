"""The Transformers with a class token: what is theirs alone. The verbs are in test_every_model, outputs in _golden."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fixformer import create_model
from fixformer.errors import InputError, SettingsConflict, UnknownName, UserError
from fixformer.models.base import VideoModel
from fixformer.models.weights.loading import load_weights

NAMES = (
    *("xvit_base", "timesformer_base", "timesformer_hr", "vivit_base", "vivit_large", "vivit_large_fe"),
    *("motionformer_base", "oformer_base", "rala_base"),
)
WIDTH = 24
TINY: dict[str, Any] = {
    **{"num_classes": 5, "num_frames": 4, "image_size": 32},
    **{"embed_dim": WIDTH, "num_heads": 3, "depth": 2, "drop_path": 0.0},
}


def tiny(name: str, **settings: Any) -> VideoModel:
    torch.manual_seed(0)
    return create_model(name, **{**TINY, **settings})


def clip(batch: int = 2, frames: int = 4, height: int = 32, width: int = 32) -> Tensor:
    return torch.randn(batch, 3, frames, height, width, generator=torch.Generator().manual_seed(1))


def params(*modules: nn.Module) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


def test_timesformer_starts_as_an_image_model_on_every_frame() -> None:
    """systems.md A10: at the start nothing but the time embedding, which is zero, tells the order of the frames."""
    model = tiny("timesformer_base").eval()
    torch.testing.assert_close(model(clip()), model(clip().flip(2)))
    one = model(clip()[:, :, :1])
    torch.testing.assert_close(model(clip()[:, :, :1].expand(-1, -1, 4, -1, -1)), one)


@pytest.mark.parametrize("name", ["vivit_base", "vivit_large_fe"])
def test_vivit_starts_as_the_jax_code(name: str) -> None:
    """systems.md A11."""
    model = tiny(name, embed_dim=48)
    model.reset_classifier(7)
    own = model.state_dict()
    zeros = ["head.fc.weight", "head.fc.bias", "cls_token", "blocks.1.attention.body.qkv.bias"]
    zeros += ["temporal_cls_token"] if name.endswith("_fe") else []
    assert not any(own[key].any() for key in zeros)
    tables = ["cls_position", "position_embed.table", "time_embed.slots", "temporal_cls_position"]
    for key in tables if name.endswith("_fe") else ["cls_position", "position_embed.volume"]:
        assert own[key].std().item() == pytest.approx(0.02, rel=0.3)
    blocks = ["blocks.1", "temporal_blocks.3"] if name.endswith("_fe") else ["blocks.1"]
    fans = {"attention.body.qkv": 2, "attention.body.proj": 2, "mlp.body.fc1": 5, "mlp.body.fc2": 5}
    for key, fan in ((f"{block}.{part}", fan) for block in blocks for part, fan in fans.items()):
        bound = (6 / (fan * 48)) ** 0.5  # xavier-uniform: fan in and fan out, in widths
        assert own[f"{key}.weight"].abs().max().item() == pytest.approx(bound, rel=0.01)
        assert own[f"{key}.weight"].std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
    assert 0 < own["blocks.1.mlp.body.fc2.bias"].abs().max() < 1e-5


def test_motionformers_divided_attention_starts_without_time() -> None:
    model = tiny("motionformer_base", attention="divided").eval()
    x_BND = torch.randn(2, 1 + 2 * 4, WIDTH)
    assert torch.equal(model.blocks[0].time(x_BND, (2, 2, 2)), x_BND)


def test_divided_attention_stays_in_its_group() -> None:
    """A change in one patch of a frame reaches its frame and the class token by space, its place and that by time."""
    model = tiny("motionformer_base", attention="divided").eval()
    q, k, v = torch.randn(3, 1, 3, 1 + 2 * 4, 8)
    changed = v.clone()
    changed[:, :, 1 + 4 + 2] += 1  # frame 1, place 2
    moved = {}
    for name in ("time", "space"):
        attend = getattr(model.blocks[0], name).body.attend
        difference = attend(q, k, changed, (2, 2, 2)) - attend(q, k, v, (2, 2, 2))
        moved[name] = difference.abs().sum((0, 2)).nonzero().flatten().tolist()
    assert moved == {"time": [0, 3, 7], "space": [0, 5, 6, 7, 8]}


@pytest.mark.parametrize("name", ["vivit_base", "vivit_large_fe", "motionformer_base", "rala_base"])
def test_tubelets_need_pairs_of_frames(name: str) -> None:
    model = tiny(name)
    with pytest.raises(InputError, match="5 frames"):
        model(clip(1, 5))
    with pytest.raises(InputError, match="num_frames=3"):
        model.set_input_size(num_frames=3)
    with pytest.raises(SettingsConflict, match=r"tubelet=2.*num_frames=3"):
        tiny(name, num_frames=3)
    assert model(clip(1, 2)).shape == (1, 5)


@pytest.mark.parametrize("name", NAMES)
def test_frames_smaller_than_a_patch_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="16x16"):
        tiny(name)(clip(1, 4, 15, 32))


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("motionformer_base", {"attention": "joint", "values": "projected"}, ["values", "attention='joint'"]),
        ("xvit_base", {"num_heads": 5}, ["num_heads=5", "embed_dim=24"]),
        ("vivit_base", {"image_size": 8}, ["image_size=8", "patch_size=16"]),
        ("timesformer_base", {"depth": 0}, ["depth=0"]),
        ("timesformer_base", {"drop_path": 1.0}, ["drop_path=1.0"]),
        ("motionformer_base", {"attention": "trajectories"}, ["trajectories", "trajectory"]),
        ("xvit_base", {"fixation": "cooperativ"}, ["cooperative"]),
        ("xvit_base", {"shift_segment": 3}, ["shift_segment=3", "4 frames"]),
    ],
    ids=str,
)
def test_impossible_settings_are_named(name: str, settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UserError) as error:
        tiny(name, **settings)(clip())
    assert all(word in str(error.value) for word in words)
    assert isinstance(error.value, SettingsConflict | UnknownName | InputError)


def test_parameters_of_xvit() -> None:
    """systems.md E8."""
    with torch.device("meta"):
        model = create_model("xvit_base")
    image = params(model.patch_embed, model.position_embed, model.blocks, model.norm) + 2 * 768
    assert image == 85_798_656
    assert params(model.time_embed) == 6_144
    assert params(model.temporal_block) == 7_085_568
    assert (params(model.head_norm), params(model.head_fc, model.head)) == (1_536, 590_592 + 133_806)
    assert params(model) == 93_750_876 - 133_806


def test_parameters_of_a_motionformer_block() -> None:
    """systems.md E7: the keys are half of `proj_kv`."""
    with torch.device("meta"):
        model = create_model("motionformer_base", values="projected")
    attention = model.blocks[0].attention.body
    assert (params(attention.qkv), params(attention.proj)) == (1_771_776, 590_592)
    assert params(attention.attend.path_q) == 590_592
    assert params(attention.attend.path_k, attention.attend.path_v) == 1_181_184
    assert params(model.blocks[0].mlp.body) == 4_722_432
    assert params(model.blocks[0].attention.norm, model.blocks[0].mlp.norm) == 3_072
    assert model.cls_token.numel() == 768
    assert params(model.position_embed) + model.cls_position.numel() == 197 * 768
    assert params(model.time_embed) == 8 * 768
    assert (params(model.patch_embed), params(model.pre_logits)) == (1_180_416, 590_592)


@pytest.mark.parametrize(("fixation", "gates"), [("none", 0), ("separate", 2), ("cooperative", 1)])
def test_xvit_with_our_gate(fixation: str, gates: int) -> None:
    model = tiny("xvit_base", fixation=fixation)
    assert sum(name.startswith("blocks.0.") and name.endswith("fc.weight") for name in model.state_dict()) == gates


def test_xvit_borrows_from_neighbouring_frames_only() -> None:
    """With one block, a change in frame 3 is seen in frames 2 and 4 and nowhere else."""
    model = tiny("xvit_base", depth=1, num_frames=6).eval()
    video = clip(1, 6)
    changed = video.clone()
    changed[:, :, 3] += 1
    difference = (model.forward_features(changed) - model.forward_features(video)).abs().sum((0, 2, 3))
    assert (difference > 1e-4).tolist() == [False, False, True, True, True, False]


@pytest.mark.parametrize("name", ["oformer_base", "rala_base"])
def test_random_in_training_only(name: str) -> None:
    model = tiny(name, landmarks=8, num_frames=8, image_size=64).train()
    assert not torch.equal(model(clip(1, 8, 64, 64)), model(clip(1, 8, 64, 64)))
    model.eval()
    assert torch.equal(model(clip(1, 8, 64, 64)), model(clip(1, 8, 64, 64)))


def image_vit(side: int = 2) -> dict[str, Tensor]:
    """A ViT in timm's names."""
    shapes: dict[str, tuple[int, ...]] = {
        **{"cls_token": (1, 1, WIDTH), "pos_embed": (1, 1 + side * side, WIDTH)},
        **{"patch_embed.proj.weight": (WIDTH, 3, 16, 16), "patch_embed.proj.bias": (WIDTH,)},
        **{"norm.weight": (WIDTH,), "norm.bias": (WIDTH,), "head.weight": (9, WIDTH), "head.bias": (9,)},
    }
    linears = {"attn.qkv": (3, 1), "attn.proj": (1, 1), "mlp.fc1": (4, 1), "mlp.fc2": (1, 4)}
    for i in range(2):
        for name, (rows, columns) in linears.items():
            shapes[f"blocks.{i}.{name}.weight"] = (rows * WIDTH, columns * WIDTH)
            shapes[f"blocks.{i}.{name}.bias"] = (rows * WIDTH,)
        for norm in ("norm1", "norm2"):
            shapes |= {f"blocks.{i}.{norm}.{kind}": (WIDTH,) for kind in ("weight", "bias")}
    generator = torch.Generator().manual_seed(2)
    return {name: torch.randn(shape, generator=generator) * 0.2 for name, shape in shapes.items()}


@pytest.mark.parametrize("name", NAMES)
def test_image_weights_start_every_model(name: str) -> None:
    model, image = tiny(name), image_vit()
    report = load_weights(model, image, quiet=True)
    assert report.source == "a ViT of timm"
    assert report.unused == []
    own = model.state_dict()
    attention = next(
        k for k in own if k.endswith("body.qkv.weight") and k.startswith("blocks.1.") and ".time." not in k
    )
    assert torch.equal(own[attention], image["blocks.1.attn.qkv.weight"])
    assert torch.equal(own["cls_token"], image["cls_token"])
    assert torch.equal(own["cls_position"], image["pos_embed"][:, :1])
    new = ("head", "time_embed", "temporal_", "pre_logits")
    assert all(k.startswith(new) or ".attend." in k or ".time_fc." in k for k in report.initial)


@torch.no_grad()
def test_timesformer_with_image_weights_is_that_image_model() -> None:
    """On equal frames, against ViViT whose tubelets are single frames, which is a plain ViT."""
    model, vit = tiny("timesformer_base").eval(), tiny("vivit_base", tubelet=1, num_frames=1).eval()
    for one in (model, vit):
        load_weights(one, image_vit(), quiet=True)
    for block in vit.blocks:
        block.mlp.body.approximate = "none"
    image = clip(2, 1)
    expected = vit.forward_features(image)[:, 0]
    video = image.expand(-1, -1, 4, -1, -1)
    torch.testing.assert_close(model.forward_features(video)[:, 0], expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["vivit_base", "motionformer_base"])
def test_inflated_filters_see_the_second_frame_of_a_tubelet(name: str) -> None:
    model, image = tiny(name), image_vit()
    load_weights(model, image, quiet=True)
    kernel = model.patch_embed.proj.weight
    assert torch.equal(kernel[:, :, 1], image["patch_embed.proj.weight"])
    assert not kernel[:, :, 0].any()


def test_positions_of_vivit_survive_another_size() -> None:
    source, target = tiny("vivit_base"), tiny("vivit_base", num_frames=8, image_size=64)
    report = load_weights(target, source.state_dict(), quiet=True)
    assert report.interpolated == ["position_embed.volume"]
    before = source.eval()(clip(1, 8, 64, 64))
    torch.testing.assert_close(target.eval()(clip(1, 8, 64, 64)), before, atol=1e-5, rtol=1e-4)
