"""`fixformer train`: from a recipe, a data set and overrides to a trained checkpoint."""

import os
import shlex
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fixformer.config import TrainConfig
from fixformer.config.schema import checked, coerce
from fixformer.data.listing import Index
from fixformer.data.loading import VideoReader, reader_for
from fixformer.errors import UserError
from fixformer.evaluation.baselines import Baselines, compute_baselines
from fixformer.evaluation.evaluate import evaluate_model, write_evaluation
from fixformer.evaluation.result import Evaluation
from fixformer.models.checkpoint import read_info
from fixformer.models.layers.lite0 import Lite0Stem
from fixformer.models.weights.image_network import load_lite0_stem
from fixformer.runtime.console import note, printable
from fixformer.runtime.distributed import Seat, World, choose_device, join_world
from fixformer.runtime.locks import locked
from fixformer.runtime.progress import Report, progress
from fixformer.runtime.signals import StopRequest
from fixformer.training.checkpoint_store import CheckpointStore, read_state, read_tensors
from fixformer.training.display import make_display
from fixformer.training.frozen_features import FrozenFeatures
from fixformer.training.initialise import build_model, check_batch_division, check_stage_sizes, load_initial_weights
from fixformer.training.learner import Learner, stem_of
from fixformer.training.log import read_log
from fixformer.training.plan import Plan, make_plan
from fixformer.training.processes import Crew
from fixformer.training.request import Minutes, choose_the_rest, load_checked_index, print_lines, resolve_config
from fixformer.training.run_notes import run_notes
from fixformer.training.run_record import RUN_FILE, RunRecord
from fixformer.training.trainer import Trainer


@dataclass(frozen=True)
class TrainResult:
    """A finished run: its directory, its config and the final evaluation."""

    output: Path
    config: TrainConfig
    steps: int
    evaluation: Evaluation
    baselines: Baselines | None = None

    def to_json(self) -> dict[str, Any]:
        baselines = self.baselines.to_json() if self.baselines else None
        return {"output": str(self.output), "steps": self.steps, **self.evaluation.to_json(), "baselines": baselines}

    def __str__(self) -> str:
        lines = self.baselines.lines(self.evaluation.metrics.video_top1) if self.baselines else ()
        return "\n".join([str(self.evaluation), *lines])

    def next_steps(self) -> list[str]:
        """Where the report is, and the commands that use the model."""
        home = shlex.quote(str(self.output))
        report = self.output / "evaluation" / "report.html"
        return [f"report: {report}", f"use it: fixformer predict {home} VIDEO, or fixformer serve {home}"]


@checked
def train(
    recipe: str | Path | TrainConfig = "folder",
    *,
    data: str | Path | None = None,
    output: str | Path | None = None,
    init: str | Path | None = None,
    resume: bool = False,
    fork: bool = False,
    shard: bool = False,
    minutes: Minutes | None = None,
    **overrides: Any,
) -> TrainResult:
    """Train a model and evaluate it.

    Args:
        recipe: a name of `fixformer.config.recipes`, a config, or a data set, for which everything that is not given is
            chosen (recipe "auto").
        data: directory or annotation file; needed unless the recipe is a data set.
        output: directory of the run; by default `runs/RECIPE`.
        init: checkpoint or weight file with initial weights.
        resume: continue from the newest checkpoint in `output`; start from the beginning if there is none yet.
        fork: resume although the config has changed.
        shard: divide weights and optimiser state between processes (FSDP, under torchrun).
        minutes: that a run of the recipe "auto" should take; 15 if not given.
        overrides: any setting of the config by its name, such as `epochs=10`, `lr=1e-3`, `size=64`, `depth=4`.
    """
    config = resolve_config(recipe, data=data, output=output, init=init, shard=shard, **overrides)
    index = load_checked_index(config)
    with Crew() as crew:
        choice = choose_the_rest(config, index, {"init": init, **overrides}, minutes, crew, resume=resume)
        if choice is not None:
            config = choice.config
            print_lines(choice.lines())
        return train_resolved(config, index, crew, resume=resume, fork=fork)


