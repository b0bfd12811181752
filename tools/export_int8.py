"""Speed and agreement of exported models: `python tools/export_int8.py --checkpoint RUN`, about 6 minutes on one core.

Speed: fixformer_base at 16 x 224, from the bytes of a clip to its logits, on one thread, in processor seconds; the
models take turns. Agreement: all test videos of the run's data. Writes results/export_int8.json.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fixformer
from fixformer.config import ClipSpec, TrainConfig
from fixformer.data.listing import Sample
from fixformer.evaluation.predictor import Classifier, load
from fixformer.export.compare import Answer, compare, pytorch_answer, read_clip, videos_for
from fixformer.export.export_model import export_info, onnx_answer
from fixformer.export.onnx_model import dynamic_int8, network_graph, with_preprocessing
from fixformer.models.checkpoint import CheckpointInfo
from fixformer.runtime.console import note
from fixformer.runtime.files import write_json
from fixformer.runtime.machine import describe_machine
from fixformer.runtime.progress import counting
from fixformer.runtime.provenance import versions

OUT = Path(__file__).resolve().parents[1] / "results" / "export_int8.json"
SIZE = (16, 360, 640)  # frames, height and width of the clip that is timed


def answers(classifier: Classifier) -> tuple[Answer, Answer, Answer]:
    """PyTorch, ONNX in float32, ONNX in int8."""
    spec, info = classifier.info.config.clip, export_info(classifier)
    network = network_graph(classifier.model, spec.frames, spec.size)
    graphs = [with_preprocessing(graph, info) for graph in (network, dynamic_int8(network))]
    float32, int8 = map(onnx_answer, graphs)
    return pytorch_answer(classifier), float32, int8


def measure_speed() -> dict[str, Any]:
    """`fixformer_base` with the weights it starts from: speed does not depend on them."""
    model = fixformer.create_model("fixformer_base", num_classes=174)
    spec = ClipSpec(frames=model.num_frames, size=model.image_size)
    config = TrainConfig(model="fixformer_base", clip=spec)
    labels = [str(i) for i in range(174)]
    classifier = Classifier(model, CheckpointInfo(config, labels), torch.device("cpu"))
    pytorch, float32, int8 = answers(classifier)
    clip_THWC = np.random.default_rng(0).integers(0, 256, (*SIZE, 3), dtype=np.uint8)
    of_float32 = compare(pytorch, float32, [clip_THWC], "clip of noise")
    of_int8 = compare(pytorch, int8, [clip_THWC], "clip of noise")
    return {
        "model": "fixformer_base",
        "clip": f"{spec.frames} frames of {SIZE[2]} x {SIZE[1]}, network at {spec.size} x {spec.size}",
        "seconds_pytorch": of_int8.seconds_pytorch,
        "seconds_onnx_float32": of_float32.seconds_exported,
        "seconds_onnx_int8": of_int8.seconds_exported,
        "float32_speedup": of_float32.speedup,
        "int8_speedup": of_int8.speedup,
    }


def measure_agreement(checkpoint: str) -> dict[str, Any]:
    """Classes and logits of every test video, one view."""
    classifier = load(checkpoint, device="cpu")
    pytorch, float32, int8 = answers(classifier)
    found: list[tuple[int, np.ndarray, np.ndarray, np.ndarray]] = []
    with videos_for(classifier, (), most=10**6) as (samples, source), counting("comparing", len(samples)) as count:
        for sample in samples:
            found.append(_compared(classifier, sample, pytorch, float32, int8))
            count.advance()
    label_N, reference_NK, float32_NK, int8_NK = (np.array(column) for column in zip(*found, strict=True))
    return {
        "model": classifier.info.config.model,
        "videos": len(found),
        "source": source,
        **_scores("pytorch", label_N, reference_NK, reference_NK),
        **_scores("onnx_float32", label_N, reference_NK, float32_NK),
        **_scores("onnx_int8", label_N, reference_NK, int8_NK),
    }


def _compared(
    classifier: Classifier, sample: Sample, *models: Answer
) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    clip_THWC = read_clip(classifier, sample)
    one, two, three = (model(clip_THWC) for model in models)
    return sample.label, one, two, three


def _scores(name: str, label_N: np.ndarray, reference_NK: np.ndarray, own_NK: np.ndarray) -> dict[str, float]:
    return {
        f"{name}_top1": float((own_NK.argmax(1) == label_N).mean()),
        f"{name}_same_class": float((own_NK.argmax(1) == reference_NK.argmax(1)).mean()),
        f"{name}_largest_difference": float(np.abs(own_NK - reference_NK).max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", required=True, help="a run on LSA64")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    result: dict[str, Any] = {"machine": describe_machine(1), "versions": versions()}
    result["agreement"] = measure_agreement(options.checkpoint)
    note(str(result["agreement"]))
    result["speed"] = measure_speed()
    note(str(result["speed"]))
    write_json(options.out, result)


if __name__ == "__main__":
    main()
