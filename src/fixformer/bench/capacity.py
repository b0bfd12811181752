"""`fixformer plan MODEL`: the largest clips that fit into a memory, and the time of a recipe on several devices."""

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from fixformer.bench.capacity_law import SIZE_STEP, Clips, CountedLaw, Counts, Law, MeasuredLaw, measure_law
from fixformer.bench.capacity_worker import Mode, Optimiser
from fixformer.bench.recipe_time import RecipeRun, find_run, time_of
from fixformer.config.clip import MOST_FRAMES, MOST_PIXELS
from fixformer.config.schema import Positive, PositiveInt, checked
from fixformer.config.train import check_device
from fixformer.errors import SettingsConflict, UserError, shown
from fixformer.models.registry import create_model
from fixformer.runtime.machine import cpu_name
from fixformer.runtime.memory import free_memory
from fixformer.runtime.progress import counting

MODES: dict[Mode, str] = {
    "kept": "training, activations kept",
    "recomputed": "training, recomputed",
    "inference": "inference",
}
UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
AMOUNT = re.compile(r"(\d{1,12}(?:\.\d{1,6})?) ?([kmgt]i?b)", re.IGNORECASE)
MOST_CLIPS = 1_000_000
# Above so many frames only multiples of it are tried: some models take their frames in groups.
FRAME_STEP = 8
DEFAULT_MODEL = "fixformer_base"


@dataclass(frozen=True)
class Place:
    """A device, and how much of its memory may be used."""

    device: str
    memory: float
    is_here: bool
    threads: int

    def __str__(self) -> str:
        if self.device != "cpu":
            return self.device
        return f"{cpu_name()}, {self.threads} thread{'s' * (self.threads > 1)}"


