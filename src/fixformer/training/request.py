"""What `train` is asked to do: from a recipe, a data set and overrides to a config and the list of its videos."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from fixformer.config import TrainConfig
from fixformer.config.overrides import apply_overrides, resolve
from fixformer.config.recipes import RECIPES, get_recipe
from fixformer.config.schema import add_once, between, check_path, checked, setting_types
from fixformer.data.audit.facts import survey
from fixformer.data.listing import Index
from fixformer.data.loading import check_location, index_of
from fixformer.errors import SettingsConflict, UnknownName, UserError
from fixformer.evaluation.evaluate import labelled_samples
from fixformer.models.registry import model_setting_types
from fixformer.runtime.console import note, printable
from fixformer.runtime.files import check_writable, claim_output, require_outside_runs
from fixformer.training.choose import MINUTES, Choice, Rates, choose
from fixformer.training.processes import Crew
from fixformer.training.run_record import RunRecord

AUTO = "auto"  # the recipe of a data set that is given in the place of a recipe
Minutes = Annotated[float, between(0.1, 100_000)]


@checked
def resolve_config(
    recipe: str | Path | TrainConfig,
    *,
    data: str | Path | None = None,
    output: str | Path | None = None,
    init: str | Path | None = None,
    shard: bool = False,
    **overrides: Any,
) -> TrainConfig:
    """The complete, validated config of a run."""
    for name, path in (("data", data), ("output", output), ("init", init)):
        if path is not None:
            check_path(path, name)
    if not isinstance(recipe, TrainConfig):
        check_path(recipe, "recipe")
    if not isinstance(recipe, TrainConfig) and str(recipe) not in RECIPES:
        found = _data_set(recipe)
        if data is not None and Path(data) != found:
            raise SettingsConflict(f"two data sets, {str(recipe)!r} and data={str(data)!r}; give one, or a recipe.")
        recipe, data = AUTO, found
    config = recipe if isinstance(recipe, TrainConfig) else get_recipe(str(recipe))
    named = {"data.path": data, "output": output, "init": init, "run.shard": shard or None}
    given: dict[str, Any] = {name: str(value) for name, value in named.items() if value is not None}
    for name, value in overrides.items():
        add_once(given, name, value)
    if not config.data.path and not {"data.path", "path"} & given.keys():
        raise UserError(f"recipe {config.recipe} needs data; give --data DIRECTORY.")
    config = apply_overrides(config, given, model_setting_types)
    home = config.output or f"runs/{config.recipe}"
    check_writable(home)
    require_outside_runs(home)
    claim_output(home, config.data.path, "train")
    return replace(config, output=home)


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        note(printable(line))


def choose_the_rest(
    config: TrainConfig, index: Index, given: Mapping[str, Any], minutes: float | None, crew: Crew, *, resume: bool
) -> Choice | None:
    """For the recipe "auto": what was not given is chosen, or taken from the run that is resumed.

    The processes of `crew` are those that will train: a choice for so many minutes needs their speed.
    """
    if config.recipe != AUTO:
        if minutes is not None:
            raise SettingsConflict(
                f"minutes={minutes:g} is for `fixformer train DIR`; recipe {config.recipe} has epochs."
            )
        return None
    given = {name: value for name, value in given.items() if value is not None}
    stored = RunRecord.read(Path(config.output)) if resume else None
    if stored is not None and stored.config.recipe == AUTO:
        kept = apply_overrides(stored.config, given, model_setting_types)
        return Choice(replace(kept, output=config.output, data=replace(kept.data, path=config.data.path)), [], 0)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError(
            f"{config.data.path}: under torchrun, give a recipe and its settings, such as `train folder --data DIR`; "
            "the choice is made for one process."
        )
    names = {resolve(name, model_setting_types(config.model), setting_types(TrainConfig)) for name in given}
    minutes = MINUTES if minutes is None else minutes

    def measure(config: TrainConfig, classes: int) -> Rates:
        crew.prepare(config, index, 60 * minutes)
        return crew.measure(config, classes)

    choice = choose(config, names, survey(index, config.data), minutes, measure)
    _check_batch_sizes(choice.config, index)
    return choice


def _data_set(name: str | Path) -> Path:
    """A data set in the place of a recipe's name."""
    path = Path(name)
    if os.path.exists(path):
        return path
    if isinstance(name, Path) or path.name != name or path.suffix:  # no recipe has such a name
        raise UserError(f"no such file or directory: {name}.")
    raise UnknownName("name: no file, directory, recipe or data set", name, RECIPES)


def load_checked_index(config: TrainConfig) -> Index:
    """The data of a run; a `UserError` if it cannot be trained and evaluated on."""
    # shards that are read through a pipe need not be beside their index
    index = index_of(config.data, require_files=config.data.location is None)
    index.require_trainable()
    check_location(config.data)
    if config.recipe != AUTO:  # whose batch size is chosen for the videos
        _check_batch_sizes(config, index)
    labelled_samples(index, index.eval_split)  # raises if no split can be evaluated
    return index


def _check_batch_sizes(config: TrainConfig, index: Index) -> None:
    videos = len(index.split("train"))
    for batch_size in config.batch_sizes:
        if batch_size > videos:
            raise UserError(f"batch_size={batch_size} is larger than the training set of {videos} videos; lower it.")
