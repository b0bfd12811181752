"""Make the small model in the package, `src/fixformer/models/shipped/`: weights in half precision, config and card.

    python tools/make_shipped_model.py --home demo

trains `fixformer_tiny` on the motions set by the recipe `demo`, with a narrower head so that the weights stay under
3 MB (8 minutes on one core), rounds the weights, scores them as they are shipped on the held-out clips, and writes the
card and results/shipped_model.json. What is already in --home (a data set, a finished run) is used again.
"""

import argparse
import json
import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from fixformer.data.synthetic import make_motions
from fixformer.evaluation.evaluate import evaluate
from fixformer.evaluation.intervals import wilson_interval
from fixformer.evaluation.result import Evaluation
from fixformer.models.checkpoint import CheckpointInfo, load_model, write_manifest, write_model
from fixformer.models.shipped_model import SHIPPED
from fixformer.runtime.files import write_json
from fixformer.training.run import train

CLIPS, HEAD, VIEWS = 960, 128, "2x3"
RESULTS = Path(__file__).resolve().parents[1] / "results" / "shipped_model.json"
LARGEST = 3_000_000  # bytes of the weights
CARD = """# The small model that comes with fixformer

`fixformer predict clip.mp4` uses it when no checkpoint is given, and so does `fixformer.load()`. It is there to try the
program with, and for tests; it is not a model of the real world.

**It knows** {classes} motions of simple shapes, as `fixformer.data.synthetic.make_motions` draws them (96x128 pixels,
1.2 to 2.8 seconds, the classes differ only in the order of their frames):

{labels}

**It does not know** anything else: no people, objects, scenes or signs. It has seen no filmed video. It always answers
with one of its {classes} motions, however sure it looks: on a filmed video a high probability means nothing.

| | |
|---|---|
| model | `{model}`, {params:,} parameters, {frames} frames of {size}x{size} pixels |
| training | recipe `demo` with `head_hidden_dim={head}`, {train} generated clips, {epochs} epochs, \
seed {seed}, commit {commit} |
| weights | float16 in the file ({megabytes:.2f} MB), computed in float32 |
| score | **{top1}** top-1 of {videos} held-out generated clips, {views} views, with the float16 weights \
({full} before rounding) |
| interval | {low} to {high} (95 %) |
| licence | Apache-2.0, like the package; the training clips are drawn by the package |

To make it again: `python tools/make_shipped_model.py`. For your own videos: `fixformer train DIR`.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, default=Path("demo"), help="where the data set and the run are")
    home = parser.parse_args().home
    if not (home / "motions").exists():
        make_motions(home / "motions", clips=CLIPS)
    if not (home / "run" / "last").exists():
        train("demo", data=home / "motions", output=home / "run", head_hidden_dim=HEAD)
    full = evaluate(home / "run", data=home / "motions", views=VIEWS)
    with TemporaryDirectory() as folder:
        info = write_half(home / "run", Path(folder))
        half = evaluate(folder, data=home / "motions", views=VIEWS)
        metrics = {"video_top1": half.metrics.video_top1, "views": VIEWS, "videos": len(half.videos)}
        write_half(home / "run", Path(folder), metrics)
        write_manifest(Path(folder))
        (Path(folder) / "README.md").write_text(card(Path(folder), info, full, half))
        shutil.rmtree(SHIPPED, ignore_errors=True)
        shutil.copytree(folder, SHIPPED)
    write_json(RESULTS, {"float16": result(half), "before_rounding": result(full), "half_precision_bytes": size_of()})
    print(half)
    print(f"written to {SHIPPED} and {RESULTS}")


def result(evaluation: Evaluation) -> dict[str, object]:
    videos = len(evaluation.videos)
    top1 = evaluation.metrics.video_top1
    interval = [round(end, 4) for end in wilson_interval(top1, videos)]
    return {"video_top1": top1, "interval": interval, "videos": videos, "protocol": str(evaluation.protocol)}


def size_of() -> int:
    return (SHIPPED / "model.safetensors").stat().st_size


def write_half(run: Path, folder: Path, metrics: dict[str, object] | None = None) -> CheckpointInfo:
    """The model of a run with its weights as float16; where its data was is nobody's business."""
    model, info = load_model(run)
    state = model.state_dict()
    tensors = {name: value.half() if value.is_floating_point() else value for name, value in state.items()}
    assert all(value.isfinite().all() for value in tensors.values() if value.dtype == torch.float16)
    data = replace(info.config.data, path="demo/motions")
    info = replace(info, config=replace(info.config, data=data), metrics=metrics or {})
    write_model(folder, tensors, info)
    size = (folder / "model.safetensors").stat().st_size
    assert size <= LARGEST, f"{size} bytes"
    return info


def card(folder: Path, info: CheckpointInfo, full: Evaluation, half: Evaluation) -> str:
    model, _ = load_model(folder)
    config = info.config
    low, high = wilson_interval(half.metrics.video_top1, len(half.videos))
    return CARD.format(
        classes=len(info.labels),
        labels="\n".join(f"- {label}" for label in info.labels),
        model=config.model,
        params=sum(one.numel() for one in model.parameters()),
        frames=config.clip.frames,
        size=config.clip.size,
        head=HEAD,
        train=CLIPS - len(half.videos),
        epochs=config.epochs,
        seed=config.seed,
        commit=json.loads((folder / "config.json").read_text())["commit"] or "unknown",
        megabytes=(folder / "model.safetensors").stat().st_size / 1e6,
        top1=percent(half.metrics.video_top1),
        full=percent(full.metrics.video_top1),
        videos=len(half.videos),
        views=VIEWS,
        low=percent(low),
        high=percent(high),
    )


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


if __name__ == "__main__":
    main()
