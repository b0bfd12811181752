"""Write the tables of README and docs from the JSON files in results/: `make docs`.

A table stands between `<!-- begin NAME -->` and `<!-- end NAME -->`; `TABLES` says from which files that commands of
this repository wrote, and which function turns them into Markdown; a name with a star stands for all files of that
kind, perhaps none. With --check nothing is written and a stale page is
an error.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fixformer.bench.grid_table import HEADER, grid_notes, grid_table
from fixformer.experiments.study_report import to_markdown

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MARKED = re.compile(r"(<!-- begin (\w+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    # a bar would end its cell
    return "".join(f"| {' | '.join(cell.replace('|', '·') for cell in line)} |\n" for line in lines)


def bench_model(result: dict[str, Any]) -> str:
    machine = result["machine"]
    header = [
        "clip",
        "pass",
        "ours, s",
        "softmax twin, s",
        "twin / ours",
        "ours, share of SGEMM",
        "ours, GB",
        "twin, GB",
    ]
    rows = [
        [
            f"{ours['frames']}x{ours['size']}",
            "forward + backward" if ours["backward"] else "forward",
            f"{ours['seconds_median']:.2f}",
            f"{twin['seconds_median']:.2f}",
            f"{twin['seconds_median'] / ours['seconds_median']:.2f}",
            f"{ours['share_of_sgemm']:.0%}" if ours["share_of_sgemm"] else "",
            f"{ours['peak_memory_bytes'] / 2**30:.2f}",
            f"{twin['peak_memory_bytes'] / 2**30:.2f}",
        ]
        for ours, twin in zip(result["rows"][::2], result["rows"][1::2], strict=True)
    ]
    slopes = ", ".join(f"{name} {slope:.3f}" for name, slope in result["slope"].items())
    where = f"{machine['threads']} threads of {machine['cpu']}, torch {machine['torch']}, commit {machine['commit']}"
    note = f"\n`{result['model']}`, float32, batch 1, {where}, load {machine['load_average']:.2f} at the start.\n"
    note += f"Slope of log time over log pixels: {slopes}.\n"
    return markdown(header, rows) + note


def bench_grid(*results: dict[str, Any]) -> str:
    """A table and a figure for every grid that has been measured."""
    if not results:
        return "Not measured yet.\n"
    return "\n".join(_grid(result) for result in results)


def _grid(result: dict[str, Any]) -> str:
    machine, notes = result["machine"], "".join(f"- {sentence}\n" for sentence in grid_notes(result))
    where = f"{machine['threads']} threads of {machine['cpu']}, torch {machine['torch']}"
    about = f"`{result['model']}`, float32, batch 1, {where}. {result['paper']}."
    return f"{markdown(HEADER, grid_table(result))}\n{about}\n\n{notes}{_figure(result['file'])}"


def bench_attention(result: dict[str, Any]) -> str:
    tokens = sorted({row["tokens"] for row in result["rows"]})
    found = {(row["attention"], row["pass"], row["tokens"]): row for row in result["rows"]}
    header = ["attention", "pass", *(f"{n:,}" for n in tokens), f"MB at {tokens[-1]:,}", "overtakes softmax at"]
    rows = []
    for attention, turn in dict.fromkeys((row["attention"], row["pass"]) for row in result["rows"]):
        of_this = [found[attention, turn, n] for n in tokens]
        crossing = result["crossover_tokens"].get(attention, {}).get(turn)
        rows.append(
            [
                *(attention, turn, *(f"{1e3 * row['seconds']:.1f}" for row in of_this)),
                f"{of_this[-1]['memory_bytes'] / 2**20:.0f}",
                f"{crossing:,.0f}" if crossing else "",
            ]
        )
    machine = result["machine"]
    where = f"{machine['threads']} thread of {machine['cpu']}, torch {machine['torch']}, commit {machine['commit']}"
    note = f"\nMilliseconds; {result['heads']} heads of {result['head_dim']}, {result['dtype']}, batch 1, {where}, "
    note += f"best of {result['rounds']} rounds, load {machine['load_average']:.2f} at the start.\n"
    return markdown(header, rows) + note


def bench_chunked(result: dict[str, Any]) -> str:
    header = [
        "model",
        "clip",
        "plain, s",
        "chunked, s",
        "plain / chunked",
        "plain, GB",
        "chunked, GB",
        "plain / chunked",
    ]
    rows = []
    for row in result["rows"]:
        plain, chunked = row["plain"], row["chunked"]
        rows.append(
            [
                *(f"`{row['model']}`", f"{row['frames']}x{row['size']}"),
                *(f"{plain['seconds_median']:.2f}", f"{chunked['seconds_median']:.2f}", f"{row['time_ratio']:.2f}"),
                *(f"{path['peak_memory_bytes'] / 2**30:.2f}" for path in (plain, chunked)),
                f"{row['memory_ratio']:.2f}",
            ]
        )
    machine = result["machine"]
    where = f"{machine['threads']} threads of {machine['cpu']}, torch {machine['torch']}, commit {machine['commit']}"
    note = f"\nInference, float32, batch 1, median of {result['rounds']} rounds, {where}, load "
    note += f"{machine['load_average']:.2f} at the start. Peak memory is that of the process, weights included.\n"
    return markdown(header, rows) + note


def bench_data(result: dict[str, Any]) -> str:
    reading, loader, memory = result["reading"], result["loader"], result["memory"]
    names = list(next(iter(reading.values()))["clips_per_second"])
    rows = [[name, *(f"{task['clips_per_second'][name]:.2f}" for task in reading.values())] for name in names]
    ratios = [f"{task['ratio']:.2f} ({task['fastest_other']})" for task in reading.values()]
    rows.append(["fixformer / fastest other", *ratios])
    note = f"\nClips per second, 1 thread of {result['machine']['cpu']}, commit {result['machine']['commit']}. "
    one, two = loader["clips_per_second"].values()
    note += f"Loader with RandAugment at 224 pixels: {one:.2f} clips/s with 1 worker, {two:.2f} with 2 "
    note += f"({loader['ratio']:.2f} times). Memory over {memory['decodes']:,} decodes: "
    note += f"{memory['kib_per_1000_decodes']:+.1f} KiB per 1,000.\n"
    return markdown(["reader", *reading], rows) + note


def bench_train(result: dict[str, Any]) -> str:
    key = ("frames", "size", "checkpointing", "variant")
    ratios = {tuple(ratio[name] for name in key): ratio for ratio in result["ratios"]}
    rows = []
    for row in result["rows"]:
        ratio = ratios.get(tuple(row[name] for name in key))
        rows.append(
            [
                f"{row['frames']}x{row['size']}",
                "recomputed (`run.checkpointing=true`)" if row["checkpointing"] else "kept",
                ATTENTIONS[row["variant"]],
                f"{row['seconds']:.2f}",
                f"{ratio['seconds']:.2f}" if ratio else "",
                "" if row["share_of_sgemm"] is None else f"{row['share_of_sgemm']:.0%}",
                f"{row['seconds_first']:.2f}",
                f"{ratio['seconds_first']:.2f}" if ratio else "",
                f"{row['memory_peak'] / 2**30:.2f}",
                f"{ratio['memory_peak']:.2f}" if ratio else "",
            ]
        )
    note = f"\n`{result['model']}`, {result['batch']} clip, {result['dtype']}, rounds: {result['rounds']}, "
    note += f"{_where(result)}."
    if "data" in result:
        wait = result["data"]
        note += f" `{wait['recipe']}` with its cache waits {wait['data_wait']:.1%} of its time for data."
    times = ["seconds a step", "of ours", "share of SGEMM", "first step", "of ours"]
    header = ["clip", "activations", "attention", *times, "peak GB", "of ours"]
    return markdown(header, rows) + note + "\n"


ATTENTIONS = {
    "ours": "ours",
    "softmax": "softmax twin",
    "linear": "plain linear",
    "ours, autograd": "ours, by autograd",
    "released": "released network, by autograd",
}


def bench_busy(result: dict[str, Any]) -> str:
    rows = [
        [
            f"{row['processes']} x {row['threads']}",
            f"`GOMP_SPINCOUNT={row['spin_count']}`" if row["spin_count"] else "not set",
            *(f"{row[which]:.1f}" for which in ("quiet", "busy")),
            f"{row['kept']:.0%}",
        ]
        for row in result["rows"]
    ]
    note = (
        f"\nClips per second of training steps as of recipe `{result['recipe']}`, best of {result['rounds']} rounds of "
    )
    note += f"{result['seconds']:g} seconds, {_where(result)}.\n"
    return markdown(["processes x threads", "spinning", "quiet", "one core busy", "kept"], rows) + note


def bench_compile(result: dict[str, Any]) -> str:
    rows = [
        [
            f"{plain['frames']}x{plain['size']}",
            "forward + backward" if plain["training"] else "forward",
            *(f"{row['seconds']:.2f}" for row in (plain, compiled)),
            f"{compiled['compile_seconds']:.0f}",
            f"{plain['seconds'] / compiled['seconds']:.2f}",
            *(f"{row['memory_peak'] / 2**30:.2f}" for row in (plain, compiled)),
        ]
        for plain, compiled in zip(result["rows"][::2], result["rows"][1::2], strict=True)
    ]
    header = [
        "clip",
        "pass",
        "as it is, s",
        "compiled, s",
        "to compile, s",
        "as it is / compiled",
        "GB",
        "compiled, GB",
    ]
    return markdown(header, rows) + f"\n`{result['model']}`, {result['batch']} clip, float32, {_where(result)}.\n"


def bench_parts(result: dict[str, Any]) -> str:
    """A row for each group of operations with its share of both passes, then the products by their shapes."""
    forward, training = result["passes"]
    rows = [
        [
            group["group"],
            *_group_cells(group),
            *_group_cells(both),
        ]
        for group, both in zip(forward["groups"], training["groups"], strict=True)
    ]
    whole = (
        [f"{one['seconds_profiled']:.2f}", f"**{one['floor_seconds']:.2f}**", "", ""] for one in (forward, training)
    )
    rows.append(["all", *(cell for cells in whole for cell in cells)])
    columns = ["s", "floor, s", "GMAC", "GB"]
    header = ["operations", *(f"forward, {column}" for column in columns), *(f"training, {c}" for c in columns)]
    note = f"\n`{result['model']}`, {result['frames']}x{result['size']}, {_where(result)}. Without the profiler "
    note += f"{forward['seconds']:.2f} and {training['seconds']:.2f} s. Products: {forward['sgemm_gmacs']:.0f} and "
    note += f"{training['sgemm_gmacs']:.0f} GMAC/s; copies within the cache: {forward['copy_gbytes']:.0f} and "
    note += f"{training['copy_gbytes']:.0f} GB/s.\n\n"
    return markdown(header, rows) + note + _products(forward)


def _group_cells(group: dict[str, Any]) -> list[str]:
    amounts = (f"{group[key]:.1f}" if group[key] else "" for key in ("gmacs", "gbytes"))
    return [f"{group['seconds']:.2f}", f"{group['floor_seconds']:.2f}", *amounts]


def _products(one: dict[str, Any]) -> str:
    """The products of a pass by their shapes, beside the same product alone."""
    rows = [
        [
            " x ".join(f"{side:,}" for side in product["shape"] if side != 1),
            str(product["count"]),
            f"{product['seconds']:.2f}",
            *(f"{product[key]:.0f}" for key in ("gmacs_per_second", "alone_gmacs_per_second")),
        ]
        for product in one["products"]
    ]
    header = ["product, forward", "times", "s", "GMAC/s", "GMAC/s by itself"]
    return markdown(header, rows)


def plan(result: dict[str, Any]) -> str:
    """For each model and attention the predictions that were farthest off, by mode."""
    modes = list(dict.fromkeys(row["mode"] for row in result["rows"]))
    by_model: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    for row in result["rows"]:
        by_model.setdefault((row["model"], row["attention"]), {}).setdefault(row["mode"], []).append(row)
    rows = [
        [f"`{model}`", ATTENTIONS[attention], *(_prediction(found[mode]) if mode in found else "" for mode in modes)]
        for (model, attention), found in by_model.items()
    ]
    note = (
        f"\nThe worst of {len(result['rows'])} predictions is off by {result['worst']:.1%}. In brackets: the measured "
    )
    note += f"peaks. Float32, AdamW, {_where(result)}.\n"
    return markdown(["model", "attention", *(PLANNED[mode] for mode in modes)], rows) + note


PLANNED = {"kept": "training, kept", "recomputed": "training, recomputed", "inference": "inference"}


def _prediction(rows: list[dict[str, Any]]) -> str:
    worst = max((row["error"] for row in rows), key=abs)
    peaks = [row["peak"] / 1e9 for row in rows]
    return f"{worst:+.1%} ({min(peaks):.1f} to {max(peaks):.1f} GB)"


def _where(result: dict[str, Any]) -> str:
    machine = result["machine"]
    where = f"{machine['threads']} threads of {machine['cpu']}, torch {machine['torch']}, commit {machine['commit']}"
    return f"{where}, load {machine['load_average']:.2f} before and {machine['load_average_after']:.2f} after"


def lsa64(*results: dict[str, Any]) -> str:
    """One row for each set of signs: the recipe's runs of it, the probe beside them."""
    rows = []
    for result in results:
        runs, videos = result["runs"], result["videos"]
        scores = ", ".join(f"{run['metrics']['video_top1']:.1%}" for run in runs)
        rows.append(
            [
                f"{result['classes']} signs, {videos['train']:,} / {videos['test']} videos",
                f"`{runs[0]['init']}`" if runs[0]["init"] else "nothing",
                f"{result['probe']['video_top1']:.1%}",
                f"**{scores}** (seed {', '.join(str(run['seed']) for run in runs)})",
                ", ".join(f"{run['minutes']:.0f}" for run in runs),
                runs[0]["protocol_line"],
            ]
        )
    header = ["LSA64, unseen signers", "start", "linear probe on pixels", "`fixformer_tiny`", "minutes", "protocol"]
    return markdown(header, rows)


