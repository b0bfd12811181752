"""The verbs that look into a video: timeline."""

from typing import TYPE_CHECKING

from fixformer.cli.arguments import Checkpoint, Device, Directory, Seconds, Video, Views

if TYPE_CHECKING:
    from fixformer.evaluation.timeline.timeline import Timeline


def timeline(
    checkpoint: Checkpoint,
    video: Video,
    *,
    window: Seconds | None = None,
    stride: Seconds | None = None,
    smooth: Seconds | None = None,
    views: Views = "1x1",
    out: Directory | None = None,
    device: Device = "auto",
    json: bool = False,
) -> None:
    """Say what a video of any length shows when: segments with start, end, label and certainty.

    Args:
        checkpoint: a checkpoint, or the directory of a run.
        video: a video file.
        window: classified at a time; by default as long as the model's clip or its training videos, or 2 s.
        stride: from one window to the next; by default 0.15 of a window.
        smooth: standard deviation of the average over time; by default half a stride.
        views: views of each window, such as 2x3.
        out: directory for timeline.json, segments.csv, scores.csv, timeline.png, and subtitles (VTT, SRT).
        device: auto, cpu, cuda or cuda:NUMBER.
        json: print JSON.
    """
    from fixformer.evaluation.predictor import load
    from fixformer.runtime.console import note, print_json, printable
    from fixformer.runtime.files import check_writable
    from fixformer.runtime.progress import progress

    if out is not None:
        check_writable(out)
    classifier = load(checkpoint, device=device)
    with progress("windows") as report:
        found = classifier.timeline(video, window=window, stride=stride, smooth=smooth, views=views, progress=report)
    names = found.write(out) if out is not None else []
    if json:
        print_json(found.to_json())
    else:
        _print_timeline(found)
    if names:
        note(f"written: {printable(str(out))}/{', '.join(names)}")


def _print_timeline(found: "Timeline") -> None:
    from fixformer.runtime.console import printable, show

    used = f"window {found.window:.2f} s ({found.window_from}), stride {found.stride:.2f} s"
    show(f"{printable(found.file)}: {found.seconds:.1f} s, {used}")
    for segment in found.segments:
        show(f"{segment.start:9.2f} {segment.end:9.2f}  {segment.certainty:6.1%}  {printable(segment.label)}")
