"""`fixformer eval`: score a checkpoint on a data set and write a report."""

import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from math import prod
from pathlib import Path
from typing import Any

from fixformer.config import Aggregate, DataConfig, EvalConfig, parse_views
from fixformer.config.data import Workers
from fixformer.config.eval import BatchSize, Views
from fixformer.config.schema import check_path, checked, coerce, dump, load
from fixformer.config.train import Device
from fixformer.data.listing import UNLABELLED, Index, Sample
from fixformer.data.loading import VideoReader, index_of, reader_for
from fixformer.errors import InputError, UserError, shown
from fixformer.evaluation.baselines import Baselines
from fixformer.evaluation.charts import Rows
from fixformer.evaluation.metrics import Metrics
from fixformer.evaluation.report import write_report
from fixformer.evaluation.result import Evaluation, Failure, Protocol, VideoScore, from_videos, summarise
from fixformer.evaluation.scoring import require_scores, score_split
from fixformer.models.base import VideoModel
from fixformer.models.checkpoint import CheckpointInfo, load_model
from fixformer.models.cost import require_forward_memory
from fixformer.runtime.console import note
from fixformer.runtime.distributed import SINGLE_PROCESS, World, join_world
from fixformer.runtime.files import (
    check_writable,
    claim_output,
    make_output,
    read_json,
    read_records,
    write_json,
    write_text,
)
from fixformer.runtime.locks import locked
from fixformer.runtime.progress import Report
from fixformer.runtime.signals import NEVER_STOP, StopRequest

# Settings of the training data that do not apply to another data set; the others, such as the decoder, do.
LOCATION_SETTINGS = ("path", "kind", "videos", "labels", "cache", "fold")
EVALUATION_FILE, PREDICTIONS_FILE = "evaluation.json", "predictions.jsonl"


@checked
def evaluate(
    checkpoint: str | Path,
    *,
    data: str | Path | None = None,
    views: Views | None = None,
    aggregate: Aggregate | None = None,
    split: str | None = None,
    output: str | Path | None = None,
    batch_size: BatchSize | None = None,
    workers: Workers | None = None,
    device: Device = "auto",
    progress: Report | None = None,
    **data_settings: Any,
) -> Evaluation:
    """Score a checkpoint; under torchrun the videos are divided between the processes.

    Args:
        checkpoint: a checkpoint, or the directory of a run, whose last checkpoint is used.
        data: directory or annotation file; by default the data the run was trained with.
        views: CLIPSxCROPS, such as "2x3"; by default the recipe's.
        aggregate: sum the "logits" of the views or average their "probabilities".
        split: by default validation if it has labels, otherwise test.
        output: directory for evaluation.json, predictions.jsonl, charts and report.html.
        batch_size: videos per batch.
        workers: decoding processes.
        device: "auto", "cpu" or "cuda".
        progress: called with (videos done, videos in all).
        data_settings: settings of `DataConfig`, such as `kind`, `videos`, `labels`, `recording_set`, `cache`.
    """
    for name, path in (("data", data), ("output", output)):
        if path is not None:
            check_path(path, name)
    if progress is not None and not callable(progress):
        raise InputError(f"progress={shown(progress)}: expected a function of (videos done, videos in all).")
    if output is not None:
        check_writable(output)
    model, info = load_model(checkpoint)
    config = override_eval(info.config.eval, views=views, aggregate=aggregate, batch_size=batch_size)
    source = choose_data(info, data, workers, data_settings)
    if data is None and not os.path.exists(source.path):
        raise UserError(
            f"the data of the run, {source.path!r}, does not exist here (looked for {os.path.abspath(source.path)}); "
            "give its place with --data PATH."
        )
    if output is not None:
        claim_output(output, source.path, "eval")
    index = index_of(source)
    split = split or index.eval_split
    check_labels(index, info)
    videos = len(labelled_samples(index, split))
    with join_world(device) as world, ExitStack() as lock:
        if output is not None:
            world.on_main_process(lambda: lock.enter_context(locked(output)))
        if world.device.type == "cpu":
            clips = min(config.batch_size, videos) * prod(parse_views(config.views))
            require_forward_memory(model, clips, f"views={config.views} with batch_size={config.batch_size}")
        model.to(world.device)
        evaluation = evaluate_model(model, info, index, split, config, source, world=world, progress=progress)
        if output is not None and world.is_main:
            write_evaluation(evaluation, Path(output))
    return evaluation


def override_eval(config: EvalConfig, **settings: Any) -> EvalConfig:
    """The config with those settings replaced that are not None."""
    config = replace(config, **{name: value for name, value in settings.items() if value is not None})
    config.validate()
    return config