def lsa64_runs(result: dict[str, Any]) -> str:
    """The probe, the recipe's runs, and what else was tried."""
    probe = result["probe"]
    size = f"{probe['frames']}x{probe['short_side']}"
    rows = [["linear probe on pixels", size, "", f"{probe['video_top1']:.1%}", ""]]
    rows += [_run(run, "recipe") for run in result["runs"]] + [_run(run, "tried") for run in result["tried"]]
    videos = result["videos"]
    note = f"\n{result['classes']} signs, {videos['train']:,} videos of signers 1-8 for training, {videos['test']} of "
    note += "signers 9 and 10 for testing.\n"
    return markdown(["", "clips (frames x pixels : epochs)", "minutes", "video top-1", "protocol"], rows) + note


def _run(run: dict[str, Any], kind: str) -> list[str]:
    start = [f"from `{run['init']}`"] if run["init"] else []
    what = "; ".join([kind, f"seed {run['seed']}", *start, *map(_short, run["unlike_recipe"])])
    if "metrics" in run:
        score, protocol = run["metrics"]["video_top1"], run["protocol_line"]
    else:
        last = run["scores"][-1]
        score, protocol = last["video_top1"], f"one view after {last['epoch']} epochs, then stopped"
    return [what, run["clips"], f"{run['minutes']:.0f}", f"{score:.1%}", protocol]


