"""The results of `fixformer bench` and of `fixformer cost --table` for people."""

from pathlib import Path
from typing import Any

from rich.table import Table

from fixformer.runtime.console import console, note, print_json, printable, show
from fixformer.runtime.figures import optional
from fixformer.runtime.files import check_writable, make_output, write_json, write_text


def print_model_speed(result: dict[str, Any]) -> None:
    """Every clip size, ours beside the softmax twin."""
    machine = result["machine"]
    title = f"{result['model']}, float32, batch 1, {machine['threads']} threads, {machine['cpu']}"
    table = Table(box=None, title=title, title_justify="left", header_style="bold")
    for column in ("clip", "pass", "ours s", "softmax s", "softmax / ours", "ours of SGEMM", "ours GB", "softmax GB"):
        table.add_column(column, justify="right")
    for ours, twin in zip(result["rows"][::2], result["rows"][1::2], strict=True):
        table.add_row(
            f"{ours['frames']}x{ours['size']}",
            "forward+backward" if ours["backward"] else "forward",
            f"{ours['seconds']:.2f}",
            f"{twin['seconds']:.2f}",
            f"{twin['seconds'] / ours['seconds']:.2f}",
            f"{ours['share_of_sgemm']:.1%}" if ours["share_of_sgemm"] else "",
            f"{ours['peak_memory_bytes'] / 2**30:.2f}",
            f"{twin['peak_memory_bytes'] / 2**30:.2f}",
        )
    console().print(table)
    slopes = ", ".join(f"{variant} {slope:.3f}" for variant, slope in result["slope"].items())
    console().print(
        f"log-log slope of time over pixels: {slopes}; load average {machine['load_average']:.2f}", style="dim"
    )


def print_grid(result: dict[str, Any]) -> None:
    """Every clip, ours beside softmax and Orthoformer and beside the paper's ratios."""
    from fixformer.bench.grid_table import HEADER, grid_notes, grid_table

    table = _table(f"{result['model']}, videos a second, batch 1", result)
    for column in HEADER:
        table.add_column(column, justify="right")
    for line in grid_table(result):
        table.add_row(*line)
    console().print(table)
    for sentence in grid_notes(result):
        console().print(sentence, style="dim")


def print_attention_speed(result: dict[str, Any]) -> None:
    """Milliseconds at each length, and where each kind overtakes softmax."""
    machine, rows = result["machine"], result["rows"]
    lengths = sorted({row["tokens"] for row in rows})
    what = f"{result['heads']} heads x {result['head_dim']}, float32, batch 1, milliseconds"
    title = f"{what}; {machine['threads']} threads, {machine['cpu']}"
    table = Table(box=None, title=title, title_justify="left", header_style="bold")
    for column in ("attention", "pass", *(f"{tokens:,}" for tokens in lengths), "MB at the longest", "overtakes at"):
        table.add_column(column, justify="left" if column in ("attention", "pass") else "right")
    for kind, name in dict.fromkeys((row["attention"], row["pass"]) for row in rows):
        own = {row["tokens"]: row for row in rows if (row["attention"], row["pass"]) == (kind, name)}
        cells = [f"{own[tokens]['seconds'] * 1e3:.1f}" for tokens in lengths]
        memory = f"{own[lengths[-1]]['memory_bytes'] / 2**20:.0f}"
        overtakes = ""
        if kind in result["crossover_tokens"]:
            tokens = result["crossover_tokens"][kind][name]
            overtakes = "never" if tokens is None else f"{tokens:,.0f} tokens"
        table.add_row(kind, name, *cells, memory, overtakes)
    console().print(table)
    loads = f"load average {machine['load_average']:.2f} before, {machine['load_average_after']:.2f} after"
    console().print(f"{loads}; one multiply at {machine['sgemm_gmacs_per_second']:.0f} GMAC/s", style="dim")


