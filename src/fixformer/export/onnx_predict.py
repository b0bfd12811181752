"""Prediction with an exported ONNX graph: onnxruntime and PyAV, no torch.

Legend: V views = K clips x S crops (clip-major), T frames, H height, W width, C colours; in scores K classes.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fixformer.config import parse_views
from fixformer.config.eval import Views
from fixformer.config.schema import PositiveInt, Threads, check_path, checked, coerce
from fixformer.data.clips.frames import open_frames
from fixformer.data.clips.indices import view_indices
from fixformer.data.video import VideoSource
from fixformer.data.video.scaling import require_scalable
from fixformer.errors import MissingExtra, NotFinite, UserError
from fixformer.evaluation.answers import Guess, Prediction, PredictionError, answer_each, check_part
from fixformer.evaluation.sources import name_of
from fixformer.export.metadata import ExportInfo
from fixformer.runtime.files import read_bytes

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

FRAMES, CROP = "frames", "crop"  # the inputs of an exported graph
MIDDLE = 1  # the crop that is taken if there is one


class OnnxClassifier:
    """An exported graph with its labels and its preprocessing; made by `load_onnx`."""

    def __init__(self, session: "InferenceSession", info: ExportInfo) -> None:
        self.session, self.info = session, info

    @property
    def labels(self) -> list[str]:
        return self.info.labels

    @checked
    def predict(
        self,
        file: VideoSource,
        *,
        views: Views | None = None,
        top_k: PositiveInt = 5,
        start: float | None = None,
        end: float | None = None,
    ) -> Prediction:
        """Classify a video, or the part of it from `start` to `end` seconds, as `Classifier.predict` does."""
        check_part(start, end)
        views = views or self.info.scoring.views
        name = name_of(file)
        logits_VK = self.logits(file, views, start=start, end=end)
        if not np.isfinite(logits_VK.sum(0)).all():
            raise NotFinite(f"{name}: the model gives NaN or infinite scores for it; export another checkpoint.")
        score_K, share_K = combined(logits_VK, self.info.scoring.aggregate)
        best = np.argsort(-share_K, kind="stable")[:top_k]
        guesses = [Guess(self.labels[number], float(share_K[number])) for number in best]
        return Prediction(name, views, guesses, score_K)  # type: ignore[arg-type] # an array here, a tensor there

    def predict_each(
        self, files: Iterable[str | Path], *, views: Views | None = None, top_k: PositiveInt = 5
    ) -> Iterator[Prediction | PredictionError]:
        """Classify many videos; for one that cannot be classified, yields the error in place of a prediction."""
        coerce(views, Views | None, "views")  # what would be wrong with all of them is raised
        coerce(top_k, PositiveInt, "top_k")
        yield from answer_each(lambda file: self.predict(file, views=views, top_k=top_k), files)

    def logits(
        self, file: VideoSource, views: str = "1x1", *, start: float | None = None, end: float | None = None
    ) -> np.ndarray:
        """`[V, K]`: the logits of every view of a video."""
        crops = (MIDDLE,) if parse_views(views)[1] == 1 else (0, 1, 2)
        clips = self.clips(file, parse_views(views)[0], start=start, end=end)
        return np.stack([self.run(clip_THWC, crop) for clip_THWC in clips for crop in crops])

    def clips(
        self, file: VideoSource, clips: int = 1, *, start: float | None = None, end: float | None = None
    ) -> Iterator[np.ndarray]:
        """The frames that the graph is given, `[T, H, W, 3]`, of each clip of a video."""
        info = self.info
        options: dict[str, Any] = {"backend": info.backend, "damaged": info.damaged}
        with open_frames(file, info.clip, start=start, end=end, **options) as frames:
            wanted, place = np.unique(view_indices(frames, info.clip, clips), return_inverse=True)
            frames_NHWC = frames.get_frames(wanted)
        height, width = frames_NHWC.shape[1:3]
        if info.clip.fit == "crop":
            require_scalable(width, height, info.clip.test_short_side)
        yield from (frames_NHWC[place_T] for place_T in place.reshape(clips, -1))

    def run(self, clip_THWC: np.ndarray, crop: int = MIDDLE) -> np.ndarray:
        """The logits `[K]` of a clip of bytes."""
        (logits_1K,) = self.session.run(None, {FRAMES: clip_THWC[None], CROP: np.array(crop)})
        return logits_1K[0]


def combined(logits_VK: np.ndarray, aggregate: str) -> tuple[np.ndarray, np.ndarray]:
    """Scores and probabilities `[K]`, as `evaluation/scores.py` computes them from logits."""
    if aggregate == "logits":
        return logits_VK.sum(0), softmax(logits_VK.mean(0))
    share_K = softmax(logits_VK).mean(0)
    return share_K, share_K


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@checked
def load_onnx(path: str | Path, *, threads: Threads | None = None) -> OnnxClassifier:
    """A classifier from a file that `fixformer export --to onnx` or `onnx-int8` wrote.

    Args:
        path: the file. Only its graph of standard operators is run; one that refers to other files is refused.
        threads: of onnxruntime; by default OMP_NUM_THREADS, or as many as the processor has cores.
    """
    check_path(path, "path")
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtra("running an ONNX model", "onnx") from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only, which become exceptions too
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    options.intra_op_num_threads = threads or (int(wanted) if wanted.isdecimal() else 0)
    # a graph may name other files that hold its weights, any file of the machine: they are looked for where none is
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", os.devnull)
    failures: tuple[type[Exception], ...] = (*_onnxruntime_errors(), ValueError)
    try:
        session = onnxruntime.InferenceSession(read_bytes(path), options, providers=["CPUExecutionProvider"])
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.") from None
    except failures as error:
        reason = str(error).strip().splitlines()[-1][:200].rstrip(".") if str(error).strip() else "empty"
        raise UserError(f"{path} is no ONNX model that onnxruntime can run ({reason}); export it again.") from None
    info = ExportInfo.from_texts(session.get_modelmeta().custom_metadata_map, str(path))
    (output,) = session.get_outputs()
    if [one.name for one in session.get_inputs()] != [FRAMES] or output.shape[-1] != len(info.labels):
        raise UserError(f"{path} does not take and give what fixformer export writes; export the model again.")
    return OnnxClassifier(session, info)


def _onnxruntime_errors() -> tuple[type[Exception], ...]:
    """Its errors have no class in common but `Exception`."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return tuple(x for x in vars(state).values() if isinstance(x, type) and issubclass(x, Exception))
