"""A checkpoint with weights that make its answers differ, and everything it can be exported to, made once a session."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from fixformer.config import ClipSpec, EvalConfig, TrainConfig
from fixformer.export.export_model import Exported, export
from fixformer.models.checkpoint import CheckpointInfo, complete_model_settings, write_model
from fixformer.models.registry import create_model
from videos import encode, textured

LABELS = ["ada", "bob", "cay", "dot", "eve"]
SETTINGS = {"embed_dim": 32, "depth": 1, "num_heads": 2, "patch_size": 8, "head_hidden_dim": 16}
# Scaled twice, at a side that no video has; an odd crop off the middle.
CLIP = ClipSpec(
    frames=4,
    size=32,
    short_side=37,
    focus=0.3,
    keep_frames=24,
    keep_short_side=50,
    mean=(0.4, 0.5, 0.6),
    std=(0.2,) * 3,
)


@dataclass(frozen=True)
class Exports:
    checkpoint: Path
    onnx: Path
    hf: Path
    onnx_result: Exported
    hf_result: Exported


def write_checkpoint(folder: Path, clip: ClipSpec) -> Path:
    torch.manual_seed(0)
    config = TrainConfig(model="fixformer_tiny", model_settings=SETTINGS, clip=clip, eval=EvalConfig(views="2x3"))
    model = create_model(config.model, **complete_model_settings(config, len(LABELS)))
    for parameter in model.head.parameters():
        torch.nn.init.normal_(parameter)  # logits that are far apart, unlike those of a new head
    folder.mkdir(parents=True)
    write_model(folder, model.state_dict(), CheckpointInfo(config, LABELS))
    return folder


@pytest.fixture(scope="session")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Exports:
    home = tmp_path_factory.mktemp("exports")
    checkpoint = write_checkpoint(home / "checkpoint", CLIP)
    video = home / "clip.mp4"
    video.write_bytes(encode(textured(1)))
    made = {
        to: export(checkpoint, to=to, out=home / name, videos=[video])
        for to, name in (("onnx", "m.onnx"), ("hf", "hf"))
    }
    return Exports(checkpoint, home / "m.onnx", home / "hf", made["onnx"], made["hf"])
