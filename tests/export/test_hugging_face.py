"""What is shared: directories that transformers loads, and what goes to the hub."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import fixformer.export.hugging_face as hf
from fixformer.errors import InputError, UserError
from fixformer.evaluation.predictor import load
from tiny_exports import LABELS, Exports
from videos import encode, textured

pytestmark = pytest.mark.slow

FILES = {"config.json", "model.safetensors", "video_preprocessor_config.json", "README.md"}


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("video") / "clip.mp4"
    path.write_bytes(encode(textured(5)))
    return path


def test_the_auto_classes_load_a_directory(exports: Exports, video: Path) -> None:
    model = hf.AutoModelForVideoClassification.from_pretrained(exports.hf)
    processor = hf.AutoVideoProcessor.from_pretrained(exports.hf)
    assert isinstance(model, hf.FixformerForVideoClassification)
    assert isinstance(processor, hf.FixformerVideoProcessor)
    assert {path.name for path in exports.hf.iterdir()} == FILES
    inputs = processor([str(video), video.read_bytes()], return_tensors="pt")
    assert inputs["pixel_values"].shape == (2, 4, 3, 32, 32)
    with torch.no_grad():
        found = model(**inputs, labels=torch.tensor([0, 1]))
    wanted = load(exports.checkpoint, device="cpu").predict(video, views="1x1").scores_K
    torch.testing.assert_close(found.logits, wanted.expand(2, -1), atol=1e-4, rtol=0)
    torch.testing.assert_close(found.loss, torch.nn.functional.cross_entropy(found.logits, torch.tensor([0, 1])))
    assert list(model.config.id2label.values()) == LABELS


def test_saving_again_gives_the_same_files(exports: Exports, tmp_path: Path) -> None:
    hf.FixformerForVideoClassification.from_pretrained(exports.hf).save_pretrained(tmp_path / "again")
    for name in ("model.safetensors", "video_preprocessor_config.json", "README.md"):
        assert (tmp_path / "again" / name).read_bytes() == (exports.hf / name).read_bytes(), name


def test_another_number_of_frames_is_refused(exports: Exports, video: Path) -> None:
    processor = hf.FixformerVideoProcessor.from_pretrained(exports.hf)
    with pytest.raises(InputError, match="num_frames=16: expected 4"):
        processor(str(video), num_frames=16)


def test_a_pickle_is_not_read(exports: Exports, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(exports.hf, tmp_path / "copy"))
    (copy / "model.safetensors").unlink()
    torch.save({}, copy / "pytorch_model.bin")
    with pytest.raises(OSError, match="safetensors"):
        hf.AutoModelForVideoClassification.from_pretrained(copy)


@pytest.mark.parametrize(("name", "value"), [("model_name", "fixformer_tinny"), ("model_settings", {"depth": -1})])
def test_a_tampered_config_is_refused(exports: Exports, tmp_path: Path, name: str, value: Any) -> None:
    config = hf.FixformerConfig.from_pretrained(exports.hf)
    setattr(config, name, value)
    with pytest.raises(UserError):
        hf.FixformerForVideoClassification(config)


class Hub:
    """Stands in for the hub: notes what was made and uploaded."""

    calls: dict[str, Any]

    def __init__(self, token: str | None = None) -> None:
        Hub.calls = {"token": token}

    def create_repo(self, repo_id: str, **options: Any) -> Any:
        Hub.calls["create"] = {"repo_id": repo_id, **options}
        return type("Repository", (), {"repo_id": f"someone/{repo_id}"})

    def upload_folder(self, *, repo_id: str, folder_path: str, **options: Any) -> str:
        files = {path.name: path.read_bytes() for path in Path(folder_path).iterdir()}
        Hub.calls["upload"] = {"repo_id": repo_id, "files": files, **options}
        return "commit"


def test_pushing_uploads_all_files_at_once(exports: Exports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf, "HfApi", Hub)
    model = hf.FixformerForVideoClassification.from_pretrained(exports.hf)
    assert model.push_to_hub("signs", private=True, token="t", commit_message="first") == "commit"
    assert Hub.calls["token"] == "t"
    assert Hub.calls["create"] == {"repo_id": "signs", "private": True, "exist_ok": True}
    upload = Hub.calls["upload"]
    assert (upload["repo_id"], upload["commit_message"]) == ("someone/signs", "first")
    assert set(upload["files"]) == FILES
    assert upload["files"]["model.safetensors"] == (exports.hf / "model.safetensors").read_bytes()
