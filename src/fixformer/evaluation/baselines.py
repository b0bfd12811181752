"""What a linear classifier scores on the same videos: on pixels, and on the features of an image network.

They say what a video model adds. On growing parts of the training videos, the better one also says whether more videos
would help. All of it takes a minute at most: on a large set only a part of the videos is used, and named.

Legend: N training videos, M scored videos, T frames, C channels, H rows, W columns.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from fixformer.config import ClipSpec
from fixformer.data.listing import Sample
from fixformer.data.loading import VideoReader
from fixformer.data.loading.datasets import TestVideos
from fixformer.data.loading.order import Visit
from fixformer.data.synthetic import ridge_scores, standardised_products
from fixformer.errors import MissingExtra
from fixformer.models.layers.lite0 import MEAN, STD, Lite0Features
from fixformer.models.weights.image_network import lite0_weights
from fixformer.runtime.progress import Report
from fixformer.runtime.seeds import generator
from fixformer.runtime.signals import NEVER_STOP, StopRequest

FRAMES, SIZE, STRIDE = 8, 128, 16
PIXEL_GRID, FEATURE_GRID = 16, 4  # cells along a side that pixels and features are averaged to
# A video takes 30 ms for its features at 3.7 ms a frame, and its decoding.
MOST_TRAIN, MOST_TEST = 1000, 500
TRAIN_SECONDS, TEST_SECONDS = 40.0, 20.0
PARTS, DRAWS = (1 / 8, 1 / 4, 1 / 2, 1.0), 5
WORTH = 0.02  # of accuracy: less is no reason to record videos

Extract = Callable[[Tensor], dict[str, np.ndarray]]


@dataclass(frozen=True)
class CurvePoint:
    """Accuracy with so many training videos: the mean, lowest and highest of several draws."""

    videos: int
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True)
class Baselines:
    """Accuracies of linear classifiers on the scored videos.

    Args:
        pixels, features: on pixels; on features of EfficientNet-Lite0, None without its weights.
        train_videos, test_videos: that were used, of `listed_train` and `listed_test`.
        curve: of the classifier on `curve_of`, over the number of training videos.
        more_videos: one sentence about the curve.
    """

    pixels: float
    features: float | None
    train_videos: int
    listed_train: int
    test_videos: int
    listed_test: int
    curve_of: str
    curve: list[CurvePoint]
    more_videos: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self, accuracy: float) -> Iterator[str]:
        """For the terminal and the report; `accuracy`: that of the model."""
        features = "" if self.features is None else f", on image features {self.features:.0%}"
        yield f"linear classifier on pixels {self.pixels:.0%}{features}, this model {accuracy:.0%}"
        yield from self.remarks()
        yield self.more_videos

    def remarks(self) -> Iterator[str]:
        """What limits the comparison."""
        if self.features is None:
            yield 'no image features to compare with; for these: pip install "fixformer[pretrained]"'
        if self.train_videos < self.listed_train or self.test_videos < self.listed_test:
            yield (
                f"the linear classifiers used {self.train_videos} of {self.listed_train} training videos and "
                f"{self.test_videos} of {self.listed_test} scored ones, to save time"
            )


def compute_baselines(
    train: list[Sample],
    test: list[Sample],
    classes: int,
    clip: ClipSpec,
    readers: tuple[VideoReader, VideoReader],
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: Report | None = None,
    stop: StopRequest = NEVER_STOP,
) -> Baselines | None:
    """The baselines of a run; None if its training or its scored videos cannot be read.

    Args:
        clip: of the run; its test view is used, at another length and size.
        readers: of the training and of the scored videos.
        seed: of the draws.
    """
    spec = replace(clip.at(frames=FRAMES, size=SIZE), sampling="uniform", short_video="repeat_last")
    extract, rng = _extractor(device), generator(seed, "baselines")
    orders = [_by_class_share(samples, rng)[:most] for samples, most in ((train, MOST_TRAIN), (test, MOST_TEST))]
    done, total = 0, sum(map(len, orders))

    def read(part: int, samples: list[Sample], seconds: float) -> tuple[dict[str, np.ndarray], np.ndarray]:
        nonlocal done
        videos, begin = TestVideos(samples, spec, reader=readers[part]), time.monotonic()
        rows: list[dict[str, np.ndarray]] = []
        labels: list[int] = []
        for number, index in enumerate(orders[part].tolist()):
            if stop:
                raise stop.interruption("stopped while computing baselines; resume with --resume.")
            if number >= classes and time.monotonic() - begin > seconds:  # the first are one of each class
                break
            item = videos.item(Visit(index))
            if item.views_VCTHW is not None:
                rows.append(extract(item.views_VCTHW[0]))
                labels.append(item.label)
            done += 1
            if progress:
                progress(done, total)
        return {name: np.stack([row[name] for row in rows]) for name in (rows[0] if rows else ())}, np.array(labels)

    x_new, y_new = read(1, test, TEST_SECONDS)
    x, y = read(0, train, TRAIN_SECONDS)
    if progress:
        progress(total, total)
    if len(y) < 2 or not len(y_new):
        return None
    products = {name: standardised_products(x[name], x_new[name]) for name in x}
    hits = {name: _hits(gram, cross, y, y_new, classes) for name, (gram, cross) in products.items()}
    curve_of = "image features" if "image features" in x else "pixels"
    curve, lost = learning_curve(*products[curve_of], y, y_new, classes, rng)
    return Baselines(
        pixels=float(hits["pixels"].mean()),
        features=float(hits["image features"].mean()) if "image features" in hits else None,
        train_videos=len(y),
        listed_train=len(train),
        test_videos=len(y_new),
        listed_test=len(test),
        curve_of=curve_of,
        curve=curve,
        more_videos=would_more_help(curve, lost, curve_of),
    )


def learning_curve(
    gram_NN: np.ndarray, cross_MN: np.ndarray, y: np.ndarray, y_new: np.ndarray, classes: int, rng: np.random.Generator
) -> tuple[list[CurvePoint], np.ndarray]:
    """Points for growing parts of every class, each draw's parts nested; and what half of the videos costs each of M.

    The cost is the hit rate of a scored video with all training videos less that with half of them.
    """
    hits: dict[int, list[np.ndarray]] = {}
    at_part: dict[float, list[np.ndarray]] = {}
    for _ in range(DRAWS):
        share_N = _class_shares(y, rng)
        for part in PARTS:
            chosen = np.flatnonzero(share_N < part)
            if len(chosen) == len(y) and len(y) in hits:  # all videos are the same in every draw
                found = hits[len(y)][0]
            else:
                found = _hits(gram_NN[np.ix_(chosen, chosen)], cross_MN[:, chosen], y[chosen], y_new, classes)
                hits.setdefault(len(chosen), []).append(found)
            at_part.setdefault(part, []).append(found)
    points = []
    for videos, draws in sorted(hits.items()):
        scores = [float(found.mean()) for found in draws]
        points.append(CurvePoint(videos, sum(scores) / len(scores), min(scores), max(scores)))
    return points, np.mean(at_part[1.0], 0) - np.mean(at_part[0.5], 0)


def would_more_help(curve: list[CurvePoint], lost_M: np.ndarray, what: str) -> str:
    """One sentence. Doubling the videos cannot be tried, halving them can."""
    cost, videos = float(lost_M.mean()), curve[-1].videos
    if len(curve) < 2:
        return f"{videos} training videos are too few to tell whether more would help; they usually do"
    error = 2 * float(lost_M.std()) / len(lost_M) ** 0.5
    said = f"with half of the {videos} training videos a linear classifier on {what} "
    points = f"{abs(100 * cost):.0f} point{'' if f'{abs(100 * cost):.0f}' == '1' else 's'}"
    said += f"loses {points}" if cost >= 0.005 else f"gains {points}" if cost <= -0.005 else "is as good"
    if cost >= WORTH and cost > error:
        return f"{said}: more videos would help"
    if cost + error < WORTH:
        return f"{said}: more videos of this kind would help little"
    return f"{said}: {len(lost_M)} scored videos are too few to tell whether more training videos would help"


def _hits(gram_NN: np.ndarray, cross_MN: np.ndarray, y: np.ndarray, y_new: np.ndarray, classes: int) -> np.ndarray:
    """`[M]`: whether each scored video is classified correctly."""
    return ridge_scores(gram_NN, cross_MN, y, classes).argmax(1) == y_new


def _class_shares(y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random share in [0, 1) for every video, evenly spread in each class: those below f are the part f of all."""
    share_N = np.empty(len(y))
    for label in np.unique(y):
        own = rng.permutation(np.flatnonzero(y == label))
        share_N[own] = np.arange(len(own)) / len(own)
    return share_N


def _by_class_share(samples: list[Sample], rng: np.random.Generator) -> np.ndarray:
    """The numbers of samples in an order of which every beginning has all classes in proportion."""
    return np.argsort(_class_shares(np.array([sample.label for sample in samples]), rng), kind="stable")


def _extractor(device: torch.device | str) -> Extract:
    """From the bytes of a clip to its rows of features, by name; without the image weights only pixels."""
    network: Lite0Features | None = Lite0Features(STRIDE).to(device).eval()
    try:
        weights = lite0_weights()
    except MissingExtra:
        network = None
    if network is not None:
        network.load_state_dict({name: weights[f"features.{name}"] for name in network.state_dict()})

    @torch.no_grad()
    def extract(clip_CTHW: Tensor) -> dict[str, np.ndarray]:
        pictures_TCHW = clip_CTHW.transpose(0, 1).float().div_(255)
        rows = {"pixels": adaptive_avg_pool2d(pictures_TCHW, PIXEL_GRID).flatten().numpy()}
        if network is not None:
            features = network(pictures_TCHW.to(device).sub_(MEAN).div_(STD))
            rows["image features"] = adaptive_avg_pool2d(features, FEATURE_GRID).flatten().cpu().numpy()
        return rows

    return extract
