"""Write the tables of README and docs from the JSON files in results/: `make docs`.

A table stands between `<!-- begin NAME -->` and `<!-- end NAME -->`; NAME is a file results/NAME.json that a command of
this repository wrote, and a function below that turns it into Markdown. With --check nothing is written and a stale
page is an error.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MARKED = re.compile(r"(<!-- begin (\w+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


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
    rows = [
        [
            "recomputed (`run.checkpointing=true`)" if row["checkpointing"] else "kept",
            f"{row['seconds']:.1f}",
            f"{row['memory_peak'] / 2**30:.2f}",
        ]
        for row in result["rows"]
    ]
    machine = result["machine"]
    note = f"\n`{result['model']}`, {result['batch']} clip of {result['frames']}x{result['size']}, {result['dtype']}, "
    note += f"{machine['threads']} threads of {machine['cpu']}, commit {machine['commit']}."
    if "data" in result:
        wait = result["data"]
        note += f" `{wait['recipe']}` with its cache waits {wait['data_wait']:.1%} of its time for data."
    return markdown(["activations", "seconds a step", "peak GB"], rows) + note + "\n"


def lsa64(result: dict[str, Any]) -> str:
    """The probe, every finished run, and what the others had when they were stopped."""
    probe = result["probe"]
    size = f"{probe['frames']}x{probe['short_side']}"
    rows = [["linear probe on pixels", size, "", f"{probe['video_top1']:.1%}", ""]]
    for run in result["runs"]:
        score = f"**{run['metrics']['video_top1']:.1%}**"
        rows.append([f"seed {run['seed']}", *_clips(run), score, run["protocol_line"]])
    for run in result["tried"]:
        last = run["scores"][-1]
        what = "; ".join(["tried", f"seed {run['seed']}", *map(_short, run["unlike_recipe"])])
        when = f"one view after {last['epoch']} epochs, then stopped"
        rows.append([what, *_clips(run), f"{last['video_top1']:.1%}", when])
    videos = result["videos"]
    note = f"\n{result['classes']} signs, {videos['train']:,} videos of signers 1-8 for training, {videos['test']} of "
    note += "signers 9 and 10 for testing. Each run had one thread, two at a time on two cores.\n"
    return markdown(["", "clips (frames x pixels : epochs)", "minutes", "video top-1", "protocol"], rows) + note


def _short(change: str) -> str:
    name, values = change.split(": ", 1)
    return f"{name.rpartition('.')[2]} {values.rpartition(' -> ')[2]}"


def _clips(run: dict[str, Any]) -> list[str]:
    return [run["clips"], f"{run['minutes_of_training']:.0f}"]


TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "bench_model": bench_model,
    "bench_attention": bench_attention,
    "bench_data": bench_data,
    "bench_train": bench_train,
    "lsa64_23": lsa64,
    "lsa64_64": lsa64,
}


def filled(page: str) -> str:
    def table(match: re.Match[str]) -> str:
        name = match[2]
        result = json.loads((ROOT / "results" / f"{name}.json").read_text())
        return match[1] + TABLES[name](result) + match[3]

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
