"""ViViT's public files do not say the grid of their positions: it is known, found, told, or asked for."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from fixformer import create_model
from fixformer.errors import WeightsError
from fixformer.models.base import VideoModel
from fixformer.models.weights.loading import load_weights
from fixformer.models.weights.vivit_grid import VOLUME, with_grid
from fixformer.models.zoo.vivit import interpolate_volume

WIDTH = 8
SIZES: dict[str, Any] = {"num_classes": 5, "embed_dim": WIDTH, "depth": 1, "num_heads": 2, "mlp_ratio": 2}


def vivit(frames: int, size: int) -> VideoModel:
    return create_model("vivit_base", num_frames=frames, image_size=size, **SIZES)


def public(frames: int, size: int) -> dict[str, Tensor]:
    transformers = pytest.importorskip("transformers")
    config = transformers.VivitConfig(
        image_size=size,
        num_frames=frames,
        hidden_size=WIDTH,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=2 * WIDTH,
        num_labels=5,
    )
    theirs = transformers.VivitForVideoClassification(config)
    torch.nn.init.normal_(theirs.vivit.embeddings.position_embeddings)
    return theirs.state_dict()


def test_positions_are_interpolated_to_another_clip() -> None:
    file = public(frames=6, size=48)  # 3x3x3: 27 tokens can be no other grid
    model = vivit(frames=8, size=64)
    assert load_weights(model, file, quiet=True).interpolated == [VOLUME]
    volume_THWD = file["vivit.embeddings.position_embeddings"][0, 1:].view(3, 3, 3, WIDTH)
    assert torch.equal(model.state_dict()[VOLUME], interpolate_volume(volume_THWD, 4, 4, 4))


@pytest.mark.parametrize(("frames", "size"), [(8, 32), (2, 64)])
def test_an_equal_number_of_tokens_is_not_taken_for_an_equal_grid(frames: int, size: int) -> None:
    file = public(frames=2, size=64)  # 1x4x4, and 4x2x2 has as many
    with pytest.raises(WeightsError, match=r"16 positions .* 4x2x2 or 1x4x4.*config\.json"):
        load_weights(vivit(frames, size), file, quiet=True)
    report = load_weights(vivit(frames, size), file, grid=(1, 4, 4), quiet=True)
    assert (VOLUME in report.taken, VOLUME in report.interpolated) == ((frames, size) == (2, 64), frames == 8)
    with pytest.raises(WeightsError, match=r"grid=\(1, 4, 4\).* fixformer "):
        load_weights(vivit(2, 64), vivit(2, 64).state_dict(), grid=(1, 4, 4), quiet=True)


def test_the_config_beside_a_file_says_the_grid(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_file(public(frames=2, size=64), file)
    config = {"image_size": 64, "num_frames": 2, "tubelet_size": [2, 16, 16]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert load_weights(vivit(8, 32), file, quiet=True).interpolated == [VOLUME]
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_frames": 4}))
    with pytest.raises(WeightsError, match=r"2x4x4 .* 32 .* 16"):
        load_weights(vivit(8, 32), file, quiet=True)
    others = ('{"model": "another program\'s"}', "[" * 100_000, json.dumps(config | {"tubelet_size": [0, 16, 16]}))
    for text in (*others, json.dumps(config | {"num_frames": 8.0})):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(WeightsError, match="4x2x2 or 1x4x4"):
            load_weights(vivit(8, 32), file, quiet=True)


def test_the_published_files_have_a_known_grid() -> None:
    named = {VOLUME: torch.zeros(3136, 2), "patch_embed.proj.weight": torch.zeros(2, 3, 2, 16, 16)}
    assert with_grid(named, None)[VOLUME].shape == (16, 14, 14, 2)
    with pytest.raises(WeightsError, match="16x14x14"):
        with_grid({VOLUME: named[VOLUME]}, None)
    with pytest.raises(WeightsError, match="6 positions"):
        with_grid({VOLUME: torch.zeros(6, 2)}, None)
