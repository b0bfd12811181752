"""Tables of models and costs for people, and the same as JSON for programs."""

import csv
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from rich.table import Table

from fixformer.data.listing.escapes import escape
from fixformer.errors import UserError, suggestion
from fixformer.models.model_table import read_model_table
from fixformer.runtime.console import console, print_json, printable, show

if TYPE_CHECKING:  # torch is not needed to list the models
    from fixformer.diagnosis.finding import Finding
    from fixformer.evaluation.answers import Prediction
    from fixformer.models.cost import Cost


def print_models(pattern: str, as_json: bool = False) -> None:
    """List models with parameters (in millions), the clip they are sized for and a sentence about each."""
    known = read_model_table()
    rows = [row for row in known if fnmatchcase(row["model"], pattern)]
    if not rows:
        raise UserError(f"no model matches {pattern!r}; {suggestion(pattern, (row['model'] for row in known))}")
    if as_json:
        print_json(rows)
        return
    table = Table("model", "params M", "frames x size", "classes", "what it is", box=None, header_style="bold")
    for row in rows:
        clip = f"{row['frames']}x{row['size']}"
        table.add_row(row["model"], f"{row['params'] / 1e6:.2f}", clip, str(row["classes"]), row["about"])
    console().print(table)


def print_cost(cost: "Cost", as_json: bool = False) -> None:
    """Cost of one view, part by part, with the paper's number beside it where it has one."""
    if as_json:
        print_json(cost.to_json())
        return
    title = f"{cost.model}, one view of {cost.frames} frames x {cost.size} pixels"
    table = Table("part", "params M", "GFLOPs", "activations MB", box=None, title=title, title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for part in cost.parts:
        table.add_row(part.name, *_numbers(part.params, part.macs, part.activations))
    table.add_row("total", *_numbers(cost.params, cost.macs, cost.activations), style="bold")
    if cost.paper_gflops:
        table.add_row("the paper prints", str(cost.paper_params_millions or "-"), f"{cost.paper_gflops:.1f}", "-")
    console().print(table)
    notes = ["1 multiply-accumulate = 1 FLOP. Activations: what training keeps per clip in float32."]
    if cost.executed_macs != cost.macs:
        executed = f"{cost.executed_macs / 1e9:.1f}"
        notes.append(f"Executed: {executed} GFLOPs; below head_dim tokens, queries times keys first is cheaper.")
    console().print("\n".join(notes), style="dim")


def print_prediction(prediction: "Prediction") -> None:
    """The best guesses as bars."""
    show(f"{printable(prediction.file)} ({prediction.views} views)")
    for guess in prediction.guesses:
        bar = "█" * round(30 * guess.probability)
        show(f"  {guess.probability:6.1%} {bar:<30} {printable(guess.label)}")


def print_prediction_rows(row: dict[str, Any], *, with_header: bool) -> None:
    """The guesses for one video as CSV, a row each; the reason, if there are none. No cell is a formula."""
    table = csv.writer(sys.stdout, lineterminator="\n")
    if with_header:
        table.writerow(["file", "views", "rank", "label", "probability", "error"])
    for rank, guess in enumerate(row.get("top", ()), 1):
        table.writerow([escape(row["file"]), row["views"], rank, escape(guess["label"]), guess["probability"], ""])
    if "error" in row:
        table.writerow([escape(row["file"]), "", "", "", "", escape(row["error"])])


MARKS = {"ok": "[ok]", "absent": "[--]", "broken": "[!!]"}


def print_findings(findings: "Sequence[Finding]") -> None:
    """What `doctor` found, by topic, each with the command that mends it."""
    topic = ""
    for finding in findings:
        if finding.topic != topic:
            topic = finding.topic
            show(f"\n{topic}" if finding is not findings[0] else topic)
        show(f"  {MARKS[finding.state]} {printable(f'{finding.name}: {finding.detail}')}")
        if finding.remedy:
            show(f"       {printable(finding.remedy)}")


def _numbers(params: int, macs: int, activations: int) -> tuple[str, str, str]:
    return f"{params / 1e6:.3f}", f"{macs / 1e9:.3f}", f"{activations / 2**20:.0f}"
