"""`fixformer train DIR --folds 5`: a number to trust from a small set.

Every fold is a run of its own with the setting `fold=NUMBER/COUNT`, in OUTPUT/fold-NUMBER: each video is scored once,
by a model that has not seen it.
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

from fixformer.config import TrainConfig
from fixformer.config.schema import checked, int_between
from fixformer.data.audit.check import probe_files
from fixformer.data.audit.duplicates import find_duplicates
from fixformer.data.audit.probe import ProbeCache
from fixformer.data.listing import Index
from fixformer.errors import UserError
from fixformer.evaluation.evaluate import EVALUATION_FILE, read_evaluation
from fixformer.evaluation.intervals import effective_videos, t_interval, wilson_interval
from fixformer.evaluation.metrics import Metrics
from fixformer.evaluation.report import text, write_report
from fixformer.evaluation.result import Evaluation, from_videos
from fixformer.models.checkpoint import read_info
from fixformer.runtime.console import note, printable
from fixformer.runtime.files import write_json
from fixformer.runtime.pools import processors
from fixformer.training.checkpoint_store import CheckpointStore
from fixformer.training.processes import Crew
from fixformer.training.request import Minutes, choose_the_rest, load_checked_index, print_lines, resolve_config
from fixformer.training.run import train_resolved
from fixformer.training.run_record import RunRecord

Folds = Annotated[int, int_between(2, 1000)]


@dataclass(frozen=True)
class CrossValidation:
    """The scores of all folds together.

    Args:
        output: directory of the folds.
        folds: accuracy of each, on its own videos.
        accuracy: of all videos, each scored once by the model of another fold's videos.
        interval: 95 %, Wilson's over the videos; where groups are known, over as many independent videos as say as
            much as the groups do.
        fold_interval: 95 %, Student's over the folds.
        groups: how many groups there are; None if none are known.
        warning: that videos of one recording may be on both sides, with what the search for copies found.
        pooled: the evaluation of all folds together.
    """

    output: Path
    folds: list[float]
    accuracy: float
    interval: tuple[float, float]
    fold_interval: tuple[float, float] | None
    groups: int | None
    warning: str | None
    pooled: Evaluation

    def to_json(self) -> dict[str, Any]:
        values = {name: value for name, value in vars(self).items() if name != "pooled"}
        return {**values, "output": str(self.output), "pooled": self.pooled.to_json()}

    def __str__(self) -> str:
        return "\n".join([*self.lines(), str(self.pooled)])

    def lines(self) -> Iterator[str]:
        scored, count = self.pooled.protocol.scored, len(self.folds)
        basis = "" if self.groups is None else f", {self.groups} groups kept together"
        low, high = self.interval
        yield f"{self.accuracy:.1%} of {scored} videos, 95 % interval {low:.1%} to {high:.1%} ({count} folds{basis})"
        spread = f"; mean {fmean(self.folds):.1%}"
        if self.fold_interval:
            spread += f", 95 % interval over folds {self.fold_interval[0]:.1%} to {self.fold_interval[1]:.1%}"
        yield f"folds: {', '.join(f'{score:.1%}' for score in self.folds)}{spread}"
        if self.warning:
            yield f"warning: {self.warning}"


@checked
def cross_validate(
    recipe: str | Path | TrainConfig = "folder",
    *,
    folds: Folds = 5,
    data: str | Path | None = None,
    output: str | Path | None = None,
    init: str | Path | None = None,
    resume: bool = False,
    fork: bool = False,
    minutes: Minutes | None = None,
    **overrides: Any,
) -> CrossValidation:
    """Train and score a model on every fold of a data set; arguments as of `train`.

    Writes folds.json and report.html, and the run of each fold in OUTPUT/fold-NUMBER. With `resume`, finished folds are
    not repeated and an interrupted one goes on. Videos of a test split are not used.

    Args:
        folds: in how many parts the training and validation videos are divided, by group where groups are known.
        minutes: that the run of each fold should take, where `recipe` is a data set; all have the same settings.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError(f"folds={folds} under torchrun: train one fold at a time, with fold=1/{folds} and so on.")
    config = resolve_config(recipe, data=data, output=output, init=init, **overrides)
    if config.data.fold is not None:
        raise UserError(f"fold={config.data.fold} is one fold and folds={folds} trains all of them; leave one out.")
    if not overrides.keys() & {"baselines", "eval.baselines"}:
        config = replace(config, eval=replace(config.eval, baselines=False))  # five times the same comparison
    home = Path(config.output)
    with Crew() as crew:
        config = _chosen(config, folds, {"init": init, **overrides}, minutes, crew, resume=resume)
        runs = [_fold_config(config, number, folds) for number in range(1, folds + 1)]
        indexes = [load_checked_index(run) for run in runs]  # before the first one trains for an hour
        groups = _groups(indexes[0])
        warning = None if groups or config.data.location else _leak_warning(indexes, config)
        if warning:
            note(printable(f"warning: {warning}"))
        found = list(_train_folds(runs, indexes, crew, resume=resume, fork=fork))
    result = _summarise(home, found, groups, warning)
    _write(result)
    return result


def _train_folds(
    runs: list[TrainConfig], indexes: list[Index], crew: Crew, *, resume: bool, fork: bool
) -> Iterator[Evaluation]:
    """The evaluation of one fold after the other, all with the same processes."""
    for number, (run, index) in enumerate(zip(runs, indexes, strict=True), 1):
        finished = _finished(run, index) if resume else None
        if finished:
            note(f"fold {number} of {len(runs)} is finished: {finished.metrics.video_top1:.1%}")
        else:
            note(f"fold {number} of {len(runs)}")
            finished = train_resolved(run, index, crew, resume=resume, fork=fork).evaluation
        yield finished


