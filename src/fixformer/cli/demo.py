"""`make demo`: the main job, start to finish, with the commands a user would type.

Makes the motions set, checks it, trains on it, scores the held-out clips, classifies three of them and writes one page
about it all.
"""

import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from fixformer.cli.data_verbs import check
from fixformer.cli.printing import print_prediction
from fixformer.data.listing import Index, load_index
from fixformer.data.synthetic import make_motions
from fixformer.evaluation.charts import can_draw
from fixformer.evaluation.evaluate import evaluate
from fixformer.evaluation.examples import Example, examples_picture, make_example
from fixformer.evaluation.predictor import load as load_classifier
from fixformer.evaluation.report import embedded, write_report
from fixformer.evaluation.result import Evaluation
from fixformer.runtime.progress import progress
from fixformer.training.log import read_log
from fixformer.training.run import train

HOME = Path("demo")
CLIPS = 960


def main() -> None:
    begin = time.monotonic()
    for name in ("motions", "check", "run", "evaluation"):
        shutil.rmtree(HOME / name, ignore_errors=True)
    index = _make_data(HOME / "motions")
    _say(f"fixformer check {HOME}/motions --out {HOME}/check")
    check(f"{HOME}/motions", out=HOME / "check")
    _say(f"fixformer train demo --data {HOME}/motions --output {HOME}/run")
    train("demo", data=HOME / "motions", output=HOME / "run")
    evaluation = _score()
    examples = _classify(index)
    _write_page(evaluation, examples)
    minutes = (time.monotonic() - begin) / 60
    print(f"\n{evaluation.metrics.video_top1:.1%} of the held-out clips are named correctly; {minutes:.1f} minutes.")
    print(f"Everything on one page: {HOME / 'report.html'}")


def _say(command: str) -> None:
    print(f"\n$ {command}", file=sys.stderr, flush=True)


def _make_data(target: Path) -> Index:
    _say(f"python -c 'from fixformer.data.synthetic import make_motions; make_motions(\"{target}\", clips={CLIPS})'")
    with progress("making clips") as report:
        return load_index(make_motions(target, clips=CLIPS, progress=report))


def _score() -> Evaluation:
    _say(f"fixformer eval {HOME}/run --views 2x3 --output {HOME}/evaluation")
    with progress("scoring videos") as report:
        evaluation = evaluate(HOME / "run", views="2x3", output=HOME / "evaluation", progress=report)
    print(evaluation)
    return evaluation


def _classify(index: Index) -> list[Example]:
    """Three held-out clips of classes that are not alike."""
    chosen = index.split(index.eval_split)[:15:7]
    _say(f"fixformer predict {HOME}/run {shlex.join(str(sample.path) for sample in chosen)}")
    classifier = load_classifier(HOME / "run")
    examples = [make_example(classifier, sample.path, index.labels[sample.label]) for sample in chosen]
    for example in examples:
        print_prediction(example.prediction)
        print(f"  it is: {example.truth}")
    return examples


def _write_page(evaluation: Evaluation, examples: list[Example]) -> None:
    log: list[dict[str, Any]] = read_log(HOME / "run" / "log.jsonl")
    shown = embedded(examples_picture(examples), "Examples") if can_draw() else ""
    write_report(evaluation, HOME, log=log, title="fixformer demo: motions", extra=f"<h2>Examples</h2>{shown}")


if __name__ == "__main__":
    main()
