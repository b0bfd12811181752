"""The verb `plan`."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fixformer.cli.arguments import DataSet, Device, Model, ModelOverrides, Number
from fixformer.runtime.console import print_json, show

if TYPE_CHECKING:
    from rich.table import Table


def plan(
    name: Model | None = None,
    settings: ModelOverrides = (),
    *,
    memory: Annotated[str, "SIZE"] | None = None,
    device: Device = "auto",
    optimiser: Literal["sgd", "adamw"] | None = None,
    recipe: Annotated[str, "RECIPE"] | None = None,
    data: DataSet | None = None,
    videos: Number | None = None,
    devices: Number = 1,
    rate: Annotated[float, "CLIPS_PER_SECOND"] | None = None,
    json: bool = False,
) -> None:
    """Find the largest batch, frames and size that fit into a memory, and how long a recipe takes on several devices.

    Small clips are measured here, in processes of their own; larger ones are predicted. For a device that is not here
    everything is counted.

    Args:
        name: a model, see `fixformer models`; by default the recipe's, or fixformer_base.
        settings: settings of the model as name=value, or with --recipe those of the recipe.
        memory: such as 24GB, 16GiB or 800MB; by default what is free on the device.
        device: auto, cpu, cuda or cuda:NUMBER; it need not be on this machine.
        optimiser: by default the recipe's, or adamw.
        recipe: estimate its time, too, and plan for its model and clip, see `fixformer recipes`.
        data: the data set that the recipe trains on.
        videos: how many videos the recipe trains on, in place of --data.
        devices: how many train together.
        rate: clips a second of one device, from the log of a run; otherwise a few steps are measured here.
        json: print JSON.
    """
    from fixformer.bench.capacity import DEFAULT_MODEL
    from fixformer.bench.capacity import plan as run
    from fixformer.config.schema import words_to_settings
    from fixformer.models.registry import parse_settings

    given: dict[str, Any]
    given = words_to_settings(settings) if recipe else parse_settings(name or DEFAULT_MODEL, settings)
    result = run(
        name,
        memory=memory,
        device=device,
        optimiser=optimiser,
        recipe=recipe,
        data=data,
        videos=videos,
        devices=devices,
        rate=rate,
        **given,
    )
    print_json(result) if json else _print_plan(result)


def _print_plan(result: dict[str, Any]) -> None:
    """What fits, what was measured for it, and the time of the recipe."""
    from fixformer.runtime.console import console

    console().print(_table(result))
    for line in [*_notes(result), *(_recipe_lines(result["recipe"]) if "recipe" in result else [])]:
        show(line)


def _table(result: dict[str, Any]) -> "Table":
    from rich.table import Table

    from fixformer.bench.capacity import MODES

    clip = f"{result['frames']}x{result['size']}"
    title = f"{result['model']}, {result['params'] / 1e6:.2f} M parameters, {result['memory_bytes'] / 1e9:.1f} GB"
    table = Table("", box=None, title=f"{title}, {result['device']}", title_justify="left", header_style="bold")
    frames, size = f"most frames at {result['size']}", f"largest size of {result['frames']} frames"
    for column in (f"one {clip}", f"most clips of {clip}", frames, size):
        table.add_column(column, justify="right")
    for mode in result["modes"]:
        cells = [_cell(mode["largest"][which], which) for which in ("batch", "frames", "size")]
        table.add_row(MODES[mode["mode"]], f"{mode['one_clip_bytes'] / 1e9:.2f} GB", *cells)
    return table


def _cell(found: dict[str, Any] | None, which: str) -> str:
    """The value and its memory; "or more" where nothing larger is tried."""
    if found is None:
        return "none"
    more = " or more" if found["is_most"] else ""
    return f"{found[which]:,}{more} ({found['bytes'] / 1e9:.1f} GB)"


def _notes(result: dict[str, Any]) -> list[str]:
    """What the numbers are."""
    own = f"float32, {result['optimiser']}; GB are 10^9 bytes"
    if not result["is_measured"]:
        how = (
            f"estimated: {result['device']} is not here, so what training keeps is counted; this was never checked on "
            "such a device, nor does it include what its driver and libraries take"
        )
        return [own, how]
    return [
        own,
        f"measured here: {'; '.join(map(_measured, result['modes']))}",
        "predicted from these: everything else; one process, without decoding, caches and evaluation",
    ]


def _measured(mode: dict[str, Any]) -> str:
    """How many sizes, and those with the largest peaks, of a single clip and of several."""
    single, several = ([one for one in mode["measured"] if (one["batch"] > 1) == is_many] for is_many in (False, True))
    largest = " and ".join(_clips(max(some, key=lambda one: one["peak"])) for some in (single, several) if some)
    return f"{mode['mode']}, {len(mode['measured'])} sizes up to {largest}"


def _clips(one: dict[str, Any]) -> str:
    batch = f"{one['batch']} of " if one["batch"] > 1 else ""
    return f"{batch}{one['frames']}x{one['size']} {one['peak'] / 1e9:.2f} GB"


def _recipe_lines(recipe: dict[str, Any]) -> list[str]:
    source = "measured here" if recipe["is_measured"] else "given"
    hours, devices = recipe["hours"], recipe["devices"]
    time = f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.0f} minutes"
    memory = " or ".join(f"{size / 1e9:.2f} GB {mode}" for mode, size in recipe["bytes"].items())
    return [
        f"recipe {recipe['recipe']}: {recipe['epochs']} epochs of {recipe['videos']:,} videos on {devices} "
        f"device{'s' * (devices > 1)}: {time}, from {recipe['clips_per_second']:.3g} clips a second of one, {source}",
        f"each device has {recipe['clips_each']} clips at a time: {memory}",
        "assumed: so many devices are so many times as fast, and decoding keeps up; evaluation is not included",
    ]
