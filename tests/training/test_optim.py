"""Which parameters are decayed, and how fast each layer learns."""

import pytest
import torch

from fixformer.config import OptimConfig
from fixformer.errors import SettingsConflict
from fixformer.models.base import VideoModel
from fixformer.models.registry import create_model
from fixformer.training.optim import build_optimiser, layer_scales, param_groups, set_rate


@pytest.fixture(scope="module")
def model() -> VideoModel:
    sizes = {"num_classes": 3, "num_frames": 2, "image_size": 16, "embed_dim": 16, "depth": 3, "num_heads": 2}
    return create_model("fixformer_vit_tiny", **sizes, head_hidden_dim=8)


def decayed(model: VideoModel, config: OptimConfig) -> dict[str, bool]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = param_groups(model, config)
    return {names[id(p)]: group["weight_decay"] > 0 for group in groups for p in group["params"]}


def test_norms_biases_and_tables_are_not_decayed(model: VideoModel) -> None:
    found = decayed(model, OptimConfig(no_decay="norms_and_biases"))
    assert set(found) == {name for name, _ in model.named_parameters()}
    spared = {name for name, is_decayed in found.items() if not is_decayed}
    assert {"time_embed.slots", "position_embed.table", "head.fc.bias", "norm.weight"} <= spared
    assert all(found[name] for name in ("head.fc.weight", "blocks.0.space.body.qkv.weight", "patch_embed.proj.weight"))


def test_the_released_rule_spares_the_biases_of_the_head_only(model: VideoModel) -> None:
    found = decayed(model, OptimConfig(no_decay="head_biases"))
    spared = {name for name, is_decayed in found.items() if not is_decayed}
    assert spared == {name for name in found if name.startswith("head.") and name.endswith("bias")}
    assert len(spared) == 3


def test_layers_learn_slower_the_earlier_they_are(model: VideoModel) -> None:
    scales = layer_scales(model, 0.5)
    assert scales["head.fc.weight"] == scales["norm.weight"] == 1
    assert [scales[f"blocks.{i}.mlp.body.fc1.weight"] for i in (2, 1, 0)] == [0.5, 0.25, 0.125]
    assert scales["patch_embed.proj.weight"] == scales["position_embed.table"] == 0.5**4
    optimiser = build_optimiser(model, OptimConfig(layer_decay=0.5))
    set_rate(optimiser, 0.1)
    assert {group["lr"] for group in optimiser.param_groups} == {0.1 * 0.5**i for i in range(5)}


@pytest.mark.parametrize("name", ["timesformer_base", "vivit_large_fe", "xvit_base", "mvit_base_16x4"])
def test_learned_tokens_and_tables_learn_like_the_stem(name: str) -> None:
    with torch.device("meta"):
        scales = layer_scales(create_model(name), 0.5)
    tokens = {scale for name, scale in scales.items() if "cls_" in name or "_embed." in name}
    assert tokens == {min(scales.values())}


def test_layer_decay_needs_layers() -> None:
    model = create_model("tsm_r50", num_classes=2)
    with pytest.raises(SettingsConflict, match=r"layer_decay=0\.5"):
        param_groups(model, OptimConfig(layer_decay=0.5))


def test_sgd_is_the_released_codes_update() -> None:
    """v ← 0.9 v + g + λw; w ← w - lr (g + λw + 0.9 v), Nesterov without dampening."""
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    holder = create_model("fixformer_tiny", num_classes=2, embed_dim=16, depth=1, num_heads=2)
    optimiser = build_optimiser(holder, OptimConfig(optimiser="sgd", momentum=0.9))
    optimiser.param_groups = []
    optimiser.add_param_group({"params": [weight], "weight_decay": 0.1, "scale": 1.0})
    set_rate(optimiser, 0.5)
    expected, velocity = weight.detach().clone(), torch.zeros(2, dtype=torch.float64)
    for gradient in (torch.tensor([0.3, 0.1]), torch.tensor([-0.2, 0.5])):
        weight.grad = gradient.double()
        g = gradient.double() + 0.1 * expected
        velocity = 0.9 * velocity + g
        expected = expected - 0.5 * (g + 0.9 * velocity)
        optimiser.step()
        torch.testing.assert_close(weight.detach(), expected)
