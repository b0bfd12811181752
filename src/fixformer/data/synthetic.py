"""The "motions" set: generated videos in Something-Something V2's own layout, whose classes differ only in time order.

`labels/labels.json`, `labels/train.json`, `labels/validation.json` and `20bn-something-something-v2/<id>.webm`. Clip i
depends on (seed, i) alone, to the byte.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import av
import numpy as np

from fixformer.config import ClipSpec
from fixformer.data.cache import write_json
from fixformer.data.frames import open_frames
from fixformer.data.index_base import Index, Sample
from fixformer.data.parallel import unordered_map
from fixformer.data.sampling import evenly_spaced
from fixformer.data.seeds import generator
from fixformer.data.synthetic_scene import Scene, make_scene
from fixformer.errors import UserError

VIDEOS = "20bn-something-something-v2"
RATES = (12, 15, 24, 25, 30)
SECONDS = (1.2, 2.8)
# kind of scene, template played forwards, template played backwards
PAIRS = (
    ("left", "Moving [something] left", "Moving [something] right"),
    ("up", "Moving [something] up", "Moving [something] down"),
    ("approach", "[Something] approaching the camera", "[Something] receding from the camera"),
    ("clockwise", "Turning [something] clockwise", "Turning [something] counter-clockwise"),
    ("appear", "[Something] appearing", "[Something] vanishing"),
    ("cover", "Covering [something] with [something]", "Uncovering [something] by moving [something]"),
)
TEMPLATES = tuple(template for _, forwards, backwards in PAIRS for template in (forwards, backwards))


@dataclass(frozen=True)
class Probe:
    """A linear classifier's accuracy on held-out clips, against chance."""

    accuracy: float
    chance: float
    clips: int


def motion_labels() -> list[str]:
    return [template.replace("[", "").replace("]", "") for template in TEMPLATES]


