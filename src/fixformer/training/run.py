"""`fixformer train`: from a recipe, a data set and overrides to a trained checkpoint."""

import json
import os
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch

from fixformer.config import TrainConfig, changes
from fixformer.config.overrides import apply_overrides
from fixformer.config.recipes import RECIPES, get_recipe
from fixformer.config.schema import dump, load
from fixformer.data.listing import Index
from fixformer.data.listing.index import order_digest
from fixformer.data.loading import VideoReader, check_location, index_of, reader_for
from fixformer.errors import UserError
from fixformer.evaluation.evaluate import evaluate_model, write_evaluation
from fixformer.evaluation.result import Evaluation
from fixformer.models.registry import model_setting_types
from fixformer.runtime.distributed import World, choose_device, join_world
from fixformer.runtime.files import cache_directory, check_writable, write_json
from fixformer.runtime.progress import Report, progress
from fixformer.runtime.signals import StopRequest
from fixformer.training.checkpoint_store import Saves, read_state, read_tensors
from fixformer.training.display import Display, make_display
from fixformer.training.learner import Learner, build_model, check_shares, check_sizes, initialise
from fixformer.training.log import read_log
from fixformer.training.plan import Plan, make_plan
from fixformer.training.trainer import Trainer

RUN_FILE = "run.json"
PARTS = ("config", "labels", "data")


class RunFileError(UserError):
    """A run's directory does not say what run it is."""


@dataclass(frozen=True)
class TrainResult:
    """A finished run: its directory, its config and the final evaluation."""

    output: Path
    config: TrainConfig
    steps: int
    evaluation: Evaluation

    def to_json(self) -> dict[str, Any]:
        return {"output": str(self.output), "steps": self.steps, **self.evaluation.to_json()}


def train(
    recipe: str | TrainConfig = "folder",
    *,
    data: str | Path | None = None,
    output: str | Path | None = None,
    init: str | Path | None = None,
    resume: bool = False,
    fork: bool = False,
    shard: bool = False,
    **overrides: Any,
) -> TrainResult:
    """Train a model and evaluate it.

    Args:
        recipe: a name of `fixformer.config.recipes`, a config, or a directory of class folders.
        data: directory or annotation file; needed unless the recipe is a directory.
        output: directory of the run, `runs/RECIPE` if not given.
        init: checkpoint or weight file to start from.
        resume: go on from the newest checkpoint in `output`; from the beginning if there is none yet.
        fork: go on although the config has changed.
        shard: divide weights and optimiser state between processes (under torchrun).
        overrides: any setting of the config by its name, such as `epochs=10`, `lr=1e-3`, `size=64`, `depth=4`.
    """
    config = resolve_config(recipe, data=data, output=output, init=init, shard=shard, **overrides)
    index = checked_index(config)
    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    restarted = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    # the default SIGTERM must hold while processes find each other: a handler would not run inside that call
    with join_world(config.run.device) as world, StopRequest() as stop:
        return _run(config, index, world, stop, resume=resume or restarted, fork=fork)


def plan(
    recipe: str | TrainConfig = "folder",
    *,
    data: str | Path | None = None,
    output: str | Path | None = None,
    init: str | Path | None = None,
    shard: bool = False,
    **overrides: Any,
) -> Plan:
    """What `train` with the same arguments would do: the config, its steps, predicted memory and time."""
    config = resolve_config(recipe, data=data, output=output, init=init, shard=shard, **overrides)
    index = checked_index(config)
    choose_device(config.run.device, 0)
    if config.init:
        initialise(build_model(config, len(index.labels)), config.init, index.labels)
    return make_plan(config, index)


def resolve_config(
    recipe: str | TrainConfig,
    *,
    data: str | Path | None = None,
    output: str | Path | None = None,
    init: str | Path | None = None,
    shard: bool = False,
    **overrides: Any,
) -> TrainConfig:
    """The complete, validated config of a run."""
    if isinstance(recipe, str) and recipe not in RECIPES and Path(recipe).is_dir():
        recipe, data = "folder", data or recipe
    config = get_recipe(recipe) if isinstance(recipe, str) else recipe
    named = {"data.path": data, "output": output, "init": init, "run.shard": shard or None}
    given = {name: str(value) if name != "run.shard" else value for name, value in named.items() if value is not None}
    if "data.path" not in given and not config.data.path:
        raise UserError(f"recipe {config.recipe} needs data; give --data DIRECTORY.")
    config = apply_overrides(config, {**given, **overrides}, model_setting_types)
    home = config.output or f"runs/{config.recipe}"
    cache = str(cache_directory() / "clips") if config.data.cache == "auto" else config.data.cache
    check_writable(home)
    return replace(config, output=home, data=replace(config.data, cache=cache))


def checked_index(config: TrainConfig) -> Index:
    """The data of a run, if it can be trained and evaluated on."""
    # shards that are read through a pipe need not lie beside their index
    index = index_of(config.data, require_files=config.data.location is None)
    index.require_trainable()
    check_location(config.data)
    videos = len(index.split("train"))
    for batch_size in config.batch_sizes:
        if batch_size > videos:
            raise UserError(f"batch_size={batch_size} is larger than the training set of {videos} videos; lower it.")
    _ = index.eval_split
    return index


def _run(
    config: TrainConfig, index: Index, world: World, stop: StopRequest, *, resume: bool, fork: bool
) -> TrainResult:
    check_shares(config, world.size)
    check_sizes(config, len(index.labels))
    display = make_display(world.is_main)
    identity = _identity(config, index, world.size)
    checkpoint = world.first(lambda: find_start(config, identity, resume=resume, fork=fork))
    _note_missing(index, display)
    learner, state = _learner(config, index, world, checkpoint, display)
    readers = _readers(config, index, world, stop)
    # last of all: a start that fails leaves no trace of a run
    world.first(lambda: _claim(Path(config.output), identity))
    trainer = Trainer(config, index, learner, readers, world=world, display=display, stop=stop)
    if state is not None:
        trainer.go_on(state)
        display.note(f"going on from {checkpoint}")
    elif resume:
        display.note(f"no checkpoint to go on from in {config.output}; starting from the beginning")
    trainer.run()
    return _conclude(trainer, readers)


