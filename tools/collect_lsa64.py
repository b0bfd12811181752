"""Write a JSON with the scores of runs on LSA64, and of a linear probe on pixels beside them.

python tools/collect_lsa64.py ../shared/data/lsa64 results/lsa64_23.json runs/lsa64_23_seed0 runs/lsa64_23_seed1

Runs that were not finished, or had other settings than the recipe has, are listed under "tried".
"""

import json
import sys
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from fixformer.config import ClipSpec, DataConfig, TrainConfig, changes
from fixformer.config.recipes import get_recipe
from fixformer.config.schema import load
from fixformer.data.clips.frames import open_frames
from fixformer.data.clips.sampling import evenly_spaced
from fixformer.data.listing import Sample
from fixformer.data.loading import index_of
from fixformer.data.synthetic import linear_probe
from fixformer.runtime.files import write_json
from fixformer.runtime.progress import counting
from fixformer.training.log import read_log

# What may differ between runs of a recipe, and what the column "clips" says or is of no interest in a list of settings.
FREE = ("seed", "init", "eval", "recipe")
CLIPS = ("clip.frames", "clip.size", "clip.keep", "clip.augment.jitter", "epochs", "stages", "optim.warmup_epochs")
PROBE = {"frames": 8, "short_side": 24}


def one_run(home: Path) -> dict[str, Any]:
    """What a run was, and what it scored: one view of each video on the way, the recipe's views at the end."""
    config = json.loads((home / "run.json").read_text())["config"]
    rows = read_log(home / "log.jsonl")
    steps = [row for row in rows if row["kind"] == "step"]
    sizes = [f"{stage['frames']}x{stage['size']}:{stage['epochs']}" for stage in config["stages"]]
    scores = [(row["epoch"], row["seconds"] / 60, row["video_top1"]) for row in rows if row["kind"] == "eval"]
    changed = _unlike_recipe(config)
    found = {
        "run": home.name,
        "seed": config["seed"],
        "init": config["init"] and Path(config["init"]).name,
        "clips": ", ".join(sizes) or f"{config['clip']['frames']}x{config['clip']['size']}:{config['epochs']}",
        "unlike_recipe": [change for change in changed if not change.startswith(CLIPS)],
        "is_recipe": not changed,
        "threads": config["run"]["threads"],
        "minutes": steps[-1]["seconds"] / 60,
        "data_wait": mean(row["data_wait"] for row in steps),
        "scores": [{"epoch": epoch, "minutes": minutes, "video_top1": top1} for epoch, minutes, top1 in scores],
    }
    final = home / "evaluation" / "evaluation.json"
    if final.exists():
        evaluation = json.loads(final.read_text())
        found |= {name: evaluation[name] for name in ("protocol_line", "metrics")}
    return found


def _unlike_recipe(config: dict[str, Any]) -> list[str]:
    """Settings of the run that today's recipe for these signs has otherwise."""
    recipe = get_recipe("lsa64_all" if config["data"]["recording_set"] is None else "lsa64")
    found = changes(recipe, load(TrainConfig, config))
    return [change for change in found if not change.startswith(FREE)]


def is_published(run: dict[str, Any]) -> bool:
    return "metrics" in run and run["is_recipe"]


def pixels(samples: list[Sample]) -> tuple[np.ndarray, np.ndarray]:
    spec, rows = ClipSpec(keep_short_side=PROBE["short_side"]), []
    with counting("reading pixels", len(samples)) as progress:
        for sample in samples:
            with open_frames(sample.path, spec) as video:
                rows.append(video.get_frames(evenly_spaced(len(video), PROBE["frames"])).ravel())
            progress.advance()
    return np.stack(rows).astype(np.float32), np.array([sample.label for sample in samples])


def main() -> None:
    data, out, *runs = sys.argv[1:]
    config = json.loads((Path(runs[0]) / "run.json").read_text())["config"]
    index = index_of(load(DataConfig, {**config["data"], "path": data}))
    train, test = pixels(index.split("train")), pixels(index.split(index.eval_split))
    probe = linear_probe(*train, *test)
    found = [one_run(Path(run)) for run in runs]
    result = {
        "classes": len(index.labels),
        "videos": {"train": len(train[1]), "test": len(test[1])},
        "probe": {**PROBE, "video_top1": probe.accuracy},
        "runs": [run for run in found if is_published(run)],
        "tried": [run for run in found if not is_published(run)],
    }
    write_json(Path(out), result)


if __name__ == "__main__":
    main()
