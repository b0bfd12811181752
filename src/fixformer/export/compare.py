"""How well an exported model agrees with PyTorch, and how fast each is, on clips of real videos.

Legend: T frames, H height, W width, C colours; in scores K classes.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from fixformer.data.clips.frames import open_frames
from fixformer.data.clips.indices import view_indices
from fixformer.data.clips.transforms import from_frames, normalise, view_crops
from fixformer.data.listing import UNLABELLED, ListingError, Sample
from fixformer.data.loading.from_config import index_of
from fixformer.data.synthetic import make_clip
from fixformer.data.synthetic.motions import encode
from fixformer.evaluation.predictor import Classifier
from fixformer.runtime.console import printable

Answer = Callable[[np.ndarray], np.ndarray]
"""Logits `[K]` of the frames `[T, H, W, 3]` of a clip."""

VIDEOS = 16  # that a model is compared on, if there are so many
TIMED = 5  # runs of each model, of which the fastest counts


@dataclass(frozen=True)
class Agreement:
    """What was compared, and what came out. Times are processor seconds of a clip from its bytes to its logits."""

    source: str
    videos: int
    largest_difference: float
    same_class: int
    seconds_pytorch: float
    seconds_exported: float
    threads: int

    @property
    def speedup(self) -> float:
        return self.seconds_pytorch / max(self.seconds_exported, 1e-9)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "speedup": self.speedup}

    def __str__(self) -> str:
        share = self.same_class / self.videos
        return (
            f"agreement with PyTorch on {self.videos} {self.source}: the same class for {self.same_class} "
            f"({share:.1%}), logits differ by {self.largest_difference:.2g} at most\n"
            f"processor time of a clip: {1000 * self.seconds_exported:.0f} ms, PyTorch "
            f"{1000 * self.seconds_pytorch:.0f} ms ({self.speedup:.2f} times as fast, {self.threads} threads)"
        )


def compare(pytorch: Answer, exported: Answer, clips: Sequence[np.ndarray], source: str) -> Agreement:
    """Both models on the same clips. They are timed in turns, so that another program slows down both."""
    pairs = [(pytorch(clip_THWC), exported(clip_THWC)) for clip_THWC in clips]
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(TIMED):
        for answer, own in zip((pytorch, exported), times, strict=True):
            begin = time.process_time()
            answer(clips[0])
            own.append(time.process_time() - begin)
    largest = max(float(np.abs(one - other).max()) for one, other in pairs)
    same = sum(int(one.argmax() == other.argmax()) for one, other in pairs)
    return Agreement(source, len(pairs), largest, same, min(times[0]), min(times[1]), torch.get_num_threads())


def pytorch_answer(classifier: Classifier) -> Answer:
    """The checkpoint itself, from the same frames, by the functions of `data/clips`."""
    spec, device = classifier.info.config.clip, classifier.device

    @torch.no_grad()
    def answer(clip_THWC: np.ndarray) -> np.ndarray:
        (view,) = view_crops(from_frames(clip_THWC), spec, 1)
        video_BCTHW = normalise(view.contiguous()[None], spec.mean, spec.std)
        return classifier.model(video_BCTHW.to(device))[0].float().cpu().numpy()

    return answer


def read_clip(classifier: Classifier, sample: Sample) -> np.ndarray:
    """The frames `[T, H, W, 3]` of the first view of a video."""
    data, spec = classifier.info.config.data, classifier.info.config.clip
    part: dict[str, Any] = {"start": sample.start, "end": sample.end}
    with open_frames(sample.path, spec, **part, backend=data.backend, damaged=data.damaged) as frames:
        return frames.get_frames(view_indices(frames, spec, 1)[0])


@contextmanager
def videos_for(
    classifier: Classifier, files: Sequence[str | Path], most: int = VIDEOS
) -> Iterator[tuple[list[Sample], str]]:
    """Videos to compare on, and what they are: those given, some of the checkpoint's data, or else generated ones."""
    if files:
        yield [Sample(str(file), UNLABELLED, "", str(file)) for file in files], "videos given"
        return
    data = classifier.info.config.data
    if data.path and os.path.exists(data.path):
        try:
            index = index_of(data)
            split = index.eval_split
        except ListingError:
            pass
        else:
            samples = index.split(split)
            picks = np.unique(np.linspace(0, len(samples) - 1, most).round().astype(int))
            yield [samples[i] for i in picks], f"{split} videos of {printable(Path(data.path).name)}"
            return
    with TemporaryDirectory(prefix="fixformer-") as folder:
        paths = [Path(folder) / f"{number}.webm" for number in range(4)]
        for number, path in enumerate(paths):
            scene, fps = make_clip(number, seed=0)
            encode(path, [scene.render(i) for i in range(len(scene))], fps)
        yield [Sample(str(path), UNLABELLED, "", path.name) for path in paths], "generated videos"
