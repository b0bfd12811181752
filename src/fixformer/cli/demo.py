"""`make demo`: the whole workflow, with the commands a user would type.

Makes the motions data set, checks it, trains on it, evaluates on the held-out clips, classifies three of them and
writes one report about it all.
"""

import shlex
import shutil
import time
from pathlib import Path

from fixformer.cli.data_verbs import check
from fixformer.cli.printing import print_prediction
from fixformer.data.listing import Index, load_index
from fixformer.data.synthetic import make_motions
from fixformer.evaluation.evaluate import evaluate
from fixformer.evaluation.examples import Example, examples_chart, make_example
from fixformer.evaluation.predictor import load as load_classifier
from fixformer.evaluation.report import embedded, write_report
from fixformer.evaluation.result import Evaluation
from fixformer.runtime.console import note, printable, show
from fixformer.runtime.figures import optional
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
    _show_command(f"fixformer check {HOME}/motions --out {HOME}/check")
    check(f"{HOME}/motions", out=HOME / "check")
    _show_command(f"fixformer train demo --data {HOME}/motions --output {HOME}/run")
    train("demo", data=HOME / "motions", output=HOME / "run")
    evaluation = _evaluate()
    examples = _classify(index)
    shown = ""
    with optional("the pictures of the examples"):
        shown = embedded(examples_chart(examples), "Examples")
    write_report(
        evaluation,
        HOME,
        log=read_log(HOME / "run" / "log.jsonl"),
        title="fixformer demo: motions",
        extra=f"<h2>Examples</h2>{shown}",
    )
    minutes = (time.monotonic() - begin) / 60
    show(
        f"\n{evaluation.metrics.video_top1:.1%} of the held-out clips are classified correctly; {minutes:.1f} minutes."
    )
    show(f"Report: {HOME / 'report.html'}")


def _show_command(command: str) -> None:
    note(f"$ {command}")


def _make_data(target: Path) -> Index:
    _show_command(
        f"python -c 'from fixformer.data.synthetic import make_motions; make_motions(\"{target}\", clips={CLIPS})'"
    )
    with progress("making clips") as report:
        return load_index(make_motions(target, clips=CLIPS, progress=report))


def _evaluate() -> Evaluation:
    _show_command(f"fixformer eval {HOME}/run --views 2x3 --output {HOME}/evaluation")
    with progress("scoring videos") as report:
        evaluation = evaluate(HOME / "run", views="2x3", output=HOME / "evaluation", progress=report)
    show(str(evaluation))
    return evaluation


def _classify(index: Index) -> list[Example]:
    """Classify three held-out clips of different classes."""
    chosen = index.split(index.eval_split)[:15:7]
    _show_command(f"fixformer predict {HOME}/run {shlex.join(str(sample.path) for sample in chosen)}")
    classifier = load_classifier(HOME / "run")
    examples = [make_example(classifier, sample.path, index.labels[sample.label]) for sample in chosen]
    for example in examples:
        print_prediction(example.prediction)
        show(f"  true label: {printable(str(example.truth))}")
    return examples


if __name__ == "__main__":
    main()