def choose_data(
    info: CheckpointInfo, path: str | Path | None, workers: int | None, settings: dict[str, Any]
) -> DataConfig:
    """The data a checkpoint was trained with, or the data at `path`."""
    values = dump(info.config.data)
    # compared as resolved paths: the same set must be split as in training, however its path is written
    if path is not None and not (info.is_trained and _resolved(path) == _resolved(info.config.data.path)):
        values = {name: value for name, value in values.items() if name not in LOCATION_SETTINGS}
    given = {"path": None if path is None else str(path), "workers": workers}
    values |= {name: value for name, value in given.items() if value is not None} | settings
    if not values.get("path"):
        raise UserError("the checkpoint does not say which data to score; give --data DIRECTORY.")
    return load(DataConfig, values, "data")


def _resolved(path: str | Path) -> Path:
    return Path(path).expanduser().resolve()


def check_labels(index: Index, info: CheckpointInfo) -> None:
    """A score is meaningless when class 7 is one label in the data and another in the model."""
    if index.labels == info.labels:
        return
    if set(index.labels) == set(info.labels):
        raise UserError("the data has the checkpoint's labels in another order; give labels=FILE in its order.")
    foreign = next((name for name in index.labels if name not in info.labels), None)
    missing = next((name for name in info.labels if name not in index.labels), None)
    counts = f"({len(info.labels)} labels in the checkpoint, {len(index.labels)} in the data)"
    if foreign is None:
        raise UserError(
            f"the data lacks {missing!r} and perhaps other labels of the checkpoint {counts}; to score it on data of "
            "some of its classes, give labels=FILE with all of them in its order."
        )
    raise UserError(
        f"the checkpoint has another label set: {foreign!r} is not a label of the checkpoint {counts}; score it on "
        "data with its own labels, or train on these."
    )


def labelled_samples(index: Index, split: str) -> list[Sample]:
    """The samples of a split; a `UserError` if there are none or some have no label."""
    samples = index.split(split)
    if not samples:
        raise UserError(f"{index.root} has no videos in split {split!r}; splits found: {', '.join(index.splits)}.")
    unlabelled = sum(sample.label == UNLABELLED for sample in samples)
    if unlabelled:
        raise UserError(
            f"{unlabelled} of {len(samples)} videos of split {split!r} have no label; label or remove them, or use "
            "another split."
        )
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
    world: World = SINGLE_PROCESS,
    progress: Report | None = None,
    stop: StopRequest = NEVER_STOP,
) -> Evaluation:
    """Score a model that is already in memory."""
    samples, clip = labelled_samples(index, split), info.config.clip
    scores = score_split(
        model,
        samples,
        clip,
        config,
        data,
        reader=reader or reader_for(samples, clip, data),
        world=world,
        progress=progress,
        stop=stop,
    )
    require_scores(scores, split)
    return summarise(scores, index, split, info, config, data)


def write_evaluation(
    evaluation: Evaluation,
    output: Path,
    *,
    log: Rows | None = None,
    baselines: Callable[[], Baselines | None] | None = None,
) -> Baselines | None:
    """Write evaluation.json, predictions.jsonl, report.html and its charts, and baselines.json.

    Args:
        log: rows of the run, for its curves.
        baselines: computes them, once the scores are safe.
    """
    rows = "".join(json.dumps(asdict(video), allow_nan=False) + "\n" for video in evaluation.videos)
    found = None
    try:
        make_output(output, "eval")
        write_json(output / EVALUATION_FILE, evaluation.to_json())
        write_text(output / PREDICTIONS_FILE, rows)
        try:
            found = baselines() if baselines else None
            if found:
                write_json(output / "baselines.json", found.to_json())
        finally:
            write_report(evaluation, output, log=log, baselines=found)
    except UserError:
        note(f"not written: {evaluation}")  # scoring may have taken hours
        raise
    return found


def read_evaluation(directory: Path) -> Evaluation:
    """What `write_evaluation` wrote; a `UserError` if it is missing or damaged."""
    values = coerce(read_json(directory / EVALUATION_FILE), dict, EVALUATION_FILE)
    protocol = load(Protocol, values.get("protocol", {}), "protocol")
    labels = list(coerce(values.get("labels"), tuple[str, ...], "labels"))
    failures = [load(Failure, failure, "failures") for failure in coerce(values.get("failures"), list, "failures")]
    videos = list(read_records(directory / PREDICTIONS_FILE, VideoScore))
    is_known = all(0 <= number < len(labels) for video in videos for number in (video.label, video.predicted))
    if len(videos) != protocol.scored or not videos or not is_known:
        raise InputError(f"{directory / PREDICTIONS_FILE} is damaged; evaluate again.")
    return from_videos(load(Metrics, values.get("metrics", {}), "metrics"), protocol, labels, failures, videos)
