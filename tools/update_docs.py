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


TABLES: dict[str, Callable[[dict[str, Any]], str]] = {"bench_model": bench_model}


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
