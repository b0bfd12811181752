"""The verbs of everyday use: `predict` and `doctor`."""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fixformer.cli.arguments import Checkpoint, Device, Number, Videos, Views
from fixformer.errors import SettingsConflict, UsageError, UserError
from fixformer.runtime.console import note, print_error, print_json, show

ONNX = ".onnx"
# What a run or a checkpoint has inside, or what is left of one.
CHECKPOINT_PARTS = ("model.safetensors", "config.json", "checkpoints")
Megabytes = Annotated[int, "MB"]


def predict(
    checkpoint: Checkpoint | None = None,
    files: Videos = (),
    *,
    views: Views | None = None,
    top_k: Number = 5,
    download_limit: Megabytes | None = None,
    device: Device = "auto",
    json: bool = False,
    csv: bool = False,
) -> None:
    """Classify videos; exit status 1 if one cannot be read.

    Args:
        checkpoint: a checkpoint, the directory of a run, or an exported .onnx file; by default a small model that comes
            with fixformer and knows 12 generated motions, nothing else.
        files: video files, folders of videos, patterns such as "clips/*.mp4", URLs, or - for standard input.
        views: views of each video, such as 2x3; by default the recipe's.
        top_k: number of classes to show.
        download_limit: how many MB of a URL or of standard input are read before it is refused. Default: 1000.
        device: auto, cpu, cuda or cuda:NUMBER.
        json: print JSON.
        csv: print CSV, a row for each guess.
    """
    from fixformer.evaluation.answers import answer_each
    from fixformer.evaluation.sources import DOWNLOAD_LIMIT, each_source
    from fixformer.runtime.progress import progress

    if json and csv:
        raise SettingsConflict("--json and --csv exclude each other; give one of them.")
    chosen, words = choose_model(checkpoint, files)
    limit = DOWNLOAD_LIMIT if download_limit is None else download_limit
    answer = _answer_with(chosen, views, top_k, limit, device)
    sources = list(each_source(words))
    rows: list[dict[str, Any]] = []
    with progress("classifying videos") if json or csv else nullcontext() as report:
        for found in answer_each(answer, sources):
            rows.append(found.to_json())
            if isinstance(found, UserError):
                print_error(found)
            if not json:
                _print_answer(found, rows, as_csv=csv)
            if report:
                report(len(rows), len(sources))
    if json:
        print_json(rows)
    if any("error" in row for row in rows):
        raise SystemExit(1)


def choose_model(first: str | None, others: Sequence[str]) -> tuple[str | None, list[str]]:
    """The checkpoint that the first word names, or None for the shipped one, and the videos."""
    words = [] if first is None else [first, *others]
    model, videos = (first, words[1:]) if first is not None and names_model(first) else (None, words)
    if not videos:
        raise UsageError("no video files given; list them after the checkpoint.")
    return model, videos


def names_model(word: str) -> bool:
    """Whether a word means a checkpoint and not a video.

    What exists decides: a folder with parts of a checkpoint is one, any other folder and every file but weights is a
    video. What does not exist is a video if its name says so, and a mistyped checkpoint otherwise.
    """
    from fixformer.data.video.shard_member import is_member
    from fixformer.data.video.suffixes import IMAGE_SUFFIXES, VIDEO_SUFFIXES
    from fixformer.evaluation.sources import is_pattern, is_special

    if is_special(word) or is_member(word) or is_pattern(word):
        return False
    suffix = os.path.splitext(word)[1].lower()
    if suffix in (ONNX, ".safetensors"):
        return True
    if os.path.isdir(word):
        return any(os.path.lexists(os.path.join(word, part)) for part in CHECKPOINT_PARTS)
    return not os.path.lexists(word) and suffix not in VIDEO_SUFFIXES | IMAGE_SUFFIXES


def _answer_with(model: str | None, views: str | None, top_k: int, limit: int, device: str) -> Callable[[Any], Any]:
    """The function that classifies one source."""
    if model is not None and model.lower().endswith(ONNX):
        return _answer_with_onnx(model, views, top_k, limit, device)
    from fixformer.evaluation.predictor import load

    if model is None:
        note_shipped_model()
    classifier = load(model, device=device, download_limit=limit)
    classifier.prepare_to_score(views, top_k)  # what would be wrong with all of them is said once
    return partial(classifier.predict, views=views, top_k=top_k)


def note_shipped_model() -> None:
    """That the small model in the package answers, and what it knows."""
    from fixformer.models.shipped_model import SHIPPED_ABOUT

    note(f"fixformer: no checkpoint given; this is the answer of {SHIPPED_ABOUT}.")


def _answer_with_onnx(model: str, views: str | None, top_k: int, limit: int, device: str) -> Callable[[Any], Any]:
    """The same without torch."""
    from fixformer.evaluation.sources import opened
    from fixformer.export.onnx_predict import load_onnx

    if device not in ("auto", "cpu"):
        raise SettingsConflict(f"--device {device}: an exported model runs on the cpu; leave it out.")
    exported = load_onnx(Path(model))
    settings: dict[str, Any] = {"top_k": top_k, **({} if views is None else {"views": views})}

    def answer(source: Any) -> Any:
        with opened(source, limit) as video:
            return exported.predict(video, **settings)

    return answer


def _print_answer(found: Any, rows: list[dict[str, Any]], *, as_csv: bool) -> None:
    """One after the other, also through a pipe."""
    from fixformer.cli.printing import print_prediction, print_prediction_rows

    if as_csv:
        print_prediction_rows(rows[-1], with_header=len(rows) == 1)
    elif not isinstance(found, UserError):
        print_prediction(found)
    sys.stdout.flush()


def doctor(*, json: bool = False) -> None:
    """Show what works on this machine, and the command that mends what does not; exit status 1 if fixformer cannot run.

    Args:
        json: print JSON.
    """
    from fixformer.cli.printing import print_findings
    from fixformer.diagnosis.doctor import examine

    findings = examine()
    if json:
        print_json([finding.to_json() for finding in findings])
    else:
        print_findings(findings)
    broken = [finding for finding in findings if finding.state == "broken"]
    if broken:
        raise SystemExit(1)
    if not json:
        show("\nfixformer works here.")
