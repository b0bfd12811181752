"""What a process of its own does with one video: read its headers, decode, compute, describe the result as JSON.

Legend: T frames, H height, W width, C colours, N windows of a timeline, K classes.
"""

import os
import resource
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fixformer import __version__
from fixformer.config.eval import parse_views
from fixformer.data.clips.frames import open_frames
from fixformer.data.clips.sampling import ShortVideoError, evenly_spaced
from fixformer.data.clips.views import make_view_bytes, view_indices
from fixformer.data.video import Limits, open_video
from fixformer.data.video.containers import open_stream
from fixformer.errors import InputError, UserError, explain
from fixformer.evaluation.predictor import Classifier, load
from fixformer.models.cost import count_params
from fixformer.runtime.console import printable
from fixformer.runtime.memory import limit_resource, virtual_memory
from fixformer.serve.data_urls import jpeg, jpeg_url, png_url
from fixformer.serve.refusal import Refusal
from fixformer.serve.settings import ServeSettings

Send = Callable[[dict[str, Any]], None]
Options = dict[str, Any]
TRACKS = 5  # classes whose probabilities over time are returned


def load_classifier(settings: ServeSettings) -> Classifier:
    """The model on the CPU, after first predictions: what only these have to do is then not done in every fork.

    With one thread: threads would not survive a fork.
    """
    torch.set_num_threads(1)
    classifier = load(settings.checkpoint or None, device="cpu")
    picture = jpeg(np.zeros((64, 64, 3), np.uint8))
    for views in ("1x1", None):
        with suppress(ShortVideoError):  # a model may refuse a video of one frame
            classifier.predict(picture, views=views)
    return classifier


def describe(classifier: Classifier) -> dict[str, Any]:
    """What `GET /v1/model` says, without the limits."""
    config = classifier.info.config
    return {
        "model": config.model,
        "parameters": count_params(classifier.model),
        "labels": classifier.labels,
        "frames": config.clip.frames,
        "size": config.clip.size,
        "views": config.eval.views,
        "version": __version__,
    }


def limit_resources(settings: ServeSettings) -> None:
    """Limits that hold whatever a decoder does: of memory and processor time; and no dump of a crash with its video."""
    torch.set_num_threads(settings.threads)
    for limit, value in (
        (resource.RLIMIT_AS, virtual_memory() + settings.memory_bytes),
        (resource.RLIMIT_CPU, int(settings.seconds * settings.threads) + 1),
        (resource.RLIMIT_CORE, 0),
    ):
        limit_resource(limit, value)


def end_with(channel: socket.socket) -> None:
    """End this process when the server closes its side: nobody waits for the answer any more."""

    def watch() -> None:
        channel.recv(1)  # the server sends nothing after the job
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def answer(job: dict[str, Any], classifier: Classifier, settings: ServeSettings, send: Send) -> dict[str, Any]:
    """The last message of a job: its result, or why there is none."""
    path, name = Path(job["path"]), printable(job["name"])
    try:
        video = check_video(path, name, settings)
        result = TASKS[job["task"]](classifier, path, job["options"], send)
        return {"result": {"file": name, "video": video, **result}}
    except Refusal as refusal:
        return {"refusal": asdict_of(refusal)}
    except (UserError, OSError, MemoryError, OverflowError, RuntimeError) as error:
        sentence = explain(error)
        if sentence is None:
            return _bug()
        is_memory = not isinstance(error, UserError) and "memory" in sentence
        code = "too_much_memory" if is_memory else "invalid" if type(error) is InputError else "unreadable"
        return {"refusal": asdict_of(Refusal(422, code, sentence.replace(str(path), name)))}
    except Exception:
        return _bug()


def _bug() -> dict[str, Any]:
    traceback.print_exc(file=sys.stderr)
    return {"refusal": asdict_of(Refusal(500, "bug", "this is a bug of fixformer; the server's log has the details."))}


def asdict_of(refusal: Refusal) -> dict[str, Any]:
    return {"status": refusal.status, "code": refusal.code, "message": refusal.message}


def check_video(path: Path, name: str, settings: ServeSettings) -> dict[str, Any]:
    """What the headers and packets of a video say; a `Refusal` if that is beyond a limit. Nothing is decoded if so."""
    limits = Limits(seconds=settings.seconds, pixels=settings.pixels, frames=settings.frames)
    try:
        with open_video(path, limits=limits) as decoder:
            times = decoder.timestamps
            seconds = float(times[-1] + (times[-1] / (len(times) - 1) if len(times) > 1 else 0))
            if seconds > settings.duration:
                sentence = f"it lasts {seconds:,.0f} s, the limit is {settings.duration:,.0f} s; send a part of it."
                raise Refusal(422, "too_long", f"{name}: {sentence}")
            info = decoder.info
    except UserError as error:
        raise _why(error, path, name, settings) from None
    return {"seconds": seconds, "frames": len(times), "width": info.width, "height": info.height, "fps": info.fps}


