"""One row of a study with one seed, in a process of its own: `python -m fixformer.experiments.row_worker JOB.json`.

It trains, or goes on where it was stopped, and scores what was trained; what is finished is not done again. SIGTERM
saves and stops.
"""

import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from fixformer.config import TrainConfig
from fixformer.config.schema import Count, Fraction, NonNegative, load
from fixformer.data.listing import Index
from fixformer.errors import Interrupted, NotFinite, UserError, explain
from fixformer.evaluation.evaluate import evaluate_model
from fixformer.evaluation.result import Evaluation
from fixformer.evaluation.scores import NOT_FINITE
from fixformer.experiments.row_identity import Scoring
from fixformer.experiments.study_statistics import RIGHT, UNSCORED, WRONG
from fixformer.models.checkpoint import load_model, read_info
from fixformer.runtime.console import print_error
from fixformer.runtime.files import read_json, write_json
from fixformer.runtime.provenance import source_commit
from fixformer.runtime.signals import StopRequest
from fixformer.training.log import read_log
from fixformer.training.request import load_checked_index
from fixformer.training.run import train_in_place

JOB_FILE, TRAINED_FILE, RUN = "job.json", "trained.json", "run"


@dataclass(frozen=True)
class RowJob:
    """What a process does: train `config` in its output directory, with the initial weights of `twin`, and score it."""

    config: TrainConfig
    twin: TrainConfig
    scorings: tuple[Scoring, ...]


@dataclass(frozen=True)
class Trained:
    """What is known of a finished training; the accuracy is that of the split that was scored on the way."""

    minutes: NonNegative
    steps: Count
    validation: Fraction


@dataclass(frozen=True)
class Score:
    """The score of a trained row.

    Args:
        correct: a letter for every listed video, in the order of the list.
        minutes: of training and of the evaluations on the way, without decoding and image features, which are done
            once for many rows.
        validation: accuracy of the split that was scored on the way.
        diverged: why there is no model: its loss became NaN or infinite. It classifies nothing, so `correct` is WRONG.
    """

    correct: str
    minutes: NonNegative
    validation: Fraction | None
    protocol_line: str
    commit: str
    diverged: str | None = None


def score_file(home: Path, scoring: Scoring) -> Path:
    return home / f"score-{scoring}.json"


def run_job(file: Path) -> None:
    """Do what a job says; scores are written beside it."""
    job, home = load(RowJob, read_json(file)), file.parent
    if job.config.run.threads:
        torch.set_num_threads(job.config.run.threads)
    index = load_checked_index(job.config)
    try:
        trained = _train(job, index, home)
        for scoring in job.scorings:
            if not score_file(home, scoring).is_file():
                write_json(score_file(home, scoring), asdict(_score(job.config, index, scoring, trained)))
    except UserError as error:
        if not isinstance(error, NotFinite) and NOT_FINITE not in str(error):
            raise
        for scoring in job.scorings:
            write_json(score_file(home, scoring), asdict(_nothing(job.config, index, scoring, str(error))))


def _train(job: RowJob, index: Index, home: Path) -> Trained:
    file = home / TRAINED_FILE
    if not file.is_file():
        train_in_place(job.config, index, None, resume=True, fork=False, twin=job.twin)
        info = read_info(job.config.output)
        validation = info.metrics["video_top1"]
        write_json(file, asdict(Trained(_minutes(job.config), info.step, validation)))
    return load(Trained, read_json(file))


def _minutes(config: TrainConfig) -> float:
    """That the run has taken, over all its interruptions."""
    rows = read_log(Path(config.output) / "log.jsonl")
    return max((float(row["seconds"]) for row in rows if "seconds" in row), default=0.0) / 60


def _score(config: TrainConfig, index: Index, scoring: Scoring, trained: Trained) -> Score:
    model, info = load_model(config.output)
    views = replace(config.eval, views=scoring.views, aggregate=scoring.aggregate)
    with StopRequest() as stop:
        evaluation = evaluate_model(model, info, index, scoring.split, views, config.data, stop=stop)
    return Score(
        correct=correct_videos(evaluation, index, scoring.split),
        minutes=trained.minutes,
        validation=trained.validation if scoring.split != index.eval_split else None,
        protocol_line=str(evaluation.protocol),
        commit=evaluation.protocol.commit,
    )


def correct_videos(evaluation: Evaluation, index: Index, split: str) -> str:
    """A letter for every video of a split. A score that is NaN is the model's failure, an unreadable file is not."""
    letters = {video.path: RIGHT if video.label == video.predicted else WRONG for video in evaluation.videos}
    letters |= {failure.path: WRONG for failure in evaluation.failures if NOT_FINITE in failure.message}
    return "".join(letters.get(sample.path, UNSCORED) for sample in index.split(split))


def _nothing(config: TrainConfig, index: Index, scoring: Scoring, reason: str) -> Score:
    """The score of a model that does not exist."""
    correct = WRONG * len(index.split(scoring.split))
    return Score(correct, _minutes(config), None, "no model: the loss diverged", source_commit(), reason)


def main() -> None:
    """The main program of the process; what it did not do is an exit status and the last line of stderr."""
    try:
        run_job(Path(sys.argv[1]))
    except Interrupted as interrupted:
        print_error(interrupted)
        sys.exit(interrupted.status)
    except (UserError, OSError, MemoryError, OverflowError, RuntimeError) as error:
        sentence = explain(error)
        if sentence is None:
            raise
        print_error(sentence)
        sys.exit(1)


if __name__ == "__main__":
    main()
