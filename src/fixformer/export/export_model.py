"""`fixformer export`: a checkpoint in the form another program loads, compared with the checkpoint."""

import importlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from fixformer.config.schema import check_path, checked
from fixformer.data.clips.transforms import from_frames, normalise, view_crops
from fixformer.errors import InputError, MissingExtra, shown
from fixformer.evaluation.predictor import Classifier, load
from fixformer.export.compare import Agreement, Answer, compare, pytorch_answer, read_clip, videos_for
from fixformer.export.metadata import ExportInfo
from fixformer.export.model_card import about
from fixformer.runtime.console import note, printable
from fixformer.runtime.files import new_directory, replacing

if TYPE_CHECKING:
    from onnx import ModelProto

Format = Literal["onnx", "onnx-int8", "torch", "hf"]
# Static quantisation is kept if it is faster than dynamic by more than times vary, and agrees as often.
FASTER = 0.9
CALIBRATION_CLIPS = 8


@dataclass(frozen=True)
class Exported:
    """What was written where, and how it compares with the checkpoint. `how` is the kind of quantisation, if any."""

    path: Path
    to: str
    bytes: int
    agreement: Agreement
    usage: str
    how: str = ""

    def to_json(self) -> dict[str, Any]:
        kind = {"to": self.to, **({"quantisation": self.how} if self.how else {})}
        return {"path": str(self.path), **kind, "bytes": self.bytes, "agreement": self.agreement.to_json()}

    def __str__(self) -> str:
        how = f", {self.how} quantisation" if self.how else ""
        file = f"{printable(str(self.path))} ({self.bytes / 1e6:.1f} MB{how})"
        return f"{file}\n{self.agreement}\nuse it: {printable(self.usage)}"


@checked
def export(checkpoint: str | Path, *, to: Format, out: str | Path, videos: Iterable[str | Path] = ()) -> Exported:
    """Write a checkpoint for other programs, with its preprocessing, and measure how well it agrees with PyTorch.

    Args:
        checkpoint: a checkpoint, or the directory of a run.
        to: "onnx"; "onnx-int8", smaller and faster; "torch", a program of torch.export; "hf", a directory for
            Hugging Face.
        out: the file; for "hf", a new directory.
        videos: to compare on, and to calibrate int8 with; by default some of the checkpoint's own test videos, or
            generated ones where its data is not here.
    """
    check_path(out, "out")
    if isinstance(videos, str | Path) or not isinstance(videos, Iterable):
        raise InputError(f"videos={shown(videos)}: expected a list of files.")
    path, files = Path(out), list(videos)
    _check_place(path, to)
    if to.startswith("onnx"):
        _require("onnx", "onnx", "onnxruntime", "onnxscript")
    elif to == "hf":
        _require("hf", "transformers")
    classifier = load(checkpoint, device="cpu")
    with videos_for(classifier, files) as (samples, source):
        clips = [read_clip(classifier, sample) for sample in samples]
    if to == "hf":
        return _to_hf(classifier, path, clips, source, about(classifier, checkpoint))
    return (_to_torch if to == "torch" else _to_onnx)(classifier, path, to, clips, source)


def _check_place(path: Path, to: str) -> None:
    if to == "hf":
        if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
            raise InputError(f"out={str(path)!r}: expected a new or empty directory.")
        return
    suffix = ".pt2" if to == "torch" else ".onnx"
    if path.suffix != suffix:
        raise InputError(
            f"out={str(path)!r}: expected a name that ends in {suffix}, such as {path.stem or 'model'}{suffix}."
        )
    if path.is_dir():
        raise InputError(f"out={str(path)!r}: expected the name of a file, it is a directory.")


def _require(extra: str, *modules: str) -> None:
    """Raise a `MissingExtra` before anything long begins."""
    try:
        for name in modules:
            importlib.import_module(name)
    except ImportError:
        if extra == "onnx":
            raise MissingExtra("exporting to ONNX", "onnx") from None
        raise MissingExtra("exporting for Hugging Face", "hf") from None


def export_info(classifier: Classifier) -> ExportInfo:
    config = classifier.info.config
    return ExportInfo(
        config.model, classifier.labels, config.clip, config.eval, config.data.backend, config.data.damaged
    )