def make_motions(
    dst: str | Path,
    clips: int = 600,
    seed: int = 0,
    *,
    val_fraction: float = 0.25,
    size: tuple[int, int] = (96, 128),
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write the set to `dst` and return it. Classes are equally frequent in both splits.

    Args:
        dst: a new or empty directory.
        clips: in all.
        seed: of everything.
        val_fraction: share of the clips that are for validation.
        size: height and width, even numbers.
        workers: processes; as many as there are processors if None.
        progress: called with (done, all).
    """
    root = Path(dst)
    _check(root, clips, val_fraction, size)
    (root / VIDEOS).mkdir(parents=True)
    (root / "labels").mkdir()
    workers = workers if workers is not None else _processors()
    jobs = [range(begin, min(begin + 8, clips)) for begin in range(0, clips, 8)]
    done = 0
    for job, _ in unordered_map(partial(_write_clips, root, seed, size), jobs, workers):
        done += len(job)
        if progress:
            progress(done, clips)
    _write_annotations(root, clips, val_fraction)
    return root


def _processors() -> int:
    """Those this process may use, where the system tells (macOS and Windows do not)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def make_clip(number: int, seed: int, size: tuple[int, int] = (96, 128)) -> tuple[Scene, int]:
    """The scene of clip `number`, whose class is `number` modulo the number of classes, and its frame rate."""
    rng = generator(seed, number, "motions")
    fps = int(RATES[rng.integers(len(RATES))])
    frames = round(fps * rng.uniform(*SECONDS))
    kind, backwards = PAIRS[number % len(TEMPLATES) // 2][0], number % 2 == 1
    scene = make_scene(kind, frames, *size, rng)
    return scene.reversed() if backwards else scene, fps


def _check(root: Path, clips: int, val_fraction: float, size: tuple[int, int]) -> None:
    if root.exists() and any(root.iterdir()):
        raise UserError(f"{root} is not empty; name a new directory.")
    if clips < 2 * len(TEMPLATES):
        raise UserError(f"clips={clips}: at least {2 * len(TEMPLATES)} are needed, two for each of the classes.")
    if not 0 < val_fraction < 1:
        raise UserError(f"val_fraction={val_fraction}: between 0 and 1 is needed.")
    if any(side % 2 or side < 32 for side in size):
        raise UserError(f"size={size}: even numbers of at least 32 are needed.")


def _write_clips(root: Path, seed: int, size: tuple[int, int], numbers: range) -> None:
    for number in numbers:
        scene, fps = make_clip(number, seed, size)
        encode(root / VIDEOS / f"{number + 1}.webm", [scene.render(i) for i in range(len(scene))], fps)


def encode(path: Path, frames: list[np.ndarray], fps: int) -> None:
    """A small VP8 file, the same bytes every time."""
    height, width, _ = frames[0].shape
    with av.open(str(path), "w", options={"fflags": "+bitexact"}) as container:
        # negative: always this speed; positive lets the encoder watch the clock, and a busy machine changes the bytes
        options = {"deadline": "realtime", "cpu-used": "-8", "threads": "1"}
        stream = container.add_stream("libvpx", rate=fps, options=options)
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = width, height, "yuv420p", 800_000
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())


def _write_annotations(root: Path, clips: int, val_fraction: float) -> None:
    """Every class is divided in the same proportion; the labels come last, since they make the set recognisable."""
    per_class = clips // len(TEMPLATES)
    held_out = min(max(round(per_class * val_fraction), 1), per_class - 1)
    rows: dict[str, list[dict[str, object]]] = {"train": [], "validation": []}
    for number in range(clips):
        template = TEMPLATES[number % len(TEMPLATES)]
        split = "validation" if number // len(TEMPLATES) < held_out else "train"
        things = ["a thing"] * template.count("[")
        text = template.lower().replace("[something]", "a thing")
        rows[split].append({"id": str(number + 1), "label": text, "template": template, "placeholders": things})
    for split, content in rows.items():
        write_json(root / "labels" / f"{split}.json", content)
    write_json(root / "labels" / "labels.json", {name: str(i) for i, name in enumerate(motion_labels())})


def frame_probe(index: Index, *, frames: int = 1, side: int = 24) -> Probe:
    """What a linear classifier makes of `frames` evenly spaced frames (1: the middle one), pixels and edges.

    With several frames the features are how each differs from the middle one, so a set whose classes are visible only
    in the order of frames scores at chance for one frame and above it for five.
    """
    train, held_out = index.split("train"), index.split(index.eval_split)
    x, x_new = (np.stack([_features(s, frames, side) for s in part]) for part in (train, held_out))
    y, y_new = (np.array([s.label for s in part]) for part in (train, held_out))
    return linear_probe(x, y, x_new, y_new)


def linear_probe(x: np.ndarray, y: np.ndarray, x_new: np.ndarray, y_new: np.ndarray) -> Probe:
    """Ridge regression to one-hot labels, in its dual form (more features than clips)."""
    mean, spread = x.mean(0), x.std(0) + 1e-6
    x, x_new = (x - mean) / spread, (x_new - mean) / spread
    classes = int(max(y.max(), y_new.max())) + 1
    target = np.eye(classes)[y] - 1 / classes
    gram = x @ x.T
    weights = np.linalg.solve(gram + 0.3 * np.trace(gram) / len(gram) * np.eye(len(gram)), target)
    guess = (x_new @ x.T @ weights).argmax(1)
    return Probe(float((guess == y_new).mean()), 1 / classes, len(y_new))


def picture_features(pictures: np.ndarray, side: int) -> np.ndarray:
    """Features of `[T, H, W, 3]` pictures in about `side` rows: of one itself, of more the change from the middle."""
    step = max(1, pictures.shape[1] // side)
    small = _box_reduce(pictures, step)
    if len(small) > 1:
        small = np.abs(np.delete(small, len(small) // 2, 0) - small[len(small) // 2])
        return small.ravel()
    edges = np.abs(np.diff(small, axis=1))[:, :, :-1] + np.abs(np.diff(small, axis=2))[:, :-1]
    return np.concatenate([small.ravel(), edges.ravel()])


def _box_reduce(pictures: np.ndarray, step: int) -> np.ndarray:
    count, height, width, _ = pictures.shape
    rows, columns = height // step, width // step
    cut = pictures[:, : rows * step, : columns * step].astype(np.float32)
    return cut.reshape(count, rows, step, columns, step, 3).mean(axis=(2, 4))


def _features(sample: Sample, frames: int, side: int) -> np.ndarray:
    with open_frames(sample.path, ClipSpec()) as source:
        n = len(source)
        chosen = evenly_spaced(n, frames) if frames > 1 else [n // 2]
        return picture_features(source.get_frames(chosen), side)
