"""The "motions" set: generated videos in Something-Something V2's own layout, whose classes differ only in time order.

`labels/labels.json`, `labels/train.json`, `labels/validation.json` and `20bn-something-something-v2/<id>.webm`. Clip i
depends on (seed, i) alone, to the byte.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import av
import numpy as np

from fixformer.data.synthetic.scene import Scene, make_scene
from fixformer.errors import UserError
from fixformer.runtime.files import write_json
from fixformer.runtime.pools import processors, unordered_map
from fixformer.runtime.seeds import generator

VIDEOS = "20bn-something-something-v2"
# Something-Something has 12 fps; other rates and lengths make sure that a model cannot count on one.
RATES = (12, 15, 24, 25, 30)
SECONDS = (1.2, 2.8)
BATCH = 8  # clips that a process makes at a time
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
        clips: number of clips in both splits together.
        seed: of the random generator of every clip.
        val_fraction: share of the clips that are for validation.
        size: height and width, even numbers.
        workers: processes; as many as there are processors if None.
        progress: called with (done, total).
    """
    root = Path(dst)
    _check(root, clips, val_fraction, size)
    (root / VIDEOS).mkdir(parents=True)
    (root / "labels").mkdir()
    workers = workers if workers is not None else processors()
    jobs = [range(begin, min(begin + BATCH, clips)) for begin in range(0, clips, BATCH)]
    done = 0
    for job, _ in unordered_map(partial(_write_clips, root, seed, size), jobs, workers):
        done += len(job)
        if progress:
            progress(done, clips)
    _write_annotations(root, clips, val_fraction)
    return root


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
        raise UserError(f"{root} is not empty; choose a new directory.")
    if clips < 2 * len(TEMPLATES):
        raise UserError(f"clips={clips}: expected at least {2 * len(TEMPLATES)}, two for each class.")
    if not 0 < val_fraction < 1:
        raise UserError(f"val_fraction={val_fraction}: expected a value between 0 and 1.")
    if any(side % 2 or side < 32 for side in size):
        raise UserError(f"size={size}: expected even numbers of at least 32.")


def _write_clips(root: Path, seed: int, size: tuple[int, int], numbers: range) -> None:
    for number in numbers:
        scene, fps = make_clip(number, seed, size)
        encode(root / VIDEOS / f"{number + 1}.webm", [scene.render(i) for i in range(len(scene))], fps)


def encode(path: Path, frames: list[np.ndarray], fps: int) -> None:
    """A small VP8 file, the same bytes every time."""
    height, width, _ = frames[0].shape
    with av.open(str(path), "w", options={"fflags": "+bitexact"}) as container:
        # a negative speed is constant; a positive one adapts to the clock, so that a busy machine changes the bytes
        options = {"deadline": "realtime", "cpu-used": "-8", "threads": "1"}
        stream = container.add_stream("libvpx", rate=fps, options=options)
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = width, height, "yuv420p", 800_000
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())


def _write_annotations(root: Path, clips: int, val_fraction: float) -> None:
    """Every class is divided in the same proportion. labels.json comes last: with it the set is complete."""
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
