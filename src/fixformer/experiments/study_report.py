"""The result of a study as Markdown and as a figure. Made from its JSON alone, without torch."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fixformer.runtime.figures import distinct_colours, drawable, new_figure, save_figure

Result = Mapping[str, Any]
VERDICTS = ("agrees", "disagrees", "undecided at this size")


def to_markdown(result: Result) -> str:
    """A heading, what was done, a table and what it says."""
    rows = result["rows"]
    seeds = len(result["seeds"])
    has_paper = any(row["paper"] is not None or row["claim"] for row in rows)
    header = ["row", "top-1", "seeds", "minutes", "difference", "95 %", "over seeds", "over videos"]
    header += ["paper", "paper's difference", "verdict"] if has_paper else []
    has_bases = any((row["recipe"] or "") != rows[0]["recipe"] for row in rows)
    header += ["separation"] if has_bases else []
    lines = [header, ["---"] * len(header)]
    lines += [_line(row, has_paper, has_bases) for row in rows]
    table = "".join(f"| {' | '.join(cell.replace('|', '·') for cell in line)} |\n" for line in lines)
    source = f" ({result['source']} of the paper)" if result["source"] else ""
    title = f"### {result['study']}{source}: {result['about']}\n\n"
    command = f"```console\n{result['command']}\n```\n\n"
    return title + command + table + "\n" + _note(result, seeds)


def _line(row: Mapping[str, Any], has_paper: bool, has_bases: bool) -> list[str]:
    compared = row["comparison"] or {}
    cells = [row["name"], _accuracy(row), str(len(row["seeds"])), _number(row["minutes"], "{:.1f}")]
    cells += [_points(compared.get("mean"))]
    cells += [_interval(compared.get(name)) for name in ("interval", "over_seeds", "over_videos")]
    if has_paper:
        difference = compared.get("paper_difference")
        shown = row["claim"] or _number(difference, "{:+.2f}")
        cells += [_number(row["paper"], "{:.2f}"), shown, compared.get("verdict") or ""]
    if has_bases:
        cells.append(_number(compared.get("separation"), "{:.1f}"))
    return cells


def _accuracy(row: Mapping[str, Any]) -> str:
    if row["mean"] is None:
        return ""
    error = "" if row["standard_error"] is None else f" ± {100 * row['standard_error']:.1f}"
    diverged = f", {row['diverged']} diverged" if row["diverged"] else ""
    return f"{100 * row['mean']:.1f}{error}{diverged}"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _points(value: float | None) -> str:
    return _number(None if value is None else round(100 * value, 1) + 0.0, "{:+.1f}")  # 0.0 has no sign, -0.0 has


def _interval(value: list[float] | None) -> str:
    return "" if value is None else f"{_points(value[0])} to {_points(value[1])}"


def _note(result: Result, seeds: int) -> str:
    """What the numbers are of, in sentences."""
    compared = dict.fromkeys(row["comparison"]["against"] for row in result["rows"] if row["comparison"])
    done = [score for row in result["rows"] for score in row["seeds"]]
    commits = sorted({score["commit"] or "unknown" for score in done})
    told = [
        f"Top-1 of {result['videos']} {result['split']} videos of {result['classes']} classes, in percent, mean and "
        f"standard error of {seeds} seed{'s' * (seeds > 1)}; trained on {result['train_videos']} videos.",
        f"Differences in points, to {_listed(compared)}; over videos, {_drawn(result['cells'])}.",
        f"Minutes of one core of {result['machine'].partition(' of ')[2]} for a row and a seed; commit "
        f"{', '.join(commits)}.",
    ]
    verdicts = Counter(row["comparison"]["verdict"] for row in result["rows"] if row["comparison"])
    if counted := [f"{verdicts[words]} {words}" for words in VERDICTS if verdicts[words]]:
        told.insert(0, f"Of the paper's claims here: {', '.join(counted)}.")
    if not result["complete"]:
        missing = sum(seeds - len(row["seeds"]) for row in result["rows"])
        told.insert(0, f"Not complete: {missing} of {seeds * len(result['rows'])} runs are missing.")
    told += [f"Failed: {name}, {reason}" for name, reason in result["failures"].items()]
    protocols = list(dict.fromkeys(score["protocol_line"] for score in done if not score["diverged"]))
    if protocols:
        told.append(f"First run: {protocols[0]}.")
    return "\n".join(told + [result["note"]] * bool(result["note"])) + "\n"


def _drawn(cells: Sequence[int] | None) -> str:
    """What the bootstrap draws."""
    return "drawn one by one" if cells is None else f"drawn as {len(set(cells))} cells of one group and class"


def _listed(names: Mapping[str, None]) -> str:
    if len(names) > 1:
        return "the first row of each group"
    return f"the row {next(iter(names))!r}" if names else "the first row"


def draw_study(result: Result, path: Path) -> None:
    """Two panels: every row's accuracy with its seeds, and its difference with the interval, the paper's beside it."""
    rows = [row for row in result["rows"] if row["mean"] is not None]
    names = [drawable(row["name"]) for row in rows]
    figure, (left, right) = new_figure(columns=2, size=(11, 1.2 + 0.42 * len(rows)))
    ours, paper = distinct_colours()[:2]
    for place, row in enumerate(rows):
        error = 100 * (row["standard_error"] or 0)
        left.errorbar(100 * row["mean"], place, xerr=error, fmt="o", color=ours, capsize=3)
        left.plot([100 * score["top1"] for score in row["seeds"]], [place] * len(row["seeds"]), ".", color="gray")
        compared = row["comparison"]
        if not compared:
            continue
        mean = 100 * compared["mean"]
        low, high = compared["interval"] or compared["over_videos"]
        right.errorbar(mean, place, xerr=[[mean - 100 * low], [100 * high - mean]], fmt="o", color=ours, capsize=3)
        if compared["paper_difference"] is not None and not row["claim"]:
            right.plot(compared["paper_difference"], place, "D", color=paper, markersize=5)
    right.axvline(0, color="black", linewidth=0.8)
    right.plot([], [], "o", color=ours, label="here, 95 %")
    right.plot([], [], "D", color=paper, label="the paper")
    right.legend(fontsize=8)
    left.set_yticks(range(len(rows)), names)
    right.set_yticks(range(len(rows)), [""] * len(rows))
    left.set(xlabel=f"top-1 of {result['videos']} {result['split']} videos, percent", title=drawable(result["study"]))
    right.set(xlabel="difference in points")
    for panel in (left, right):
        panel.set_ylim(len(rows) - 0.5, -0.5)
    save_figure(figure, path)