def _to_onnx(classifier: Classifier, path: Path, to: str, clips: list[np.ndarray], source: str) -> Exported:
    from fixformer.export.onnx_model import dynamic_int8, network_graph, with_preprocessing

    spec = classifier.info.config.clip
    note("tracing the network, which takes up to a minute")
    network, how = network_graph(classifier.model, spec.frames, spec.size), ""
    if to == "onnx-int8":
        graph, agreement, how = _best_int8(classifier, network, dynamic_int8(network), clips, source)
    else:
        graph = with_preprocessing(network, export_info(classifier))
        agreement = compare(pytorch_answer(classifier), onnx_answer(graph), clips, source)
    with replacing(path) as temporary:
        temporary.write_bytes(graph.SerializeToString())
    usage = f"fixformer predict {path} VIDEO"
    return Exported(path, to, path.stat().st_size, agreement, usage, how)


def _best_int8(
    classifier: Classifier, network: "ModelProto", dynamic: "ModelProto", clips: list[np.ndarray], source: str
) -> tuple["ModelProto", Agreement, str]:
    """Dynamic quantisation, or static where that is faster and agrees as often.

    The two are compared on clips that did not calibrate, if there is more than one.
    """
    from fixformer.export.onnx_model import static_int8, with_preprocessing

    info = export_info(classifier)
    reference = pytorch_answer(classifier)
    graph = with_preprocessing(dynamic, info)
    held_out = clips[1::2] or clips
    note("int8 with ranges measured in every run (dynamic), and with ranges from calibration clips (static)")
    of_dynamic = compare(reference, onnx_answer(graph), held_out, source)
    calibration = [network_input(clip_THWC, info) for clip_THWC in clips[::2][:CALIBRATION_CLIPS]]
    static = with_preprocessing(static_int8(network, calibration), info)
    of_static = compare(reference, onnx_answer(static), held_out, source)
    note(f"dynamic: {of_dynamic}\nstatic: {of_static}")
    is_faster = of_static.seconds_exported < FASTER * of_dynamic.seconds_exported
    if is_faster and of_static.same_class >= of_dynamic.same_class:
        return static, of_static, "static"
    return graph, compare(reference, onnx_answer(graph), clips, source), "dynamic"


def network_input(clip_THWC: np.ndarray, info: ExportInfo) -> np.ndarray:
    """`[1, 3, T, size, size]`, as the network takes it."""
    (view,) = view_crops(from_frames(clip_THWC), info.clip, 1)
    return normalise(view.contiguous()[None], info.clip.mean, info.clip.std).numpy()


def onnx_answer(graph: "ModelProto") -> Answer:
    """Logits by onnxruntime, on as many threads as torch has."""
    import onnxruntime

    from fixformer.export.onnx_predict import FRAMES

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 3
    session = onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def answer(clip_THWC: np.ndarray) -> np.ndarray:
        (logits_1K,) = session.run(None, {FRAMES: clip_THWC[None]})
        return logits_1K[0]

    return answer


def _to_torch(classifier: Classifier, path: Path, to: str, clips: list[np.ndarray], source: str) -> Exported:
    from fixformer.export.torch_program import program_answer, trace, write_program

    note("tracing the network, which takes up to a minute")
    program = trace(classifier.model, classifier.info.config.clip)
    agreement = compare(pytorch_answer(classifier), program_answer(program), clips, source)
    with replacing(path) as temporary:
        write_program(program, temporary, export_info(classifier))
    usage = f"torch.export.load({str(path)!r}).module()(frames)"
    return Exported(path, to, path.stat().st_size, agreement, usage)


def _to_hf(classifier: Classifier, path: Path, clips: list[np.ndarray], source: str, told: dict[str, Any]) -> Exported:
    from fixformer.export.hugging_face import saved_answer, to_hugging_face

    with new_directory(path) as folder:
        to_hugging_face(classifier, told).save_pretrained(folder)
    agreement = compare(pytorch_answer(classifier), saved_answer(path), clips, source)
    size = sum(file.stat().st_size for file in path.iterdir())
    usage = f'import fixformer.export.hugging_face; transformers.pipeline("video-classification", {str(path)!r})'
    return Exported(path, "hf", size, agreement, usage)
