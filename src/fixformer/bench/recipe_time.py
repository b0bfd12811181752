"""The time of a recipe's steps on several devices, from the measured or given speed of one."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fixformer.config import TrainConfig
from fixformer.config.overrides import apply_overrides
from fixformer.config.recipes import get_recipe
from fixformer.errors import SettingsConflict, UserError
from fixformer.models.checkpoint import complete_model_settings
from fixformer.models.cost import cost
from fixformer.models.registry import model_setting_types
from fixformer.training.choose import Rates, measure_rates
from fixformer.training.request import AUTO, load_checked_index, resolve_config

# Of the generated and the public sets alike: the width of the head hardly matters here.
CLASSES = 100
# A step of two clips is nearly as fast for each clip as a larger one, and fits nearly everywhere.
CLIPS = 2


@dataclass(frozen=True)
class RecipeRun:
    """A recipe's config, and what it trains on."""

    config: TrainConfig
    videos: int
    classes: int

    @property
    def model_settings(self) -> dict[str, Any]:
        return complete_model_settings(self.config, self.classes)

    def clips_on(self, devices: int) -> int:
        """In one pass of one device."""
        clips = -(-max(self.config.batch_sizes) // devices)
        return min(clips, self.config.micro_batch or clips)


def find_run(recipe: str, data: str | Path | None, videos: int | None, overrides: dict[str, Any]) -> RecipeRun:
    """The run that `train` would make of a recipe and a data set, or so many videos."""
    if (data is None) == (videos is None):
        raise SettingsConflict(f"recipe={recipe!r}: expected either data or videos, how many it trains on.")
    if data is None:
        assert videos is not None
        elsewhere = {"data.path": "elsewhere"}  # a recipe without data is none
        config, classes = apply_overrides(get_recipe(recipe), {**elsewhere, **overrides}, model_setting_types), CLASSES
    else:
        config = resolve_config(recipe, data=data, **overrides)
        index = load_checked_index(config)
        videos, classes = len(index.split("train")), len(index.labels)
    if config.recipe == AUTO:
        raise UserError(f"recipe={recipe!r} chooses its epochs for --minutes; expected one of `fixformer recipes`.")
    if videos < max(config.batch_sizes):
        raise UserError(f"videos={videos} is less than batch_size={max(config.batch_sizes)} of {recipe}; lower that.")
    return RecipeRun(config, videos, classes)


def time_of(run: RecipeRun, devices: int, rate: float | None, device: str | None, most_clips: int) -> dict[str, Any]:
    """The hours of all steps, and the rate that they were computed from, measured on `device` unless it is given."""
    if rate is not None:
        rates = Rates(rate, rate, rate)
    elif device is None:
        raise UserError("the device is not here, so its speed is not known; give rate, clips a second from a log.")
    elif not most_clips:
        raise UserError(
            "no clip of the recipe fits, so its speed is not measured; give rate, clips a second from a log."
        )
    else:
        small = replace(run.config, batch_size=min(CLIPS, most_clips, max(run.config.batch_sizes)), micro_batch=None)
        rates = measure_rates(replace(small, stages=(), run=replace(small.run, device=device)), run.classes)
    return {
        "recipe": run.config.recipe,
        "videos": run.videos,
        "epochs": run.config.epochs,
        "batch_size": run.config.batch_size,
        "devices": devices,
        "is_measured": rate is None,
        "clips_per_second": rates.whole,
        "hours": seconds_of(run, rates) / devices / 3600,
    }


def seconds_of(run: RecipeRun, rates: Rates) -> float:
    """Of all steps on one device. Clips of another size in a stage are as fast as they have operations."""
    config, total = run.config, 0.0
    own = _operations(run, config.clip.frames, config.clip.size)
    relative = {(stage.frames, stage.size): _operations(run, stage.frames, stage.size) / own for stage in config.stages}
    for epoch in range(config.epochs):
        stage = config.stage_of(epoch)
        batch = stage.batch_size or config.batch_size
        clips = run.videos // batch * batch
        if epoch < config.frozen_epochs:
            total += clips / rates.frozen
        else:
            total += clips * relative.get((stage.frames, stage.size), 1.0) / rates.whole
    draws = min(config.frozen_draws, config.frozen_epochs)
    return total + draws * run.videos / rates.features


def _operations(run: RecipeRun, frames: int, size: int) -> int:
    settings = {**run.config.model_settings, "num_classes": run.classes}
    return cost(run.config.model, frames, size, **settings).executed_macs
