"""The paper's Tables 1 and 2 with our own parameters and GFLOPs beside the printed ones, and its Figure 1."""

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fixformer.bench.paper_rows import TABLES, Row
from fixformer.models.base import VideoModel
from fixformer.models.cost import as_published, count_macs, count_params
from fixformer.models.registry import create_model

# Printed numbers have three digits or more; closer than this they are the same number.
AGREE = 0.01
# In points from the mark; RALA and Oformer have nearly the same, and ours is near them.
LABEL_PLACES = {"Ours": (-9, -3), "RALA": (7, -12)}
HEADING = """# The paper's tables, counted again

Accuracies are **quoted from the paper**, none is measured here. Parameters (M) and GFLOPs are of one view (one clip,
one crop, batch 1); one multiply-accumulate is one FLOP, LayerNorm counts five per element, softmax and activations
nothing. Numbers of ours are in **bold** where a printed one differs by more than one per cent.
"""


def paper_tables() -> dict[str, list[dict[str, Any]]]:
    """Both tables as plain values: quoted accuracies, printed costs, and costs counted now."""
    return {title: [_counted(row) for row in rows] for title, rows in TABLES.items()}


def _counted(row: Row) -> dict[str, Any]:
    frames, size, params, macs = _count(row.model, tuple(sorted(row.settings.items())))
    return {
        "group": row.group,
        "method": row.method,
        "quoted_accuracy": {dataset: accuracy._asdict() for dataset, accuracy in row.accuracy.items()},
        "model": row.model,
        "settings": row.settings,
        "frames": frames,
        "size": size,
        "params_millions": params / 1e6,
        "gflops": macs / 1e9,
        "printed_params_millions": row.printed[0],
        "printed_gflops": row.printed[1],
        "printed_frames": row.printed_frames,
        "note": row.note,
    }


@cache
def _count(name: str, settings: tuple[tuple[str, Any], ...]) -> tuple[int, int, int, int]:
    with torch.device("meta"):
        model = create_model(name, **dict(settings)).eval()
    params = count_params(model)
    with as_published(model):
        return model.num_frames, model.image_size, params, _macs(model)


def _macs(model: VideoModel) -> int:
    """All multiply-accumulates. Of equal blocks two are run: 12 times 127 landmarks take a while, even if counted."""
    blocks = getattr(model, "blocks", None)
    if not isinstance(blocks, nn.ModuleList) or len({_shapes(block) for block in blocks}) > 1:
        return _run(model)
    depth = len(blocks)
    model.blocks = blocks[:2]
    two = _run(model)
    model.blocks = blocks[:1]
    one = _run(model)
    return one + (depth - 1) * (two - one)


def _run(model: VideoModel) -> int:
    return sum(count_macs(model, model.num_frames, model.image_size)["Global"].values())


def _shapes(block: nn.Module) -> tuple[object, ...]:
    return tuple((name, parameter.shape) for name, parameter in block.named_parameters())


def tables_markdown(tables: dict[str, list[dict[str, Any]]]) -> str:
    """Both tables for readers, notes below them."""
    parts = [HEADING]
    for title, rows in tables.items():
        datasets = list(rows[0]["quoted_accuracy"])
        parts.append(f"## {title}: {', '.join(datasets)}\n")
        parts.append("\n".join(_lines(rows, datasets)) + "\n")
        noted = [row for row in rows if row["note"]]
        parts.append("\n".join(f"{i}. {row['method']}: {row['note']}" for i, row in enumerate(noted, 1)) + "\n")
    return "\n".join(parts)


def _lines(rows: list[dict[str, Any]], datasets: list[str]) -> list[str]:
    quoted = [f"{dataset} {column}" for dataset in datasets for column in ("top-1", "top-5", "views")]
    printed = any(row["printed_gflops"] for row in rows)
    costs = ["ours M", "ours GFLOPs"]
    if printed:
        costs = ["printed T", "printed M", "ours M", "printed GFLOPs", "ours GFLOPs"]
    header = ["", "method", *quoted, *costs, "counted with", "note"]
    notes = iter(range(1, len(rows) + 1))
    lines = [_line(header), _line(["---"] * len(header))]
    for row in rows:
        accuracies = [cell for dataset in datasets for cell in row["quoted_accuracy"][dataset].values()]
        note = f"[{next(notes)}]" if row["note"] else ""
        lines.append(_line([row["group"], row["method"], *accuracies, *_costs(row, printed), _clip(row), note]))
    return lines


def _costs(row: dict[str, Any], printed: bool) -> list[str]:
    cells = [str(row["printed_frames"])] if printed else []
    for key, digits in (("params_millions", 2), ("gflops", 1)):
        ours, theirs = row[key], row[f"printed_{key}"]
        text = f"{ours:.{digits}f}"
        differs = theirs is not None and abs(ours - theirs) > AGREE * theirs
        cells += ([f"{theirs:.1f}"] if printed else []) + [f"**{text}**" if differs else text]
    return cells


def _clip(row: dict[str, Any]) -> str:
    settings = {key: value for key, value in row["settings"].items() if key != "image_size"}
    words = " ".join(f"{key}={value}" for key, value in settings.items())
    return f"`{row['model']}{' ' + words if words else ''}` {row['frames']}x{row['size']}"


def _line(cells: list[Any]) -> str:
    return "| " + " | ".join("-" if cell is None else str(cell) for cell in cells) + " |"


def plot_figure_1(tables: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Accuracy over GFLOPs of the linear video Transformers: accuracies as quoted, GFLOPs as counted here."""
    from fixformer.runtime.figures import new_figure, save_figure

    figure, both = new_figure(columns=2)
    for axes, title, dataset in zip(both, tables, ("SSv2", "K400"), strict=True):
        rows = [row for row in tables[title] if row["group"] == "Linear"]
        for row in rows:
            x, y = row["gflops"], row["quoted_accuracy"][dataset]["top1"]
            ours = row["method"] == "Ours"
            axes.plot(x, y, "*" if ours else "o", markersize=14 if ours else 7, color="C3" if ours else "C0")
            place = {"xytext": LABEL_PLACES.get(row["method"], (7, -3)), "textcoords": "offset points"}
            axes.annotate(row["method"], (x, y), ha="right" if ours else "left", fontsize=8, **place)
        axes.set(xlabel="GFLOPs of one view, counted here", ylabel="top-1 in per cent, quoted", title=dataset)
        axes.margins(x=0.2, y=0.1)
    figure.suptitle("Linear video Transformers. Accuracies are quoted from the paper, not measured here.", fontsize=9)
    save_figure(figure, path)