@checked
def plan(
    name: str | None = None,
    *,
    memory: str | None = None,
    device: str = "auto",
    optimiser: Optimiser | None = None,
    recipe: str | None = None,
    data: str | Path | None = None,
    videos: PositiveInt | None = None,
    devices: PositiveInt = 1,
    rate: Positive | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """The largest batch, frames and size that fit, for training and inference, and the time of a recipe.

    Args:
        name: a model; by default the recipe's, or fixformer_base.
        memory: such as 24GB or 16GiB; by default what is free on the device.
        device: auto, cpu, cuda or cuda:NUMBER. Where it is not here, everything is counted and nothing measured.
        optimiser: sgd or adamw; by default the recipe's, or adamw.
        recipe: whose time is estimated; its clip and its settings of the model are planned for, too.
        data: the data set of the recipe; or give `videos`.
        videos: how many videos the recipe trains on.
        devices: how many train together.
        rate: clips a second of one device, from the log of a run; by default a few steps are measured here.
        settings: of the model; with a recipe, of the recipe.
    """
    place = find_place(device, memory)
    run = _find_run(recipe, name, data, videos, devices, rate, settings)
    if run and rate is None and not place.is_here:
        raise UserError(
            f"device={device!r} is not here, so its speed is not known; give rate, clips a second in a log."
        )
    if run:
        optimiser = optimiser or run.config.optim.optimiser
        name, settings = run.config.model, run.model_settings
    name, optimiser = name or DEFAULT_MODEL, optimiser or "adamw"
    counts, own, params = _model_of(name, settings)
    averaged = run is not None and run.config.ema is not None
    laws = find_laws(counts, own, place, optimiser, averaged)
    modes = [_mode(law, own, place.memory) for law in laws]
    result = {
        "model": name,
        "settings": settings,
        "frames": own.frames,
        "size": own.size,
        "params": params,
        "optimiser": optimiser,
        "memory_bytes": place.memory,
        "device": str(place),
        "is_measured": place.is_here,
        "modes": modes,
    }
    _require_something(result, memory)
    if run:
        batch = modes[0]["largest"]["batch"]
        time = time_of(run, devices, rate, place.device, batch["batch"] if batch else 0)
        result["recipe"] = {**time, **_run_memory(run, laws, own, devices)}
    return result


def parse_memory(text: str) -> float:
    """The bytes of a text such as 24GB, 16GiB or 800MB."""
    match = AMOUNT.fullmatch(text.strip())
    if match is None:
        raise UserError(f"memory={shown(text)}: expected a number and a unit, such as 24GB, 16GiB or 800MB.")
    units = {unit.lower(): size for unit, size in UNITS.items()}
    amount = float(match[1]) * units[match[2].lower()]
    if not amount:
        raise UserError(f"memory={shown(text)}: expected more than nothing, such as 24GB.")
    return amount


def find_place(device: str, memory: str | None) -> Place:
    """The device, which need not be here, and the memory that may be used of it."""
    check_device(device)
    given = None if memory is None else parse_memory(memory)
    has_gpu = torch.cuda.is_available()
    if device == "auto":
        device = "cuda" if has_gpu else "cpu"
    number = torch.device(device).index or 0
    is_here = device == "cpu" or (has_gpu and number < torch.cuda.device_count())
    if given is None and not is_here:
        raise UserError(f"device={device!r} is not here, so its memory is not known; give memory, such as 24GB.")
    free = given or (free_memory() if device == "cpu" else torch.cuda.mem_get_info(device)[0])
    if free is None:
        raise UserError("this system does not say how much memory is free; give memory, such as 24GB.")
    return Place(device, free, is_here, torch.get_num_threads())


def _find_run(
    recipe: str | None,
    name: str | None,
    data: str | Path | None,
    videos: int | None,
    devices: int,
    rate: float | None,
    settings: dict[str, Any],
) -> RecipeRun | None:
    """What a recipe would train; None without a recipe."""
    if recipe is not None:
        model = {} if name is None else {"model": name}
        return find_run(recipe, data, videos, {**model, **settings})
    given = {"data": data, "videos": videos, "rate": rate, "devices": None if devices == 1 else devices}
    extra = [f"{key}={shown(value)}" for key, value in given.items() if value is not None]
    if extra:
        raise SettingsConflict(f"{' and '.join(extra)} without a recipe; give recipe, too, or leave it out.")
    return None


def _model_of(name: str, settings: dict[str, Any]) -> tuple[Counts, Clips, int]:
    """The counts of a model, its own clip and its parameters."""
    with torch.device("meta"):
        model = create_model(name, **settings)
    rest = {key: value for key, value in settings.items() if key not in ("num_frames", "image_size")}
    params = sum(parameter.numel() for parameter in model.parameters())
    return Counts(name, rest), Clips(1, model.num_frames, model.image_size), params


def find_laws(
    counts: Counts, own: Clips, place: Place, optimiser: Optimiser, averaged: bool = False
) -> Sequence[CountedLaw | MeasuredLaw]:
    """One for each mode: measured if the device is here, otherwise counted."""
    if not place.is_here:
        return [CountedLaw(mode, counts, optimiser, averaged) for mode in MODES]
    laws = []
    with counting("", len(MODES)) as progress:
        for mode, title in MODES.items():
            progress.begin(f"measuring {title}")
            law = measure_law(
                mode,
                counts,
                own,
                device=place.device,
                threads=place.threads,
                optimiser=optimiser,
                averaged=averaged,
            )
            laws.append(law)
            progress.advance()
    return laws


def _mode(law: Law, own: Clips, memory: float) -> dict[str, Any]:
    """What fits in one mode, and what was measured."""
    sizes = [*range(SIZE_STEP, own.size, SIZE_STEP), *range(own.size, MOST_PIXELS + 1, SIZE_STEP)]
    frames = [*(n for n in (1, 2, 4) if n < FRAME_STEP), *range(FRAME_STEP, MOST_FRAMES + 1, FRAME_STEP)]
    return {
        "mode": law.mode,
        "one_clip_bytes": law.peak(own),
        "largest": {
            "batch": _found(law, memory, range(1, MOST_CLIPS + 1), lambda n: own._replace(batch=n)),
            "frames": _found(law, memory, sorted({*frames, own.frames}), lambda n: own._replace(frames=n)),
            "size": _found(law, memory, sizes, lambda n: own._replace(size=n)),
        },
        "measured": [asdict(one) for one in law.measured] if isinstance(law, MeasuredLaw) else [],
    }


def _found(law: Law, memory: float, values: Sequence[int], clips_of: Callable[[int], Clips]) -> dict[str, Any] | None:
    """The largest of the clips that fit, with its memory; None if none does."""
    best = largest(values, lambda value: law.peak(clips_of(value)), memory)
    if best is None:
        return None
    value, peak = best
    return {**clips_of(value)._asdict(), "bytes": peak, "is_most": value == values[-1]}


def largest(values: Sequence[int], peak: Callable[[int], float | None], memory: float) -> tuple[int, float] | None:
    """The last of growing values whose peak fits, with its peak. Values without one cannot be taken."""

    def fits(i: int) -> bool:
        found = peak(values[i])
        return found is None or found <= memory

    high = 1
    while high < len(values) and fits(high - 1):
        high *= 2
    low, high = 0, min(high, len(values))  # nothing from high on fits
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if fits(middle) else (low, middle)
    for value in reversed(values[:low]):
        found = peak(value)
        if found is not None and found <= memory:
            return value, found
    return None


def _run_memory(run: RecipeRun, laws: Sequence[Law], own: Clips, devices: int) -> dict[str, Any]:
    """What one device needs for its part of the recipe's batch."""
    clips = run.clips_on(devices)
    part = own._replace(batch=clips)
    return {"clips_each": clips, "bytes": {law.mode: law.peak(part) for law in laws if law.mode != "inference"}}


def _require_something(result: dict[str, Any], memory: str | None) -> None:
    """Raise a `UserError` if no clip at all fits."""
    if any(found for mode in result["modes"] for found in mode["largest"].values()):
        return
    least = min(mode["one_clip_bytes"] for mode in result["modes"])
    raise UserError(
        f"memory={memory or 'free'}: {result['model']} needs {least / 1e9:.2f} GB for inference on one clip of "
        f"{result['frames']}x{result['size']}, and no smaller clip fits into {result['memory_bytes'] / 1e9:.2f} GB; "
        "give more, or use a smaller model."
    )