def train_resolved(config: TrainConfig, index: Index, crew: Crew, *, resume: bool, fork: bool) -> TrainResult:
    """`train` with a config and an index in which nothing is left to choose."""
    restarted = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    crew.prepare(config, index)
    with crew.seat(config, index, resume=resume, fork=fork) as seat:
        return train_in_place(config, index, seat, resume=resume or restarted, fork=fork)


def train_in_place(
    config: TrainConfig,
    index: Index,
    seat: Seat | None,
    *,
    resume: bool,
    fork: bool,
    twin: TrainConfig | None = None,
) -> TrainResult:
    """The part of this process in a run; `twin` as for `build_model`."""
    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    # The signal handlers come after the process group: Python would not run them inside the call that waits for the
    # other processes, so SIGTERM could not stop a run that waits.
    with join_world(config.run.device, seat) as world, StopRequest() as stop, ExitStack() as lock:
        world.on_main_process(lambda: lock.enter_context(locked(config.output)))
        return _run(config, index, world, stop, resume=resume, fork=fork, twin=twin)


def plan(recipe: str | Path | TrainConfig = "folder", *, minutes: float | None = None, **settings: Any) -> Plan:
    """The config, steps, estimated memory and time of `train` with the same arguments; trains nothing."""
    config = resolve_config(recipe, **settings)
    index = load_checked_index(config)
    given = {name: value for name, value in settings.items() if name not in ("data", "output", "shard")}
    minutes = coerce(minutes, Minutes | None, "minutes")
    with Crew() as crew:
        if choice := choose_the_rest(config, index, given, minutes, crew, resume=False):
            config = choice.config
            print_lines(choice.lines())
        else:
            crew.announce(config, index)
    choose_device(config.run.device, 0)
    if config.init:
        load_initial_weights(build_model(config, len(index.labels)), config.init, index.labels)
    return make_plan(config, index)


def _run(
    config: TrainConfig,
    index: Index,
    world: World,
    stop: StopRequest,
    *,
    resume: bool,
    fork: bool,
    twin: TrainConfig | None,
) -> TrainResult:
    check_batch_division(config, world.size)
    check_stage_sizes(config, len(index.labels), world)
    display = make_display(world.is_main)
    record = RunRecord.of(config, index, world.size)
    checkpoint = world.on_main_process(lambda: find_checkpoint_to_resume(record, resume=resume, fork=fork))
    for text in run_notes(config, index) if world.is_main else ():
        display.note(text)

    model = build_model(config, len(index.labels), twin if checkpoint is None else None)
    if config.init and checkpoint is None:
        display.note(str(load_initial_weights(model, config.init, index.labels)))
    elif checkpoint is None and config.pretrained and isinstance(stem_of(model), Lite0Stem):
        display.note(load_lite0_stem(model))
    learner = Learner(model, config, world)
    if checkpoint is not None:
        state = read_state(checkpoint)
        learner.restore(read_tensors(checkpoint), state.get("scaler", {}))
    readers = _make_readers(config, index, world, stop)

    # only now, so that a run that fails to start leaves no trace
    world.on_main_process(lambda: record.write(Path(config.output)))
    # the last epoch again if all are done: only its evaluation may be left, but its loader tells the number of steps
    epoch = 0 if checkpoint is None else min(read_info(checkpoint).epoch, config.epochs - 1)
    is_frozen = epoch < config.frozen_epochs
    features = _make_features(config, index, learner, readers["train"], world, stop) if is_frozen else None
    trainer = Trainer(record, index, learner, readers, world=world, display=display, stop=stop, features=features)
    if checkpoint is not None:
        trainer.resume(read_info(checkpoint), state)
        display.note(f"resuming from {printable(str(checkpoint))}")
    elif resume:
        display.note(f"no checkpoint in {printable(config.output)}; starting from the beginning")
    trainer.run()
    return _evaluate_and_report(trainer)