def _chosen(
    config: TrainConfig, folds: int, given: dict[str, Any], minutes: float | None, crew: Crew, *, resume: bool
) -> TrainConfig:
    """The settings of every fold: where the recipe leaves them open, chosen for the first one."""
    first = _fold_config(config, 1, folds)
    choice = choose_the_rest(first, load_checked_index(first), given, minutes, crew, resume=resume)
    if choice is None:
        return config
    print_lines([f"each of {folds} folds:", *choice.lines()])
    return replace(choice.config, output=config.output)


def _fold_config(config: TrainConfig, number: int, count: int) -> TrainConfig:
    data = replace(config.data, fold=f"{number}/{count}")
    return replace(config, data=data, output=str(Path(config.output) / f"fold-{number}"))


def _groups(index: Index) -> dict[str, str]:
    """The group of every video by its path; none if groups are not known."""
    return {sample.path: sample.group for sample in index.samples if sample.group is not None}


def _leak_warning(indexes: Sequence[Index], config: TrainConfig) -> str:
    """That no groups are known, with the videos that look like one in another fold."""
    files = probe_files(indexes[0], ProbeCache(config.data.path), config.data.workers or processors())
    probes = {probe.path: probe for probe in files}
    pairs: dict[str, str] = {}
    for index in indexes:
        divided = [sample for sample in index.samples if sample.split != "test"]
        duplicates = find_duplicates(divided, probes)
        for copies in duplicates.leaked:
            held_out = [sample.path for sample in copies if sample.split != "train"]
            other = next(sample.path for sample in copies if sample.split == "train")
            pairs |= dict.fromkeys(held_out, other)
        pairs |= dict(duplicates.similar)
    said = (
        "no groups are known, so that clips cut from one recording may be in training and in test, which raises the "
        f"score; {len(pairs)} of {len(probes)} videos look like one in another fold"
    )
    if pairs:
        one, other = next(iter(pairs.items()))
        said += f", first {one} and {other}"
    return f"{said}; name the person or recording of each video in groups.csv (path,group) to keep them together"


def _finished(config: TrainConfig, index: Index) -> Evaluation | None:
    """The evaluation of a fold that needs no more work: trained to its end, with these settings, on these videos."""
    home = Path(config.output)
    stored = RunRecord.read(home)
    checkpoints = CheckpointStore(home, config.save.keep).paths()
    if stored is None or not checkpoints or not (home / "evaluation" / EVALUATION_FILE).is_file():
        return None
    try:
        info, evaluation = read_info(checkpoints[-1]), read_evaluation(home / "evaluation")
        changed = stored.changes_to(RunRecord.of(config, index, 1))
    except UserError:  # `train` says what is wrong
        return None
    listed = sorted(sample.path for sample in [*index.split("val"), *index.missing_in("val")])
    scored = sorted([*(video.path for video in evaluation.videos), *(failure.path for failure in evaluation.failures)])
    is_done = info.epoch >= config.epochs and info.step == evaluation.protocol.step
    return evaluation if is_done and not changed and listed == scored else None


def _summarise(home: Path, found: list[Evaluation], groups: dict[str, str], warning: str | None) -> CrossValidation:
    pooled = pool(found)
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for video in pooled.videos:
        count = counts[groups.get(video.path, video.path)]
        count[0] += video.label == video.predicted
        count[1] += 1
    scores, accuracy = [one.metrics.video_top1 for one in found], pooled.metrics.video_top1
    return CrossValidation(
        output=home,
        folds=scores,
        accuracy=accuracy,
        interval=wilson_interval(accuracy, effective_videos((right, videos) for right, videos in counts.values())),
        fold_interval=t_interval(scores),
        groups=len(set(groups.values())) or None,
        warning=warning,
        pooled=pooled,
    )


def pool(found: Sequence[Evaluation]) -> Evaluation:
    """One evaluation of the videos of several, which have none in common."""
    first, weights = found[0], [one.protocol.scored for one in found]

    def mean(name: str) -> float:
        return sum(w * getattr(one.metrics, name) for w, one in zip(weights, found, strict=True)) / sum(weights)

    listed = sum(one.protocol.listed for one in found)
    whole = from_videos(
        Metrics(*(mean(field.name) for field in fields(Metrics))),
        replace(first.protocol, split=f"{len(found)} folds", scored=sum(weights), listed=listed),
        first.labels,
        [failure for one in found for failure in one.failures],
        [video for one in found for video in one.videos],
    )
    # the mean of a class is not the mean of its folds, which have different numbers of it
    recalls = [recall for recall in whole.recall if recall is not None]
    return replace(whole, metrics=replace(whole.metrics, mean_class=fmean(recalls)))


def _write(result: CrossValidation) -> None:
    """folds.json and the report, beside the folds."""
    write_json(result.output / "folds.json", result.to_json())
    rows = "".join(
        f'<tr><td><a href="fold-{number}/evaluation/report.html">fold {number}</a></td><td>{score:.1%}</td></tr>'
        for number, score in enumerate(result.folds, 1)
    )
    lines = "".join(f"<p>{text(line)}</p>" for line in result.lines())
    write_report(
        result.pooled, result.output, title="Cross-validation", extra=f"<h2>Folds</h2>{lines}<table>{rows}</table>"
    )
