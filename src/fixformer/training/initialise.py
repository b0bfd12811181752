"""Building a run's model: checks that fail before anything is decoded, fresh weights, weights of `--init`."""

from math import prod
from pathlib import Path

import torch
from torch import Tensor

from fixformer.config import TrainConfig, parse_views
from fixformer.errors import SettingsConflict, UserError, WeightsError
from fixformer.models.base import VideoModel
from fixformer.models.checkpoint import (
    CONFIG,
    WEIGHTS,
    CheckpointError,
    complete_model_settings,
    find_checkpoint,
    read_info,
    verify,
)
from fixformer.models.cost import largest_output
from fixformer.models.layers.lite0 import Lite0Stem
from fixformer.models.registry import create_model
from fixformer.models.weights.loading import LoadReport, load_weights, read_weights
from fixformer.runtime.distributed import SINGLE_PROCESS, World
from fixformer.runtime.memory import require_memory


def build_model(config: TrainConfig, num_classes: int, twin: TrainConfig | None = None) -> VideoModel:
    """The model for the run's clip, with initial weights from the run's seed.

    With a `twin`, every tensor that its model has under the same name in the same shape starts as it does there: the
    initial weights of two models that differ in one part otherwise differ in all that are drawn after it.
    """
    if twin is not None:
        return _begin_like(build_model(twin, num_classes), build_model(config, num_classes))
    torch.manual_seed(config.seed)
    model = create_model(config.model, **complete_model_settings(config, num_classes))
    if config.frozen_epochs and not isinstance(getattr(model, "patch_embed", None), Lite0Stem):
        raise no_image_network(config)
    # not a matter of the config itself: a checkpoint does not keep where the cache was
    if config.frozen_epochs and config.data.cache is None:
        raise SettingsConflict(
            f"frozen_epochs={config.frozen_epochs} keeps features in the cache, which is off; set cache=auto."
        )
    return model


def no_image_network(config: TrainConfig) -> SettingsConflict:
    """The error of frozen epochs in a model that has nothing to freeze."""
    return SettingsConflict(
        f"frozen_epochs={config.frozen_epochs} needs stem=lite0, which {config.model} has not; use "
        "model=fixformer_lite or frozen_epochs=0."
    )


def _begin_like(twin: VideoModel, model: VideoModel) -> VideoModel:
    given, own = twin.state_dict(), model.state_dict()
    shared = {name: value for name, value in given.items() if name in own and own[name].shape == value.shape}
    model.load_state_dict({**own, **shared})
    return model


def load_initial_weights(model: VideoModel, source: str, labels: list[str]) -> LoadReport:
    """Load the weights that `init` names: a checkpoint, a run's directory or a weight file.

    The last layer of a checkpoint with other labels is not used.
    """
    file = find_checkpoint(source) / WEIGHTS if Path(source).is_dir() else Path(source)
    if not file.is_file():
        raise UserError(f"init={source!r}: no such checkpoint, run or weight file.")
    if file.name == WEIGHTS:
        verify(file.parent, WEIGHTS, CONFIG)
    try:
        weights: Path | dict[str, Tensor] = file
        if _labels_of(file) not in (None, labels):
            weights = {name: value for name, value in read_weights(file).items() if not name.startswith("head.fc.")}
        return load_weights(model, weights, quiet=True)
    except WeightsError as error:
        raise WeightsError(f"init={source!r}: {error}") from None


def _labels_of(file: Path) -> list[str] | None:
    """The labels of the checkpoint a weight file belongs to; None for other files, such as public weights."""
    try:
        return read_info(file.parent).labels if (file.parent / CONFIG).is_file() else None
    except CheckpointError:
        return None


def check_stage_sizes(config: TrainConfig, num_classes: int, world: World = SINGLE_PROCESS) -> None:
    """Run the model on every clip size of the run, on the meta device: it must accept them, and they must fit.

    The clips, the largest output of a layer, the weights and their gradients are the least that a step takes.
    """
    with torch.device("meta"):
        model = create_model(config.model, **complete_model_settings(config, num_classes)).eval()
    weights = sum(parameter.nbytes for parameter in model.parameters()) / (world.size if config.run.shard else 1)
    is_cpu = world.device.type == "cpu"
    if is_cpu:
        require_memory(2 * weights, f"the weights of {config.model} and their gradients", "use smaller settings of it")
    views = prod(parse_views(config.eval.views))
    for stage in config.stages or (config.stage_of(0),):
        batch = max(1, (stage.batch_size or config.batch_size) // world.size)
        clips = min(batch, config.micro_batch or batch)
        largest = largest_output(model, stage.frames, stage.size)
        pixels = 4 * 3 * stage.frames * stage.size**2
        if is_cpu:
            require_memory(
                2 * weights + clips * largest + batch * pixels,
                f"the {batch} clips of a step, {clips} at a time, with frames={stage.frames} and size={stage.size}",
                "lower batch_size, micro_batch, frames or size",
            )
            require_memory(views * pixels, f"the eval.views={config.eval.views} of a video", "use fewer")


def check_batch_division(config: TrainConfig, processes: int) -> None:
    """Every batch must divide evenly between the processes; mixup and cutmix need pairs on each of them."""
    augment = config.clip.augment
    is_mixed = processes > 1 and (augment.mixup > 0 or augment.cutmix > 0)
    multiple = 2 * processes if is_mixed else processes
    for batch_size in config.batch_sizes:
        if batch_size % multiple:
            why = "mixup and cutmix pair the clips of a process" if is_mixed else "each takes the same number"
            raise SettingsConflict(
                f"batch_size={batch_size} cannot be divided between {processes} processes ({why}); make it a multiple "
                f"of {multiple}."
            )