def find_checkpoint_to_resume(record: RunRecord, *, resume: bool, fork: bool) -> Path | None:
    """The newest checkpoint in the output directory, if it is of the same run or `fork` accepts the changes.

    None if there is no checkpoint that could be overwritten.
    """
    home = Path(record.config.output)
    store = CheckpointStore(home, record.config.save.keep)
    if not store.paths():
        return None
    if not resume:
        raise UserError(f"{home} already contains a run; resume with --resume or choose another --output.")
    stored, checkpoint = RunRecord.read(home), None
    if stored is None:
        checkpoint = store.newest_good()
        if checkpoint is None:
            return None
        stored = RunRecord.from_checkpoint(checkpoint, record.config)
        unknown = "" if stored.data else ", which does not say which training videos it used: assuming the same"
        note(printable(f"{home / RUN_FILE} is missing or damaged; rebuilt from {checkpoint}{unknown}"))
    differences = stored.changes_to(record)
    if differences and not fork:
        raise UserError(
            f"{home} was started with another config ({'; '.join(differences)}); repeat the same settings, or accept "
            "the change with --fork."
        )
    # last, because it sets damaged checkpoints aside: a refused resume changes nothing
    return checkpoint or store.newest_good()


def _make_readers(config: TrainConfig, index: Index, world: World, stop: StopRequest) -> dict[str, VideoReader]:
    """A reader for each split. The main process fills the cache first, then the others find it filled."""
    splits = ("train", index.eval_split)

    def make(report: Report | None = None) -> dict[str, VideoReader]:
        return {split: reader_for(index.split(split), config.clip, config.data, report) for split in splits}

    own: dict[str, VideoReader] = {}

    def fill_cache() -> None:
        with progress("decoding once") as show:

            def report(done: int, total: int, what: str | None = None) -> None:
                show(done, total, what)
                if stop:
                    raise stop.interruption("stopped while decoding; the decoded videos are kept, run it again.")

            own.update(make(report))

    world.on_main_process(fill_cache)
    return own or make()


def _make_features(
    config: TrainConfig, index: Index, learner: Learner, reader: VideoReader, world: World, stop: StopRequest
) -> FrozenFeatures:
    """The features of the first phase. Each process computes its share of those that are not stored yet."""
    stem = stem_of(learner.model)
    assert isinstance(stem, Lite0Stem)
    features = FrozenFeatures(
        index.split("train"),
        config.clip,
        config.data,
        stem,
        seed=config.seed,
        draws=min(config.frozen_draws, config.frozen_epochs),
        reader=reader,
        device=world.device,
    )
    with progress("image features") if world.is_main else nullcontext() as show:

        def report(done: int, total: int, what: str | None = None) -> None:
            if show:
                show(done, total, what)
            if stop and world.size == 1:  # with several processes, all stop together after the first step
                raise stop.interruption(
                    "stopped while computing features; those that are ready are kept, run it again."
                )

        features.fill(world.rank, world.size, report)
    world.any(True)  # wait for the shares of the others
    return features


def _evaluate_and_report(trainer: Trainer) -> TrainResult:
    """The final evaluation, with the recipe's own views, and its report."""
    config, world, split = trainer.config, trainer.world, trainer.index.eval_split
    with trainer.learner.averaged(), progress("scoring videos") if world.is_main else nullcontext() as report:
        evaluation = evaluate_model(
            trainer.learner.model,
            trainer.info(),
            trainer.index,
            split,
            config.eval,
            config.data,
            reader=trainer.readers[split],
            world=world,
            progress=report,
            stop=trainer.stop,
        )
    home = Path(config.output)
    found = None
    if world.is_main:
        compute = (lambda: _baselines(trainer)) if config.eval.baselines and config.data.location is None else None
        rows = read_log(home / "log.jsonl")
        found = write_evaluation(evaluation, home / "evaluation", log=rows, baselines=compute)
    return TrainResult(home, config, trainer.position.step, evaluation, found)


def _baselines(trainer: Trainer) -> Baselines | None:
    """Linear classifiers on the videos of a run."""
    index, config, split = trainer.index, trainer.config, trainer.index.eval_split
    with progress("linear classifiers to compare with") as report:
        return compute_baselines(
            index.split("train"),
            index.split(split),
            len(index.labels),
            config.clip,
            (trainer.readers["train"], trainer.readers[split]),
            seed=config.seed,
            device=trainer.world.device,
            progress=report,
            stop=trainer.stop,
        )
