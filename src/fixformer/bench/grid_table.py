"""The result of `speed_grid.py` as a table, as sentences and as a figure."""

from pathlib import Path
from typing import Any

from fixformer.bench.speed_grid import VARIANTS

NAMES = {"ours": "ours", "softmax": "softmax", "orthoformer": "Orthoformer"}
OTHERS = [variant for variant in VARIANTS if variant != "ours"]
HEADER = [
    *("clip", *NAMES.values()),
    *(title for other in OTHERS for title in (f"ours / {NAMES[other]}", "paper")),
    "GB of each",
]


def grid_table(result: dict[str, Any]) -> list[list[str]]:
    """The lines below `HEADER`, one a clip: videos a second, ratios beside the paper's, peak memory."""
    rows, ratios = _by_cell(result["rows"]), _by_cell(result["ratios"])
    lines = []
    for clip in _clips(result):
        of_clip = [rows[*clip, variant] for variant in VARIANTS]
        compared = [ratios[*clip, other] for other in OTHERS]
        lines.append(
            [
                "{}x{}".format(*clip),
                *map(_speed, of_clip),
                *(text for ratio in compared for text in (_ratio(ratio), _paper(ratio))),
                " ".join(map(_memory, of_clip)),
            ]
        )
    return lines


def grid_notes(result: dict[str, Any]) -> list[str]:
    """What the table shows, and how it was measured, in sentences."""
    rows, measurements = result["rows"], result["measurements"]
    speeds = [one["speed"] for one in measurements if one["speed"]]
    tried = [row["rounds"] for row in rows if row["rounds"]]
    notes = [
        "Videos a second: median of all repeats ± half their range. Ratios: median of the rounds (lowest to highest).",
        f"{len(tried)} of {len(rows)} cells measured; rounds of each: {_between(tried, 'd')}.",
    ]
    notes += [
        f"{NAMES[row['variant']]} at {row['frames']}x{row['size']} is out of memory{_within(row)}."
        for row in rows
        if row["out_of_memory"]
    ]
    notes += [_standing(other, result["ratios"]) for other in OTHERS]
    if speeds:
        rates = [rate for speed in speeds for rate in speed["sgemm_gmacs"]]
        shares = [row["share_of_sgemm"] for row in rows if row["variant"] == "ours" and row["rounds"]]
        notes.append(
            f"Plain matrix products beside them: {_between(rates, '.0f')} GMAC/s, of which ours reaches "
            f"{_between(shares, '.0%')}."
        )
    loads, dates, commits = ([one[key] for one in measurements] for key in ("load_average", "date", "commit"))
    notes.append(
        f"Load average before a measurement: {_between(loads, '.2f')}. Measured {_between(dates, '')}, commit "
        f"{', '.join(dict.fromkeys(commits))}."
    )
    return notes


def _standing(other: str, ratios: list[dict[str, Any]]) -> str:
    """In how many clips ours is faster: ahead or behind in every round, level otherwise."""
    compared = [ratio for ratio in ratios if ratio["variant"] == other and ratio["times_as_fast"]]
    ahead = [ratio for ratio in compared if ratio["times_as_fast"]["lowest"] > 1]
    behind = [ratio for ratio in compared if ratio["times_as_fast"]["highest"] < 1]
    level = [ratio for ratio in compared if ratio not in ahead and ratio not in behind]
    in_paper = [ratio for ratio in compared if isinstance(ratio["paper_times_as_fast"], float)]
    below = [ratio for ratio in in_paper if ratio["times_as_fast"]["median"] < ratio["paper_times_as_fast"]]
    standing = (
        f"Beside {NAMES[other]} ours is ahead in every round in {len(ahead)} of {len(compared)} clips, level in "
        f"{_listed(level)}, behind in every round in {_listed(behind)}"
    )
    beside_paper = f"; of {len(in_paper)} ratios that the paper has, ours is lower in {_listed(below)}"
    return f"{standing}{beside_paper if in_paper else ''}."


def _listed(ratios: list[dict[str, Any]]) -> str:
    clips = ", ".join(f"{ratio['frames']}x{ratio['size']}" for ratio in ratios)
    return f"{len(ratios)} ({clips})" if clips else "none"


def _by_cell(rows: list[dict[str, Any]]) -> dict[tuple[int, int, str], dict[str, Any]]:
    return {(row["frames"], row["size"], row["variant"]): row for row in rows}


