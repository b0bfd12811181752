"""The verbs that look into one video: timeline and explain."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fixformer.cli.arguments import CellGrid, Checkpoint, Checkpoints, Device, Directory, Layers, Seconds, Video, Views
from fixformer.cli.use_verbs import note_shipped_model
from fixformer.errors import UsageError

if TYPE_CHECKING:
    from fixformer.evaluation.explain.explanation import Explanation
    from fixformer.evaluation.predictor import Classifier
    from fixformer.evaluation.timeline.timeline import Timeline

F = TypeVar("F", "Timeline", "Explanation")


def timeline(
    checkpoint: Checkpoint | None = None,
    video: Video | None = None,
    *,
    window: Seconds | None = None,
    stride: Seconds | None = None,
    smooth: Seconds | None = None,
    views: Views = "1x1",
    cuts: bool = True,
    out: Directory | None = None,
    device: Device = "auto",
    json: bool = False,
) -> None:
    """Say what a video of any length shows when: segments with start, end, label and certainty.

    Args:
        checkpoint: a checkpoint, or the directory of a run; left out, the small model that comes with fixformer.
        video: a video file.
        window: classified at a time; by default as long as the model's clip or its training videos, or 2 s.
        stride: from one window to the next; by default 0.15 of a window.
        smooth: standard deviation of the average over time; by default half a stride.
        views: views of each window, such as 2x3.
        cuts: look for the cuts of an edited video, which are borders; --no-cuts goes by the scores alone.
        out: directory for timeline.json, segments.csv, scores.csv, timeline.png, and subtitles (VTT, SRT).
        device: auto, cpu, cuda or cuda:NUMBER.
        json: print JSON.
    """
    from fixformer.runtime.progress import progress

    classifier, file = _classifier_and_video(checkpoint, video, out, device)
    with progress("windows") as report:
        found = classifier.timeline(
            file, window=window, stride=stride, smooth=smooth, views=views, cuts=cuts, progress=report
        )
    _deliver(found, out, _print_timeline, as_json=json)


def _classifier_and_video(
    first: str | None, second: str | None, out: Path | None, device: str
) -> tuple["Classifier", str]:
    """What the words `[CHECKPOINT] VIDEO` name, once it is sure that the results can be written."""
    from fixformer.evaluation.predictor import load
    from fixformer.runtime.files import check_writable

    if out is not None:
        check_writable(out)
    if first is None:
        raise UsageError("no video given; write it after the checkpoint.")
    if second is not None:
        return load(first, device=device), second
    note_shipped_model()
    return load(None, device=device), first


def _deliver(found: F, out: Path | None, print_text: Callable[[F], None], *, as_json: bool) -> None:
    """Write the files, print the result, and say where the files are."""
    from fixformer.runtime.console import note, print_json, printable

    names = found.write(out) if out is not None else []
    if as_json:
        print_json(found.to_json())
    else:
        print_text(found)
    if names:
        note(f"written: {printable(str(out))}/{', '.join(names)}")


def _print_timeline(found: "Timeline") -> None:
    from fixformer.runtime.console import printable, show

    used = f"window {found.window:.2f} s ({found.window_from}), stride {found.stride:.2f} s"
    show(f"{printable(found.file)}: {found.seconds:.1f} s, {used}")
    for segment in found.segments:
        show(f"{segment.start:9.2f} {segment.end:9.2f}  {segment.certainty:6.1%}  {printable(segment.label)}")


def explain(
    checkpoint: Checkpoint | None = None,
    video: Video | None = None,
    *,
    out: Directory | None = None,
    layers: Layers | None = None,
    occlusion: CellGrid = "4x4x4",
    compare: Checkpoints = (),
    start: Seconds | None = None,
    end: Seconds | None = None,
    device: Device = "auto",
    json: bool = False,
) -> None:
    """Show what a model looked at: concentration of its attention, fixation, roll-out, occlusion, the paper's Fig. 2.

    Args:
        checkpoint: a checkpoint, or the directory of a run; left out, the small model that comes with fixformer.
        video: a video file.
        out: directory for explanation.json, overlay.png, overlay.mp4, figure2.png.
        layers: attentions whose matrices are written, as block or block and axis, such as 0 3.space.
        occlusion: cells that are covered one after the other, as FRAMESxROWSxCOLUMNS; none leaves it out.
        compare: checkpoints of other models, to put beside this one in Fig. 2.
        start: of the part of the video.
        end: of the part of the video.
        device: auto, cpu, cuda or cuda:NUMBER.
        json: print JSON.
    """
    from fixformer.runtime.progress import progress

    cells = None if occlusion == "none" else occlusion
    classifier, file = _classifier_and_video(checkpoint, video, out, device)
    with progress("covering cells") as report:
        found = classifier.explain(
            file, layers=layers, occlusion=cells, compare=compare, start=start, end=end, progress=report
        )
    _deliver(found, out, _print_explanation, as_json=json)


def _print_explanation(found: "Explanation") -> None:
    from rich.table import Table

    from fixformer.runtime.console import console, printable, show

    show(f"{printable(found.file)}: {printable(found.label)} ({found.probability:.1%})")
    if found.table:
        table = Table("layer", "tokens", "entropy", "top tenth", "to softmax", "mean γ", box=None, header_style="bold")
        for row in found.table:
            gamma = "-" if row.gamma is None else f"{row.gamma:.3f}"
            numbers = (f"{row.entropy:.3f}", f"{row.top_tenth:.1%}", f"{row.to_softmax:.3f}", gamma)
            table.add_row(row.layer, str(row.tokens), *numbers)
        console().print(table)
    for kind, value in found.correlations.items():
        said = "undefined, one of them is constant" if value is None else f"{value:+.2f}"
        show(f"rank correlation of {kind} with occlusion: {said}")
    for sentence in found.notes:
        show(sentence)