def _why(error: UserError, path: Path, name: str, settings: ServeSettings) -> Refusal:
    """What is wrong with a video that could not be opened within the limits."""
    sentence = str(error).replace(str(path), name)
    if "(Limits.frames)" in sentence:
        return Refusal(422, "too_long", f"{name}: it has more than {settings.frames:,} frames; send a part of it.")
    limit = f"the limit of {settings.megapixels:g} megapixels; send a smaller video."
    if "(Limits.pixels)" in sentence:
        return Refusal(422, "too_many_pixels", f"{name}: its pictures exceed {limit}")
    if "cannot be opened as a video" in sentence:
        reason = sentence.rpartition(": ")[2]
        return Refusal(422, "unreadable", f"{name}: it is not a video, or a damaged one ({reason}); send another.")
    # FFmpeg's decoders refuse a picture beyond the limit with words that do not say why
    size = _declared_size(path)
    if size is None or size[0] * size[1] > settings.pixels:
        told = "may be damaged or" if size is None else f"have {size[0]} x {size[1]} pixels and"
        return Refusal(422, "too_many_pixels", f"{name}: its pictures {told} exceed {limit}")
    return Refusal(422, "unreadable", sentence)


def _declared_size(path: Path) -> tuple[int, int] | None:
    """Width and height as the headers have them, if these can be read within the usual limits of the decoder."""
    try:
        container, stream = open_stream(path, Limits(), threads=1, strict=False)
    except UserError:
        return None
    with container:
        return (stream.width, stream.height) if stream.width else None


def predict(classifier: Classifier, path: Path, options: Options, send: Send) -> dict[str, Any]:
    """What `Classifier.predict` says, with so many of the frames that the model saw."""
    send({"progress": {"done": 0, "total": 2 if options["frames"] else 1, "what": "classifying"}})
    found = classifier.predict(path, top_k=options["top_k"], views=options["views"])
    result = {"views": found.views, "top": found.to_json()["top"]}
    if options["scores"]:
        result["scores"] = found.scores_K.tolist()
    if not options["frames"]:
        return result
    send({"progress": {"done": 1, "total": 2, "what": "drawing the frames"}})
    return {**result, "frames": clip_frames(classifier, path, options["frames"])}


def clip_frames(classifier: Classifier, path: Path, count: int) -> list[dict[str, Any]]:
    """Frames of the first clip as the model sees them, with their times."""
    config = classifier.info.config
    with open_frames(path, config.clip, backend=config.data.backend, damaged=config.data.damaged) as frames:
        clip_CTHW = make_view_bytes(frames, config.clip, *parse_views("1x1"))[0]
        times_T = frames.timestamps[view_indices(frames, config.clip, 1)[0]]
    frames_THWC = clip_CTHW.permute(1, 2, 3, 0).numpy()
    return [
        {"time": round(float(times_T[t]), 3), "image": jpeg_url(frames_THWC[t])}
        for t in evenly_spaced(len(frames_THWC), count).tolist()
    ]


def timeline(classifier: Classifier, path: Path, options: Options, send: Send) -> dict[str, Any]:
    """What `Classifier.timeline` says: segments, and the probabilities of the classes that matter."""
    found = classifier.timeline(
        path, window=options["window"], stride=options["stride"], progress=_Progress(send, "reading along the video")
    )
    leading = np.asarray(found.scores_NK).max(0).argsort()[::-1][:TRACKS]
    tracks = [
        {"label": classifier.labels[k], "scores": [round(float(score), 4) for score in found.scores_NK[:, k]]}
        for k in leading.tolist()
    ]
    return {
        "seconds": found.seconds,
        "window": found.window,
        "stride": found.stride,
        "times": [round(float(time), 3) for time in found.times],
        "segments": [asdict(segment) for segment in found.segments],
        "tracks": tracks,
    }


def explanation(classifier: Classifier, path: Path, options: Options, send: Send) -> dict[str, Any]:
    """What `Classifier.explain` says: frames, the heat over them, and how concentrated every attention is."""
    send({"progress": {"done": 0, "total": 1, "what": "looking at the attention"}})
    found = classifier.explain(path, occlusion=None)
    if not found.heats:  # a model without attention of our kind; the occlusion takes a pass for each of its cells
        found = classifier.explain(path, progress=_Progress(send, "covering one place after the other"))
    send({"progress": {"done": 1, "total": 1, "what": "drawing"}})
    frames = [
        {"image": jpeg_url(frame_HWC), "overlay": png_url(overlay)}
        for frame_HWC, overlay in zip(found.frames_THWC, found.overlay_frames(), strict=True)
    ]
    return {
        "label": found.label,
        "probability": found.probability,
        "heat_of": found.heat_of,
        "frames": frames,
        "layers": [asdict(row) for row in found.table],
        "notes": list(found.notes),
    }


TASKS: dict[str, Callable[[Classifier, Path, Options, Send], dict[str, Any]]] = {
    "predict": predict,
    "timeline": timeline,
    "explain": explanation,
}


class _Progress:
    """A `Report` that sends a message, at most for every hundredth part."""

    def __init__(self, send: Send, what: str) -> None:
        self._send, self._what, self._sent = send, what, -1

    def __call__(self, done: int, total: int, what: str | None = None) -> None:
        self._what = what or self._what
        share = 100 * done // max(total, 1)
        if share != self._sent:
            self._sent = share
            self._send({"progress": {"done": done, "total": total, "what": self._what}})