def _clips(result: dict[str, Any]) -> list[tuple[int, int]]:
    """By size, then by frames."""
    return sorted({(row["frames"], row["size"]) for row in result["rows"]}, key=lambda clip: clip[::-1])


def _speed(row: dict[str, Any]) -> str:
    speed = row["videos_per_second"]
    if speed is None:
        return "out of memory" if row["out_of_memory"] else "not measured"
    return f"{speed['median']:.3g} ± {(speed['highest'] - speed['lowest']) / 2 / speed['median']:.0%}"


def _ratio(ratio: dict[str, Any]) -> str:
    found = ratio["times_as_fast"]
    return "{median:.2f} ({lowest:.2f} to {highest:.2f})".format(**found) if found else ""


def _paper(ratio: dict[str, Any]) -> str:
    printed = ratio["paper_times_as_fast"]
    return f"{printed:.2f}" if isinstance(printed, float) else printed or ""


def _memory(row: dict[str, Any]) -> str:
    return f"{row['peak_memory_bytes'] / 2**30:.2f}" if row["rounds"] else "-"


def _within(row: dict[str, Any]) -> str:
    return f" with {row['memory_limit'] / 2**30:.1f} GB" if row["memory_limit"] is not None else ""


def _between(values: list[Any], form: str) -> str:
    """The lowest and the highest as text, or the one if they read alike."""
    ends = [format(value, form) for value in (min(values), max(values))] if values else ["none"]
    return " to ".join(dict.fromkeys(ends))


def plot_grid(result: dict[str, Any], path: Path) -> None:
    """Videos a second over pixels, how many times as fast ours is beside the paper's ratios, and peak memory."""
    from fixformer.runtime.figures import new_figure, save_figure

    figure, (speed_axes, ratio_axes, memory_axes) = new_figure(columns=3)
    for variant in VARIANTS:
        rows = [row for row in result["rows"] if row["variant"] == variant and row["rounds"]]
        if not rows:
            continue
        rows.sort(key=_pixels)
        pixels, speeds = [_pixels(row) for row in rows], [row["videos_per_second"] for row in rows]
        middle = [speed["median"] for speed in speeds]
        below = [speed["median"] - speed["lowest"] for speed in speeds]
        above = [speed["highest"] - speed["median"] for speed in speeds]
        speed_axes.errorbar(pixels, middle, yerr=[below, above], marker="o", capsize=3, label=NAMES[variant])
        memory_axes.plot(pixels, [row["peak_memory_bytes"] / 2**30 for row in rows], "o-", label=NAMES[variant])
    for other in OTHERS:
        _plot_ratios(ratio_axes, other, result)
    for axes, title in ((speed_axes, "videos a second"), (memory_axes, "peak memory of the process, GB")):
        axes.set(xscale="log", yscale="log", xlabel="megapixels in the clip", title=title)
        axes.legend()
    ratio_axes.axhline(1, color="black", linewidth=1)
    ratio_axes.set(yscale="log", title="times as fast as ...")
    ratio_axes.tick_params("x", rotation=90)
    ratio_axes.legend()
    figure.suptitle(f"{result['model']}, float32, batch 1, {result['threads']} threads")
    save_figure(figure, path)


def _pixels(row: dict[str, Any]) -> float:
    return row["frames"] * row["size"] ** 2 / 1e6


def _plot_ratios(axes: Any, other: str, result: dict[str, Any]) -> None:
    """Ours over another variant: filled what was measured, hollow what the paper has."""
    ratios, colour = _by_cell(result["ratios"]), f"C{list(VARIANTS).index(other)}"
    of_clips = {"{}x{}".format(*clip): ratios[*clip, other] for clip in _clips(result)}
    measured = {clip: one["times_as_fast"]["median"] for clip, one in of_clips.items() if one["times_as_fast"]}
    printed = {
        clip: one["paper_times_as_fast"]
        for clip, one in of_clips.items()
        if isinstance(one["paper_times_as_fast"], float)
    }
    axes.plot(list(of_clips), [1] * len(of_clips), linestyle="none")  # every clip has its place, in this order
    axes.plot(list(measured), list(measured.values()), "o", color=colour, label=NAMES[other])
    axes.plot(
        *(list(printed), list(printed.values()), "o"), color=colour, fillstyle="none", label=f"{NAMES[other]}, paper"
    )
