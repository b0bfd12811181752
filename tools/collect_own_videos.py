"""Write the scores of runs on small sets to a JSON.

python tools/collect_own_videos.py results/own_videos.json TABLE=RUN ...

TABLE says in which table of docs/own_videos.md a run stands: tuning (scored on signers 7-8), signs, few, auto, blocks.
Runs that are in the JSON already and not named again are kept.
"""

import json
import sys
from pathlib import Path
from typing import Any

from fixformer.config import TrainConfig, changes
from fixformer.config.recipes import get_recipe
from fixformer.config.schema import load
from fixformer.runtime.files import write_json
from fixformer.training.log import read_log

# Where and how fast, not what.
UNINTERESTING = (
    *("recipe", "seed", "init", "eval", "data", "micro_batch", "run", "epochs", "frozen_epochs", "clip.augment.area"),
)


def one_run(table: str, home: Path) -> dict[str, Any]:
    """What a run was, how long it took and what it scored."""
    record = json.loads((home / "run.json").read_text())
    config = load(TrainConfig, record["config"])
    evaluation = json.loads((home / "evaluation" / "evaluation.json").read_text())
    rows = read_log(home / "log.jsonl")
    recipe = get_recipe("auto" if config.recipe == "auto" else "lsa64_lite")
    differences = [text for text in changes(recipe, config) if not text.startswith(UNINTERESTING)]
    return {
        "table": table,
        "run": home.name,
        "model": config.model,
        "seed": config.seed,
        "init": config.init and Path(config.init).name,
        "unlike_recipe": differences,
        "epochs": config.epochs,
        "frozen_epochs": config.frozen_epochs,
        "train_videos": _train_videos(rows, config),
        "classes": len(evaluation["labels"]),
        "processes": config.run.processes,
        "threads": config.run.threads,
        "minutes": max(row["seconds"] for row in rows if row["kind"] in ("step", "eval")) / 60,
        "video_top1": evaluation["metrics"]["video_top1"],
        "protocol_line": evaluation["protocol_line"],
        "scores": [
            {"epoch": row["epoch"], "minutes": row["seconds"] / 60, "video_top1": row["video_top1"]}
            for row in rows
            if row["kind"] == "eval"
        ],
    }


def _train_videos(rows: list[dict[str, Any]], config: TrainConfig) -> int:
    """About: the videos that fill no batch are left out of each epoch."""
    last = max(row["step"] for row in rows)
    return last * config.batch_size // config.epochs


def main() -> None:
    out, *named = sys.argv[1:]
    path = Path(out)
    found = {row["run"]: row for row in json.loads(path.read_text())["runs"]} if path.exists() else {}
    for word in named:
        table, _, home = word.partition("=")
        found[Path(home).name] = one_run(table, Path(home))
    write_json(path, {"runs": list(found.values())})


if __name__ == "__main__":
    main()
