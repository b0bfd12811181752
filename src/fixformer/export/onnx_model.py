"""A checkpoint as one ONNX graph: preprocessing (`onnx_frames`), network, and metadata that says how to use it."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from logging import ERROR, getLogger
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from onnx import ModelProto, compose, helper, inliner, load, numpy_helper, save
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic, quantize_static

from fixformer.errors import InputError, UserError
from fixformer.export.metadata import ExportInfo
from fixformer.export.onnx_frames import CLIP, CROP, OPSET, preprocessing
from fixformer.export.onnx_predict import MIDDLE
from fixformer.models.base import VideoModel

LOGITS = "logits"
# A file of this format cannot be larger.
MOST_BYTES = 2_000_000_000


def network_graph(model: VideoModel, frames: int, size: int) -> ModelProto:
    """The network alone, from normalised clips `[batch, 3, T, size, size]` to logits, for batches of any size."""
    clip_BCTHW = torch.zeros(2, 3, frames, size, size)  # a batch of 1 would be taken for a constant
    if sum(x.numel() * x.element_size() for x in model.state_dict().values()) > MOST_BYTES:
        raise InputError(f"{model.name} is larger than the 2 GB that fit into an ONNX file; use --to torch.")
    try:
        with _quiet():
            program = torch.onnx.export(
                model,
                (clip_BCTHW,),
                dynamo=True,
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                opset_version=OPSET,
                input_names=[CLIP],
                output_names=[LOGITS],
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"torch cannot trace {model.name} for ONNX ({reason}); use --to hf.") from error
    assert program is not None
    graph = program.model_proto
    del graph.graph.value_info[:]  # some are wrong after the exporter's optimisation, which quantisation trips over
    return graph


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter prints what concerns its developers; what fails is an exception."""
    loggers = [getLogger(name) for name in ("torch.onnx", "onnxscript", "root")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def with_preprocessing(network: ModelProto, info: ExportInfo) -> ModelProto:
    """The whole graph: `frames` of bytes (and, if given, the number of a `crop`) to `logits`."""
    before = inliner.inline_local_functions(preprocessing(info.clip))
    before.ir_version = network.ir_version
    before = compose.add_prefix(before, "frames/", rename_inputs=False, rename_outputs=False)
    whole = compose.merge_models(before, network, io_map=[(before.graph.output[0].name, CLIP)])
    whole.graph.input[0].type.tensor_type.shape.dim[1].dim_value = info.clip.frames
    # an input with a value may be left out
    whole.graph.initializer.append(numpy_helper.from_array(np.array(MIDDLE), CROP))
    whole.producer_name = "fixformer"
    helper.set_model_props(whole, info.to_texts())
    return whole


def dynamic_int8(network: ModelProto) -> ModelProto:
    """Weights of matrix products in 8 bits; activations are rounded when they come, each tensor by its own range."""
    with TemporaryDirectory(prefix="fixformer-") as folder, _quiet():
        path = Path(folder) / "int8.onnx"
        kinds = {"op_types_to_quantize": ["MatMul", "Gemm"], "weight_type": QuantType.QInt8}
        quantize_dynamic(network, path, per_channel=True, **kinds)
        return load(path)


def static_int8(network: ModelProto, clips_BCTHW: Sequence[np.ndarray]) -> ModelProto:
    """Convolutions and matrix products in 8 bits, the ranges of activations taken from calibration clips."""
    with TemporaryDirectory(prefix="fixformer-") as folder, _quiet():
        source, path = Path(folder) / "float.onnx", Path(folder) / "int8.onnx"
        save(network, source)
        kinds = {"op_types_to_quantize": ["Conv", "MatMul", "Gemm"], "weight_type": QuantType.QInt8}
        quantize_static(source, path, _Clips(clips_BCTHW), per_channel=True, **kinds)
        return load(path)


class _Clips(CalibrationDataReader):
    """Hands out calibration clips one by one."""

    def __init__(self, clips_BCTHW: Sequence[np.ndarray]) -> None:
        self._rest = iter(clips_BCTHW)

    def get_next(self) -> dict[str, np.ndarray] | None:
        clip_BCTHW = next(self._rest, None)
        return None if clip_BCTHW is None else {CLIP: clip_BCTHW}
