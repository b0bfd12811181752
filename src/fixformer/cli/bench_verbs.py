"""The verbs of `fixformer bench`."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from fixformer.cli.arguments import DataSet, File, Model, Number, Seconds, Videos
from fixformer.errors import UserError


def bench_model(
    name: Model = "fixformer_base",
    *,
    frames: Annotated[tuple[int, ...], "NUMBER"] = (16, 32, 64, 96),
    sizes: Annotated[tuple[int, ...], "PIXELS"] = (224, 336, 448),
    threads: Number = 2,
    rounds: Number = 2,
    out: File | None = None,
    json: bool = False,
) -> None:
    """Time and memory of a model, its softmax twin and plain matrix products, side by side.

    Args:
        name: a model, see `fixformer models`.
        frames: numbers of frames.
        sizes: sides in pixels; every frame count is run at every size.
        threads: processor threads.
        rounds: how often the whole table is run.
        out: where to write the JSON; a PNG is drawn beside it.
        json: print JSON.
    """
    from fixformer.bench import model_speed
    from fixformer.cli.print_bench import print_model_speed

    _check_out(out)
    result = model_speed.bench_model(name, frames, sizes, threads, rounds)
    _deliver(result, out, None if json else print_model_speed, model_speed.plot_bench)


def bench_grid(
    name: Model = "fixformer_base",
    *,
    frames: Annotated[tuple[int, ...], "NUMBER"] = (16, 32, 64, 96),
    sizes: Annotated[tuple[int, ...], "PIXELS"] = (224, 336, 448),
    threads: Number = 2,
    rounds: Number = 3,
    out: File | None = None,
    json: bool = False,
) -> None:
    """The paper's table of throughput: ours, softmax and Orthoformer in the same backbone, beside its ratios.

    With --out every measurement is kept at once: a command that was stopped goes on where it was when it is run again.

    Args:
        name: a model, see `fixformer models`.
        frames: numbers of frames.
        sizes: sides in pixels; every frame count is run at every size.
        threads: processor threads.
        rounds: how often the whole table is run.
        out: where to write the JSON; a PNG is drawn beside it.
        json: print JSON.
    """
    from fixformer.bench import grid_table, speed_grid
    from fixformer.cli.print_bench import print_grid

    _check_out(out)
    result = speed_grid.bench_grid(name, frames, sizes, threads, rounds, out)
    _deliver(result, out, None if json else print_grid, grid_table.plot_grid)


def bench_attention(
    *,
    sides: Annotated[tuple[int, ...], "TOKENS"] = (14, 20, 28, 40, 56, 80, 112, 128),
    threads: Number = 1,
    rounds: Number = 3,
    out: File | None = None,
    json: bool = False,
) -> None:
    """Time and memory of every attention over the number of tokens, and where each overtakes softmax.

    Args:
        sides: a frame has side x side tokens.
        threads: processor threads.
        rounds: how often every attention is run.
        out: where to write the JSON; a PNG is drawn beside it.
        json: print JSON.
    """
    from fixformer.bench import attention_speed
    from fixformer.cli.print_bench import print_attention_speed

    _check_out(out)
    result = attention_speed.bench_attention(sides=sides, threads=threads, rounds=rounds)
    _deliver(result, out, None if json else print_attention_speed, attention_speed.plot_attention_bench)


def bench_chunked(
    cases: Annotated[tuple[str, ...], "MODEL:FRAMESxSIZE"] = (),
    *,
    threads: Number = 2,
    rounds: Number = 3,
    out: File | None = None,
    json: bool = False,
) -> None:
    """Time and memory of inference on a CPU, plain and a few frames at a time.

    Args:
        cases: clips as MODEL:FRAMESxSIZE; by default six, from fixformer_tiny:8x96 to fixformer_base:96x448.
        threads: processor threads.
        rounds: how often every case is run, plain and chunked in turn.
        out: where to write the JSON; a PNG is drawn beside it.
        json: print JSON.
    """
    from fixformer.bench import chunked_inference
    from fixformer.cli.print_bench import print_chunked

    _check_out(out)
    result = chunked_inference.bench_chunked(cases or chunked_inference.CASES, threads, rounds)
    _deliver(result, out, None if json else print_chunked, chunked_inference.plot_chunked)


def bench_data(
    videos: Videos = (),
    *,
    rounds: Number = 5,
    decodes: Number = 20_000,
    loader_seconds: Seconds = 20.0,
    out: File | None = None,
    json: bool = False,
) -> None:
    """Clips read per second, against PyAV, OpenCV and torchcodec; the loader; memory over many decodes.

    Args:
        videos: files to read; by default four generated videos of 10 seconds.
        rounds: how often every tool reads every clip, in turn; the best time counts.
        decodes: clips read in the memory test; 0 skips it.
        loader_seconds: duration of each measurement of the loader; 0 skips it.
        out: where to write the JSON.
        json: print JSON.
    """
    from fixformer.bench import reading
    from fixformer.cli.print_bench import print_reading_speed

    _check_out(out)
    result = reading.bench_data(videos or None, rounds=rounds, decodes=decodes, loader_seconds=loader_seconds)
    _deliver(result, out, None if json else print_reading_speed)


def bench_train(
    name: Model = "fixformer_base",
    *,
    clips: Annotated[tuple[str, ...], "FRAMESxSIZE"] = (),
    batch: Number = 1,
    threads: Number = 2,
    rounds: Number = 1,
    recipe: Annotated[str, "RECIPE"] = "lsa64",
    data: DataSet | None = None,
    out: File | None = None,
    json: bool = False,
) -> None:
    """Time and memory of a training step, beside softmax, plain linear attention and the released network.

    Args:
        name: a model, see `fixformer models`.
        clips: clips as FRAMESxSIZE; by default 16x224, 32x224 and 16x336.
        batch: clips in a step.
        threads: processor threads.
        rounds: how often the whole table is run.
        recipe: the recipe whose wait for data is measured, if `data` is given.
        data: directory or annotation file for the recipe.
        out: where to write the JSON.
        json: print JSON.
    """
    from fixformer.bench import training_step
    from fixformer.cli.print_bench import print_training_step

    _check_out(out)
    if data:
        training_step.check_data(recipe, data)
    clips = clips or training_step.CLIPS
    result = training_step.bench_train(name, clips=clips, batch=batch, threads=threads, rounds=rounds)
    if data:
        result["data"] = training_step.bench_data_wait(recipe, data)
    _deliver(result, out, None if json else print_training_step)


def bench_busy(
    *,
    threads: Number = 2,
    seconds: Seconds = 8.0,
    rounds: Number = 3,
    out: File | None = None,
    json: bool = False,
) -> None:
    """Speed of training while another process keeps one core busy.

    Args:
        threads: processor threads.
        seconds: duration of each measurement.
        rounds: how often each is made.
        out: where to write the JSON.
        json: print JSON.
    """
    from fixformer.bench import busy
    from fixformer.cli.print_bench import print_busy

    _check_out(out)
    _deliver(busy.bench_busy(threads, seconds, rounds), out, None if json else print_busy)


def bench_compile(
    name: Model = "fixformer_base",
    *,
    clips: Annotated[tuple[str, ...], "FRAMESxSIZE"] = ("16x224",),
    batch: Number = 1,
    threads: Number = 2,
    repeats: Number = 2,
    out: File | None = None,
    json: bool = False,
) -> None:
    """What torch.compile saves in training and inference, and how long it compiles.

    Args:
        name: a model, see `fixformer models`.
        clips: clips as FRAMESxSIZE.
        batch: clips in a pass.
        threads: processor threads.
        repeats: passes measured, after the first.
        out: where to write the JSON.
        json: print JSON.
    """
    from fixformer.bench import compiled
    from fixformer.cli.print_bench import print_compiled

    _check_out(out)
    result = compiled.bench_compile(name, clips=clips, batch=batch, threads=threads, repeats=repeats)
    _deliver(result, out, None if json else print_compiled)


def bench_parts(
    name: Model = "fixformer_base",
    *,
    frames: Number = 16,
    size: Annotated[int, "PIXELS"] = 224,
    threads: Number = 2,
    out: File | None = None,
    json: bool = False,
) -> None:
    """Where the time of a pass goes, beside the least that its products and its memory traffic need here.

    Args:
        name: a model, see `fixformer models`.
        frames: of the clip.
        size: side of the clip, pixels.
        threads: processor threads.
        out: where to write the JSON.
        json: print JSON.
    """
    from fixformer.bench import pass_parts
    from fixformer.cli.print_bench import print_parts

    _check_out(out)
    result = pass_parts.bench_parts(name, frames=frames, size=size, threads=threads)
    _deliver(result, out, None if json else print_parts)


def _check_out(out: Path | None) -> None:
    """Raise a `UserError` for a file that could not be written, before anything is measured."""
    from fixformer.runtime.files import check_writable

    if out is None:
        return
    if out.is_dir():
        raise UserError(f"--out {out} is a directory; expected a file, such as {out / 'bench.json'}.")
    if out.suffix == ".png":  # where the figure goes
        raise UserError(f"--out {out}: expected a file for the JSON, such as {out.with_suffix('.json')}.")
    check_writable(out.parent)


def _deliver(
    result: dict[str, Any],
    out: File | None,
    show: Callable[[dict[str, Any]], None] | None,
    draw: Callable[[dict[str, Any], Path], None] | None = None,
) -> None:
    """Print the result with `show`, or else as JSON; write the JSON to `out`, and draw the figure beside it."""
    from fixformer.cli.print_bench import print_openmp
    from fixformer.runtime.console import print_json
    from fixformer.runtime.figures import optional
    from fixformer.runtime.files import write_json

    (show or print_json)(result)
    if show:
        print_openmp(result)
    if out:
        write_json(out, result)
        if draw:
            with optional(str(out.with_suffix(".png"))):
                draw(result, out.with_suffix(".png"))