def print_chunked(result: dict[str, Any]) -> None:
    """Time and peak memory of inference, plain and in chunks."""
    machine = result["machine"]
    title = f"inference, float32, batch 1, {machine['threads']} threads, {machine['cpu']}"
    table = Table("model", "clip", box=None, title=title, title_justify="left", header_style="bold")
    for column in ("plain s", "chunked s", "plain / chunked", "plain GB", "chunked GB", "plain / chunked"):
        table.add_column(column, justify="right")
    for row in result["rows"]:
        times, memories = (
            [row[path][key] for path in ("plain", "chunked")] for key in ("seconds_median", "peak_memory_bytes")
        )
        table.add_row(
            *(row["model"], f"{row['frames']}x{row['size']}"),
            *(*(f"{seconds:.2f}" for seconds in times), f"{row['time_ratio']:.2f}"),
            *(*(f"{size / 2**30:.2f}" for size in memories), f"{row['memory_ratio']:.2f}"),
        )
    console().print(table)
    console().print(f"median of all repeats; load average {machine['load_average']:.2f}", style="dim")


def print_reading_speed(result: dict[str, Any]) -> None:
    """A table of clips per second, then the loader and memory in a line each."""
    from fixformer.bench.reading import LOADER_TARGET, TARGET

    machine = result["machine"]
    table = Table("clips per second, 1 thread", *result["reading"], box=None, header_style="bold")
    first = next(iter(result["reading"].values()))
    for name in first["clips_per_second"]:
        speeds = [f"{task['clips_per_second'][name]:.2f}" for task in result["reading"].values()]
        table.add_row(name, *speeds)
    ratios = [f"{task['ratio']:.2f} x {task['fastest_other']}" for task in result["reading"].values()]
    table.add_row(f"fixformer / fastest other (at least {TARGET})", *ratios, style="bold")
    work = [task["processor"] for task in result["reading"].values()]
    table.add_row("the same by processor time", *(f"{one['ratio']:.2f} x {one['fastest_other']}" for one in work))
    out = console()
    out.print(table)
    for task, found in result["reading"].items():
        for name, files in found["other_frames_than_asked"].items():
            out.print(f"{task}: {name} returned other frames than requested in {', '.join(files)}")
    if "loader" in result:
        speeds, ratio = result["loader"]["clips_per_second"], result["loader"]["ratio"]
        out.print(
            f"loader with augmentation: {speeds['1 worker']:.2f} clips/s with 1 worker, "
            f"{speeds['2 workers']:.2f} with 2: {ratio:.2f} x (at least {LOADER_TARGET})"
        )
    if "memory" in result:
        memory = result["memory"]
        out.print(f"memory over {memory['decodes']:,} decodes: {memory['kib_per_1000_decodes']:+.1f} KiB per 1,000")
    absent = "".join(f"; {name} absent ({why})" for name, why in result["absent"].items())
    out.print(f"{machine['cpu']}, load {machine['load_average']:.1f}, {machine['date']}{absent}", style="dim")


def print_training_step(result: dict[str, Any]) -> None:
    """Time and memory of a step of each variant, with activations kept and recomputed."""
    table = _table(f"{result['model']}, training steps of {result['batch']} clips", result)
    times = ("seconds", "of ours", "of SGEMM", "first step", "of ours")
    for column in ("clip", "activations", "attention", *times, "peak GB", "of ours"):
        table.add_column(column, justify="right")
    ratios = {_of_row(ratio): ratio for ratio in result["ratios"]}
    for row in result["rows"]:
        ratio = ratios.get(_of_row(row), {"seconds": 1, "seconds_first": 1, "memory_peak": 1})
        share = row["share_of_sgemm"]
        table.add_row(
            *(f"{row['frames']}x{row['size']}", "recomputed" if row["checkpointing"] else "kept", row["variant"]),
            *(f"{row['seconds']:.2f}", f"{ratio['seconds']:.2f}", "" if share is None else f"{share:.0%}"),
            *(f"{row['seconds_first']:.2f}", f"{ratio['seconds_first']:.2f}"),
            *(f"{row['memory_peak'] / 2**30:.2f}", f"{ratio['memory_peak']:.2f}"),
        )
    console().print(table)
    _print_load(result)
    if "data" in result:
        wait = result["data"]
        console().print(
            f"{wait['recipe']}: data wait {wait['data_wait']:.1%} of {wait['clips_per_second']:.1f} clips/s"
        )


def _of_row(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[key] for key in ("frames", "size", "checkpointing", "variant"))


