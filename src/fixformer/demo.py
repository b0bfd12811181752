"""`make demo`: what the package does, start to finish, on this machine."""

import shutil
import sys
from pathlib import Path

import torch

from fixformer.bench.cost import cost
from fixformer.bench.show import print_cost
from fixformer.config import ClipSpec
from fixformer.data.index import load_index
from fixformer.data.synthetic import make_motions
from fixformer.data.views import file_views
from fixformer.models.registry import create_model

HOME = Path("demo")
SPEC = ClipSpec(frames=16, size=96)


def main() -> None:
    """Generate clips, classify one with an untrained model, and print what the model costs."""
    shutil.rmtree(HOME / "motions", ignore_errors=True)
    print("making 24 generated clips in demo/motions", file=sys.stderr)
    index = load_index(make_motions(HOME / "motions", clips=24))
    torch.manual_seed(0)
    model = create_model("fixformer_tiny", num_classes=len(index.labels), num_frames=16, image_size=96).eval()
    sample = index.samples[0]
    with torch.inference_mode():
        scores = model(file_views(sample.path, SPEC, clips=2, crops=3)).mean(0).softmax(-1)
    print(f"{sample.path}: {index.labels[sample.label]}; a model without training says, from 2x3 views:")
    for probability, label in zip(*scores.topk(3), strict=True):
        print(f"  {probability:6.1%}  {index.labels[label]}")
    print_cost(cost("fixformer_tiny", 16, 96, num_classes=len(index.labels)))


if __name__ == "__main__":
    main()
