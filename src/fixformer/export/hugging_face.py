"""Hugging Face: config, model and video processor, registered with the Auto classes when this module is imported.

    import fixformer.export.hugging_face
    transformers.pipeline("video-classification", "DIRECTORY or name on the hub")("clip.mp4")

The processor reads the video itself, by the functions of evaluation, so the pipeline answers as `fixformer predict`
does with one view. It does not need torchvision.

Shapes: B videos, T frames, C colours, H height, W width.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from huggingface_hub import HfApi
from torch import Tensor
from transformers import AutoConfig, AutoModelForVideoClassification, PreTrainedConfig, PreTrainedModel
from transformers.image_processing_utils import BatchFeature
from transformers.modeling_outputs import ImageClassifierOutput
from transformers.models.auto.video_processing_auto import AutoVideoProcessor
from transformers.video_processing_utils import VideoProcessorMixin

from fixformer.config import ClipSpec
from fixformer.config.schema import dump, load
from fixformer.data.clips.views import file_views
from fixformer.errors import InputError, shown
from fixformer.evaluation.predictor import Classifier
from fixformer.export.compare import Answer
from fixformer.export.model_card import CARD, model_card
from fixformer.models.checkpoint import complete_model_settings
from fixformer.models.registry import create_model
from fixformer.runtime.files import write_text


class FixformerConfig(PreTrainedConfig):
    """`config.json`: the arguments of `fixformer.create_model`, the clip spec, and what the model card tells."""

    model_type = "fixformer"

    model_name: str = "fixformer_tiny"
    model_settings: dict[str, Any] | None = None
    clip: dict[str, Any] | None = None
    reading: dict[str, Any] | None = None
    about: dict[str, Any] | None = None
    num_frames: int = 16
    image_size: int = 224


class FixformerForVideoClassification(PreTrainedModel):
    """Any model of fixformer as one of transformers."""

    config_class = FixformerConfig
    config: FixformerConfig
    main_input_name = "pixel_values"

    def __init__(self, config: FixformerConfig) -> None:
        super().__init__(config)
        settings = {"num_classes": config.num_labels, "num_frames": config.num_frames, "image_size": config.image_size}
        self.model = create_model(config.model_name, **{**settings, **(config.model_settings or {})})
        self.post_init()

    def _init_weights(self, module: torch.nn.Module) -> None:
        """Nothing: `create_model` has initialised it."""

    def forward(self, pixel_values: Tensor, labels: Tensor | None = None, **others: Any) -> ImageClassifierOutput:
        """`pixel_values` is `[B, T, C, H, W]`, as the processor gives it."""
        logits_BK = self.model(pixel_values.transpose(1, 2))
        loss = None if labels is None else torch.nn.functional.cross_entropy(logits_BK, labels)
        return ImageClassifierOutput(loss=loss, logits=logits_BK)  # type: ignore[arg-type]

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """As in transformers, but never from a pickle."""
        return super().from_pretrained(*args, **{**kwargs, "use_safetensors": True})

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> None:
        """Also writes the processor's file and the model card, so that the directory is complete."""
        super().save_pretrained(save_directory, *args, **kwargs)
        processor_of(self.config).save_pretrained(save_directory)
        write_text(Path(save_directory) / CARD, model_card(self.config.to_dict()))

    def push_to_hub(  # type: ignore[override] # the arguments that mean something here
        self, repo_id: str, *, private: bool | None = None, token: str | bool | None = None, **kwargs: Any
    ) -> Any:
        """Upload what `save_pretrained` writes; further arguments are those of `HfApi.upload_folder`."""
        api = HfApi(token=token)
        name = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        with TemporaryDirectory(prefix="fixformer-") as folder:
            self.save_pretrained(folder)
            options = {"commit_message": "Upload fixformer model", **kwargs}
            return api.upload_folder(repo_id=name, folder_path=folder, **options)


class FixformerVideoProcessor(VideoProcessorMixin):
    """From video files to `pixel_values`, by the clip spec of the checkpoint; `clip` and `reading` are in its file."""

    model_input_names = ["pixel_values"]  # noqa: RUF012 - as in the base class

    def __init__(
        self, clip: dict[str, Any] | None = None, reading: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.clip, self.reading = clip or dump(ClipSpec()), reading or {}

    @property
    def spec(self) -> ClipSpec:
        return load(ClipSpec, self.clip, "clip")

    def preprocess(self, videos: Any, **kwargs: Any) -> BatchFeature:
        """`pixel_values` `[B, T, C, H, W]` of a video or several: paths, bytes or open binary files."""
        spec = self.spec
        if kwargs.get("num_frames", spec.frames) != spec.frames:
            raise InputError(f"num_frames={shown(kwargs['num_frames'])}: expected {spec.frames}, as in training.")
        files = list(videos) if isinstance(videos, Sequence) and not isinstance(videos, str | bytes) else [videos]
        clips_BCTHW = torch.cat([file_views(file, spec, **self.reading) for file in files])
        return BatchFeature({"pixel_values": clips_BCTHW.transpose(1, 2)}, tensor_type=kwargs.get("return_tensors"))


AutoConfig.register(FixformerConfig.model_type, FixformerConfig, exist_ok=True)
AutoModelForVideoClassification.register(FixformerConfig, FixformerForVideoClassification, exist_ok=True)
AutoVideoProcessor.register(FixformerConfig, FixformerVideoProcessor, exist_ok=True)


def processor_of(config: FixformerConfig) -> FixformerVideoProcessor:
    return FixformerVideoProcessor(config.clip, config.reading)


def config_of(classifier: Classifier, about: dict[str, Any]) -> FixformerConfig:
    """`config.json` of a checkpoint."""
    info = classifier.info
    settings = complete_model_settings(info.config, len(info.labels))
    settings.pop("num_classes")
    return FixformerConfig(
        model_name=info.config.model,
        num_frames=settings.pop("num_frames"),
        image_size=settings.pop("image_size"),
        model_settings=json.loads(json.dumps(settings)),
        clip=dump(info.config.clip),
        reading={"backend": info.config.data.backend, "damaged": info.config.data.damaged},
        about=about,
        id2label=dict(enumerate(info.labels)),
        label2id={label: number for number, label in enumerate(info.labels)},
    )


def to_hugging_face(classifier: Classifier, about: dict[str, Any] | None = None) -> FixformerForVideoClassification:
    """The model of a classifier, with its weights."""
    model = FixformerForVideoClassification(config_of(classifier, about or {}))
    model.model.load_state_dict(classifier.model.state_dict())
    return model.eval()


def saved_answer(folder: Path) -> Answer:
    """Logits of a saved directory as transformers loads it."""
    model = AutoModelForVideoClassification.from_pretrained(folder)
    spec = AutoVideoProcessor.from_pretrained(folder).spec

    @torch.no_grad()
    def answer(clip_THWC: np.ndarray) -> np.ndarray:
        from fixformer.data.clips.transforms import from_frames, normalise, view_crops

        (view,) = view_crops(from_frames(clip_THWC), spec, 1)
        video_BCTHW = normalise(view.contiguous()[None], spec.mean, spec.std)
        return model(video_BCTHW.transpose(1, 2)).logits[0].numpy()

    return answer
