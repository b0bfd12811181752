"""Compare what `fixformer plan` predicts with peaks of processes, and write it to a JSON file.

    python tools/plan_proof.py results/plan.json

Each peak is that of a process of its own, which makes two training steps, or infers, on clips that are larger than
those that the prediction was fitted to. Rows that the file has are kept, so that it may be interrupted.
"""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fixformer.bench.capacity import MODES
from fixformer.bench.capacity_law import Clips, Counts, MeasuredLaw, measure_law
from fixformer.bench.capacity_worker import Mode, PeakJob
from fixformer.bench.process import measure_apart
from fixformer.bench.training_step import VARIANTS
from fixformer.runtime.files import read_json, write_json
from fixformer.runtime.machine import describe_machine

OWN = Clips(1, 16, 224)
# More of the model's own clips, longer ones, larger ones; their peaks are 1 to 8 GB in training.
CLIPS: dict[str, list[Clips]] = {
    "fixformer_tiny": [Clips(12, 16, 224), Clips(2, 64, 224), Clips(1, 48, 448)],
    "fixformer_small": [Clips(5, 16, 224), Clips(1, 48, 224), Clips(1, 24, 384)],
    "fixformer_base": [Clips(3, 16, 224), Clips(1, 40, 224)],
}
ATTENTIONS = ("ours", "softmax", "linear")
MOST = 9e9  # bytes that are measured
STEPS: dict[Mode, int] = {"kept": 2, "recomputed": 2, "inference": 1}
# Inference takes so little that more clips are needed for a peak that is not that of the process itself.
TIMES: dict[Mode, int] = {"kept": 1, "recomputed": 1, "inference": 4}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--models", nargs="+", default=list(CLIPS))
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    fresh: dict[str, Any] = {"machine": describe_machine(args.threads), "rows": []}
    result = read_json(args.out) if args.out.exists() else fresh
    for model in args.models:
        for attention in ATTENTIONS:
            for row in prove(model, attention, args.threads, result["rows"]):
                result["rows"].append(row)
                result["worst"] = max(abs(one["error"]) for one in result["rows"])
                result["machine"]["load_average_after"] = os.getloadavg()[0]
                write_json(args.out, result)
                print(f"{model} {attention} {row['mode']} {row['clips']}: {row['error']:+.1%}", flush=True)


def prove(model: str, attention: str, threads: int, done: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows of a model that are not there yet."""
    counts = Counts(model, VARIANTS[attention])
    for mode in MODES:
        known = [row for row in done if (row["model"], row["attention"], row["mode"]) == (model, attention, mode)]
        if len(known) == len(CLIPS[model]):
            continue
        law = measure_law(mode, counts, OWN, threads=threads)
        for clips in CLIPS[model]:
            larger = clips._replace(batch=TIMES[mode] * clips.batch)
            if str(larger) not in [row["clips"] for row in known]:
                yield {"model": model, "attention": attention, **compare(law, larger, threads)}


def compare(law: MeasuredLaw, clips: Clips, threads: int) -> dict[str, Any]:
    """The predicted and the measured peak of a clip."""
    assert clips not in [one.clips for one in law.measured]
    predicted = law.peak(clips)
    assert predicted is not None
    assert predicted < MOST, f"{clips}: {predicted / 1e9:.1f} GB"
    job = PeakJob(
        law.counts.model,
        law.counts.settings,
        law.mode,
        [list(clips)],
        threads=threads,
        whole=True,
        steps=STEPS[law.mode],
    )
    peak = measure_apart("fixformer.bench.capacity_worker", job, str(clips))["peaks"][0]
    fitted = {str(one.clips): one.peak for one in law.measured}
    error = predicted / peak - 1
    return {"mode": law.mode, "clips": str(clips), "predicted": predicted, "peak": peak, "error": error, "fit": fitted}


if __name__ == "__main__":
    main()
