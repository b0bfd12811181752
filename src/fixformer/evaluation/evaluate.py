"""`fixformer eval`: score a checkpoint on a data set, and write the report."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fixformer.config import Aggregate, DataConfig, EvalConfig, check_device
from fixformer.config.schema import load
from fixformer.data.listing import UNLABELLED, Index, Sample
from fixformer.data.loading import VideoReader, index_of, reader_for
from fixformer.errors import UserError
from fixformer.evaluation.charts import Rows
from fixformer.evaluation.report import write_report
from fixformer.evaluation.result import Evaluation, Failure, summarise
from fixformer.evaluation.scoring import score_split
from fixformer.models.base import VideoModel
from fixformer.models.checkpoint import CheckpointInfo, load_model
from fixformer.runtime.distributed import ALONE, World, join_world
from fixformer.runtime.files import check_writable, write_json, write_text
from fixformer.runtime.progress import Report
from fixformer.runtime.signals import NEVER, StopRequest

# Settings of the data that mean nothing for files elsewhere; the others also hold for another set.
OF_A_PLACE = ("path", "kind", "videos", "labels", "cache", "location")


def evaluate(
    checkpoint: str | Path,
    *,
    data: str | Path | None = None,
    views: str | None = None,
    aggregate: Aggregate | None = None,
    split: str | None = None,
    output: str | Path | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
    device: str = "auto",
    progress: Report | None = None,
    **data_settings: Any,
) -> Evaluation:
    """Score a checkpoint; under torchrun the videos are divided between the processes.

    Args:
        checkpoint: a checkpoint, or the directory of a run, of which the last one is taken.
        data: directory or annotation file; the data the run was trained with if not given.
        views: CLIPSxCROPS, such as "2x3"; the recipe's if not given.
        aggregate: sum the "logits" of the views or average their "probabilities".
        split: validation if it is labelled, otherwise test.
        output: where to write evaluation.json, predictions.jsonl, pictures and report.html.
        batch_size: videos at a time.
        workers: decoding processes.
        device: "auto", "cpu" or "cuda".
        progress: told (videos done, videos).
        data_settings: of `DataConfig`, such as `kind`, `videos`, `labels`, `recording_set`, `cache`.
    """
    check_device(device)
    if output is not None:
        check_writable(output)
    model, info = load_model(checkpoint)
    config = changed(info.eval, views=views, aggregate=aggregate, batch_size=batch_size)
    source = data_of(info, data, workers, data_settings)
    index = index_of(source)
    chosen = split or index.eval_split
    check_labels(index, info)
    labelled(index, chosen)
    with join_world(device) as world:
        model.to(world.device)
        evaluation = evaluate_model(model, info, index, chosen, config, source, world=world, progress=progress)
        if output is not None and world.is_main:
            write_evaluation(evaluation, Path(output))
    return evaluation


def changed(config: EvalConfig, **settings: Any) -> EvalConfig:
    """The same with the settings that are not None."""
    config = replace(config, **{name: value for name, value in settings.items() if value is not None})
    config.validate()
    return config


def data_of(info: CheckpointInfo, path: str | Path | None, workers: int | None, settings: dict[str, Any]) -> DataConfig:
    """The data a checkpoint was trained with, elsewhere if so asked."""
    stored = dict(info.recipe.get("data", {}))
    if path is not None and not _is_same_place(path, stored.get("path")):
        stored = {name: value for name, value in stored.items() if name not in OF_A_PLACE}
    given = {"path": None if path is None else str(path), "workers": workers}
    values = {**stored, **{name: value for name, value in given.items() if value is not None}, **settings}
    if not values.get("path"):
        raise UserError("the checkpoint does not say which data to score; give --data DIRECTORY.")
    return load(DataConfig, values, "data")


def _is_same_place(path: str | Path, stored: str | None) -> bool:
    """However it is spelled; a set that is divided by chance must be divided as in training."""
    return bool(stored) and Path(path).expanduser().resolve() == Path(str(stored)).expanduser().resolve()


def check_labels(index: Index, info: CheckpointInfo) -> None:
    """A score means nothing when number 7 is one class in the data and another in the model."""
    if index.labels == info.labels:
        return
    if set(index.labels) == set(info.labels):
        raise UserError("the data has the labels of the checkpoint in another order; give labels=FILE with its order.")
    foreign = next((name for name in index.labels if name not in info.labels), None)
    lacking = next((name for name in info.labels if name not in index.labels), None)
    what = f"{foreign!r} is not a label of the checkpoint" if foreign else f"{lacking!r} is not a label of the data"
    raise UserError(
        f"the checkpoint is of another label set: {what} ({len(info.labels)} labels there, {len(index.labels)} here); "
        "score it on data with its own labels, or train one on these."
    )


def labelled(index: Index, split: str) -> list[Sample]:
    samples = index.split(split)
    if not samples:
        raise UserError(f"{index.root} has no videos in split {split!r}; splits found: {', '.join(index.splits)}.")
    unlabelled = sum(sample.label == UNLABELLED for sample in samples)
    if unlabelled:
        raise UserError(f"{unlabelled} of {len(samples)} videos of split {split!r} have no label; use another split.")
    return samples


def evaluate_model(
    model: VideoModel,
    info: CheckpointInfo,
    index: Index,
    split: str,
    config: EvalConfig,
    data: DataConfig,
    *,
    reader: VideoReader | None = None,
    world: World = ALONE,
    progress: Report | None = None,
    stop: StopRequest = NEVER,
) -> Evaluation:
    """Score a model that is already in memory."""
    samples = labelled(index, split)
    reader = reader or reader_for(samples, info.clip, data)
    way: dict[str, Any] = {"reader": reader, "world": world, "progress": progress, "stop": stop}
    scores = score_split(model, samples, info.clip, config, data, **way)
    if not len(scores):
        first = Failure(scores.problems[0].path, scores.problems[0].message)
        raise UserError(
            f"none of the {len(samples)} videos of split {split!r} can be read (the first: {first}); `fixformer check` "
            "says what is wrong with each."
        )
    return summarise(scores, index, split, info, config, data)


def write_evaluation(evaluation: Evaluation, output: Path, *, log: Rows | None = None) -> None:
    """evaluation.json, predictions.jsonl, report.html and its pictures; `log`: rows of the run, for its curves."""
    rows = "".join(json.dumps(asdict(video)) + "\n" for video in evaluation.videos)
    try:
        write_json(output / "evaluation.json", evaluation.to_json())
        write_text(output / "predictions.jsonl", rows)
        write_report(evaluation, output, log=log)
    except OSError as error:
        raise UserError(
            f"the evaluation cannot be written to {output} ({error.strerror or error}); make room or choose another."
        ) from None


__all__ = ["Evaluation", "evaluate", "evaluate_model", "write_evaluation"]