def own_videos(table: str) -> Callable[[dict[str, Any]], str]:
    """The runs of one table of docs/own_videos.md."""

    def write(result: dict[str, Any]) -> str:
        rows = [
            [
                f"`{run['run']}`",
                "; ".join(
                    [
                        f"`{run['model']}`",
                        *([f"from `{run['init']}`"] if run["init"] else []),
                        *map(_short, run["unlike_recipe"]),
                    ]
                ),
                f"{run['frozen_epochs']} + {run['epochs'] - run['frozen_epochs']}",
                f"{run['minutes']:.1f}",
                str(run["processes"] or "not recorded"),
                f"**{run['video_top1']:.1%}**",
                run["protocol_line"],
            ]
            for run in result["runs"]
            if run["table"] == table
        ]
        return markdown(
            ["run", "model and settings", "epochs, frozen + all", "minutes", "processes", "video top-1", "protocol"],
            rows,
        )

    return write


def export_int8(result: dict[str, Any]) -> str:
    speed, agreement, machine = result["speed"], result["agreement"], result["machine"]
    header = ["", "seconds a clip", "times as fast", "top-1", "same class", "logits differ by"]
    rows = []
    for title, key, ratio in (
        ("PyTorch, float32", "pytorch", 1.0),
        ("ONNX, float32", "onnx_float32", speed["float32_speedup"]),
        ("ONNX, int8", "onnx_int8", speed["int8_speedup"]),
    ):
        shares = [f"{agreement[f'{key}_{name}']:.1%}" for name in ("top1", "same_class")]
        largest = f"{agreement[f'{key}_largest_difference']:.2g}"
        rows.append([title, f"{speed[f'seconds_{key}']:.2f}", f"{ratio:.2f}", *shares, largest])
    note = (
        f"\nProcessor seconds: `{speed['model']}`, {speed['clip']}, {machine['threads']} thread of {machine['cpu']}, "
        f"torch {machine['torch']}, commit {machine['commit']}, load {machine['load_average']:.2f} at the start. "
        f"Agreement: `{agreement['model']}`, {agreement['videos']} {agreement['source']}, one view.\n"
    )
    return markdown(header, rows) + note