def print_busy(result: dict[str, Any]) -> None:
    """Clips per second, quiet and busy, of every way to use the threads."""
    table = _table(f"training of recipe {result['recipe']}, clips per second", result)
    for column in ("processes x threads", "spinning", "quiet", "one core busy", "kept"):
        table.add_column(column, justify="right")
    for row in result["rows"]:
        size, spinning = f"{row['processes']} x {row['threads']}", "limited" if row["spin_count"] else "libgomp's own"
        table.add_row(size, spinning, f"{row['quiet']:.1f}", f"{row['busy']:.1f}", f"{row['kept']:.0%}")
    console().print(table)
    _print_load(result)


def print_compiled(result: dict[str, Any]) -> None:
    """Every pass as it is and compiled."""
    table = _table(f"{result['model']}, {result['batch']} clips", result)
    for column in ("clip", "pass", "seconds", "compiled", "compiling s", "as it is / compiled"):
        table.add_column(column, justify="right")
    for plain, compiled in zip(result["rows"][::2], result["rows"][1::2], strict=True):
        table.add_row(
            *(f"{plain['frames']}x{plain['size']}", "forward+backward" if plain["training"] else "forward"),
            *(f"{plain['seconds']:.2f}", f"{compiled['seconds']:.2f}", f"{compiled['compile_seconds']:.0f}"),
            f"{plain['seconds'] / compiled['seconds']:.2f}",
        )
    console().print(table)
    _print_load(result)


def print_parts(result: dict[str, Any]) -> None:
    """The groups of operations of each pass, then its products by their shapes."""
    for one in result["passes"]:
        what = f"{result['model']} {result['frames']}x{result['size']}, {'training' if one['training'] else 'forward'}"
        table = _table(what, result)
        for column in ("operations", "seconds", "share", "GMAC", "GB", "floor"):
            table.add_column(column, justify="right")
        for group in one["groups"]:
            share = f"{group['seconds'] / one['seconds_profiled']:.1%}"
            amounts = (f"{group[key]:.1f}" if group[key] else "" for key in ("gmacs", "gbytes"))
            table.add_row(group["group"], f"{group['seconds']:.3f}", share, *amounts, f"{group['floor_seconds']:.3f}")
        console().print(table)
        console().print(
            f"{one['seconds']:.2f} s, {one['seconds_profiled']:.2f} s under the profiler, floor "
            f"{one['floor_seconds']:.2f} s at {one['sgemm_gmacs']:.0f} GMAC/s and {one['copy_gbytes']:.0f} GB/s"
        )
    _print_load(result)


def _table(what: str, result: dict[str, Any]) -> Table:
    machine = result["machine"]
    title = f"{what}, float32, {machine['threads']} threads, {machine['cpu']}"
    return Table(box=None, title=title, title_justify="left", header_style="bold")


def _print_load(result: dict[str, Any]) -> None:
    machine = result["machine"]
    loads = f"load average {machine['load_average']:.2f} before, {machine['load_average_after']:.2f} after"
    console().print(loads, style="dim")


def print_openmp(result: dict[str, Any]) -> None:
    """How threads wait for each other, which decides much on a busy machine."""
    settings = result["machine"]["openmp"]
    found = ", ".join(f"{name}={value}" for name, value in settings.items()) or "nothing set"
    console().print(f"OpenMP: {printable(found)}", style="dim")


def print_paper_tables(out: Path | None = None, as_json: bool = False) -> None:
    """Markdown or JSON on stdout; with `out`, both and the figure in that directory."""
    from fixformer.bench.paper_tables import paper_tables, plot_figure_1, tables_markdown

    if out is not None:
        check_writable(out)
    tables = paper_tables()
    print_json(tables) if as_json else show(tables_markdown(tables))
    if out is not None:
        make_output(out, "cost")
        write_json(out / "paper_tables.json", tables)
        write_text(out / "paper_tables.md", tables_markdown(tables))
        names = "paper_tables.json, paper_tables.md"
        with optional("paper_figure_1.png"):
            plot_figure_1(tables, out / "paper_figure_1.png")
            names += ", paper_figure_1.png"
        note(f"written: {printable(str(out))}/{names}")
