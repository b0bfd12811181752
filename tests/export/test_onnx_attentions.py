"""The attentions that came after the paper as ONNX graphs: the same logits from onnxruntime, for another batch size."""

from typing import Any

import numpy as np
import pytest
import torch
from onnxruntime import InferenceSession
from torch import nn

from fixformer import create_model
from fixformer.export.onnx_model import network_graph


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"attention": "mala"},
        {"attention": "inline"},
        {"attention": "rank"},
        {"kernel": "polar"},
        {"local": True, "output_gate": True},
    ],
    ids=str,
)
def test_onnxruntime_gives_the_same(settings: dict[str, Any]) -> None:
    torch.manual_seed(0)
    sizes = {"num_classes": 5, "num_frames": 3, "image_size": 44, "embed_dim": 32, "num_heads": 2, "depth": 1}
    model = create_model("fixformer_tiny", **sizes, **settings).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    session = InferenceSession(network_graph(model, 3, 44).SerializeToString(), providers=["CPUExecutionProvider"])
    video_BCTHW = torch.randn(3, 3, 3, 44, 44)
    with torch.no_grad():
        expected = model(video_BCTHW).numpy()
    (logits,) = session.run(None, {session.get_inputs()[0].name: video_BCTHW.numpy()})
    np.testing.assert_allclose(logits, expected, atol=1e-4, rtol=1e-3)