def ablations(*results: dict[str, Any]) -> str:
    """A section for every study that has been run."""
    if not results:
        return "No study has been run yet.\n"
    return "\n".join(to_markdown(result) + _figure(result["file"]) for result in results)


def _figure(name: str) -> str:
    has_figure = (ROOT / "results" / f"{name}.png").is_file()
    return f"\n![{name}](../results/{name}.png)\n" if has_figure else ""


def _short(change: str) -> str:
    name, values = change.split(": ", 1)
    return f"{name.rpartition('.')[2]} {values.rpartition(' -> ')[2]}"


TABLES: dict[str, tuple[Callable[..., str], list[str]]] = {
    "bench_model": (bench_model, ["bench_model"]),
    "bench_grid": (bench_grid, ["bench_grid*"]),
    "bench_attention": (bench_attention, ["bench_attention"]),
    "bench_chunked": (bench_chunked, ["bench_chunked"]),
    "bench_data": (bench_data, ["bench_data"]),
    "bench_train": (bench_train, ["bench_train"]),
    "bench_busy": (bench_busy, ["bench_busy"]),
    "bench_compile": (bench_compile, ["bench_compile"]),
    "bench_parts": (bench_parts, ["bench_parts"]),
    "plan": (plan, ["plan"]),
    "lsa64": (lsa64, ["lsa64_23", "lsa64_64"]),
    "lsa64_23": (lsa64_runs, ["lsa64_23"]),
    "lsa64_64": (lsa64_runs, ["lsa64_64"]),
    "ablations": (ablations, ["ablate_*"]),
    "export_int8": (export_int8, ["export_int8"]),
    **{f"own_{name}": (own_videos(name), ["own_videos"]) for name in ("tuning", "signs", "few", "auto", "blocks")},
}


def _files(name: str) -> list[Path]:
    file = ROOT / "results" / f"{name}.json"
    return sorted(file.parent.glob(file.name)) if "*" in name else [file]


def filled(page: str) -> str:
    def table(match: re.Match[str]) -> str:
        function, names = TABLES[match[2]]
        files = [file for name in names for file in _files(name)]
        results = [{**json.loads(file.read_text()), "file": file.stem} for file in files]
        return match[1] + function(*results) + match[3]

    return MARKED.sub(table, page)


def main() -> None:
    stale = []
    for page in PAGES:
        old = page.read_text()
        new = filled(old)
        if new != old:
            stale.append(page.name)
            if "--check" not in sys.argv:
                page.write_text(new)
    if stale and "--check" in sys.argv:
        raise SystemExit(f"stale: {', '.join(stale)}; run make docs")


if __name__ == "__main__":
    main()