def _learner(
    config: TrainConfig, index: Index, world: World, checkpoint: Path | None, display: Display
) -> tuple[Learner, dict[str, Any] | None]:
    """The learner as the checkpoint has it, and where that stands; a new one without a checkpoint."""
    model = build_model(config, len(index.labels))
    if config.init and checkpoint is None:
        display.note(str(initialise(model, config.init, index.labels)))
    learner = Learner(model, config, world)
    if checkpoint is None:
        return learner, None
    state = read_state(checkpoint)
    learner.restore(read_tensors(checkpoint), state["scaler"])
    return learner, state


def _note_missing(index: Index, display: Display) -> None:
    missing = index.missing_in("train")
    if missing:
        listed = len(index.split("train")) + len(missing)
        display.note(f"{len(missing)} of {listed} listed training videos are missing, first {missing[0].path}")


def _identity(config: TrainConfig, index: Index, processes: int) -> dict[str, Any]:
    """What makes a run this one."""
    identity = {"config": dump(config), "labels": index.labels, "data": order_digest(index.split("train"))}
    if config.data.location is not None:
        # who reads which part of an epoch follows from it
        identity["readers"] = f"{processes} processes of {max(1, config.data.workers)} workers"
    return identity


def find_start(config: TrainConfig, identity: dict[str, Any], *, resume: bool, fork: bool) -> Path | None:
    """The checkpoint to go on from, if the run in the output directory is this one; None if there is none to lose."""
    home = Path(config.output)
    saves = Saves(home, config.save.keep)
    if not saves.paths():
        return None
    if not resume:
        raise UserError(f"{home} already holds a run; go on with --resume or choose another --output.")
    try:
        differences = _differences(load_run(home), identity)
    except RunFileError:
        if not fork:
            raise
        differences = []
    checkpoint = saves.newest_good()
    if differences and checkpoint is not None and not fork:
        raise UserError(
            f"{home} was started with another config ({'; '.join(differences)}); repeat the same settings, or accept "
            "the change with --fork."
        )
    return checkpoint


def _claim(home: Path, identity: dict[str, Any]) -> None:
    """The directory is this run's from now on."""
    try:
        write_json(home / RUN_FILE, identity)
    except OSError as error:
        raise UserError(f"the output directory {home} cannot be written ({error.strerror}); choose another.") from None


def load_run(home: Path) -> dict[str, Any]:
    """What a run's directory says it is."""
    try:
        stored = json.loads((home / RUN_FILE).read_text())
        problem = None if isinstance(stored, dict) and stored.keys() >= set(PARTS) else f"it lacks {' or '.join(PARTS)}"
    except (OSError, ValueError) as error:
        problem = str(error)
    if problem:
        raise RunFileError(
            f"{home / RUN_FILE} cannot be used ({problem}); accept the settings as given with --fork, or choose "
            "another --output."
        )
    return stored


def _differences(stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    if stored["labels"] != new["labels"]:
        pairs = zip_longest(stored["labels"], new["labels"])
        before, after = next((a, b) for a, b in pairs if a != b)
        here, there = ("nothing" if name is None else repr(name) for name in (after, before))
        raise UserError(
            f"the run was trained on other labels (where it has {there} the data has {here}); choose another --output, "
            "and --init with this run to begin from its weights."
        )
    found = changes(load(TrainConfig, stored["config"]), load(TrainConfig, new["config"]))
    if "readers" in stored and "readers" in new and stored["readers"] != new["readers"]:
        found.append(f"an epoch read in order by {stored['readers']} -> {new['readers']}")
    return found + ["the list of training videos"] * (stored["data"] != new["data"])


def _readers(config: TrainConfig, index: Index, world: World, stop: StopRequest) -> dict[str, VideoReader]:
    """By split; the main process fills the cache, the others find it filled."""
    splits = ("train", index.eval_split)

    def read(report: Report | None = None) -> dict[str, VideoReader]:
        return {split: reader_for(index.split(split), config.clip, config.data, report) for split in splits}

    own: dict[str, VideoReader] = {}

    def fill() -> None:
        with progress("decoding once") as report:
            own.update(read(_heeding(stop, report)))

    world.first(fill)
    return own or read()


def _heeding(stop: StopRequest, report: Report) -> Report:
    """A report that ends the work it is told of when the run is asked to stop."""

    def tell(done: int, total: int, what: str | None = None) -> None:
        report(done, total, what)
        if stop:
            raise stop.stopped("stopped while decoding; what is decoded is kept, repeat the command to go on.")

    return tell


def _conclude(trainer: Trainer, readers: dict[str, VideoReader]) -> TrainResult:
    """The final score with the recipe's own views, and what is left on disk about it."""
    config, world = trainer.config, trainer.world
    split = trainer.index.eval_split
    with trainer.learner.averaged(), progress("scoring videos") if world.is_main else nullcontext() as report:
        evaluation = evaluate_model(
            trainer.learner.model, trainer.info(), trainer.index, split, config.eval, config.data,
            reader=readers[split], world=world, progress=report, stop=trainer.stop,
        )  # fmt: skip
    home = Path(config.output)
    if world.is_main:
        write_evaluation(evaluation, home / "evaluation", log=read_log(home / "log.jsonl"))
    return TrainResult(home, config, trainer.at.step, evaluation)
