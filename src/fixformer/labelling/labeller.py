"""`Labeller.label_rows`: rows of videos in, the same rows with their labels out. Both engines run this, nothing else.

Decoding processes fill slots; full batches are taken from them, whichever videos they are of, and run through the
model in threads. On a CPU several batches run at once, each in one thread: no thread waits for another of its batch
while a decoder has the processor. Every GPU has a copy of the model and a thread of its own.

Legend: B videos, V views, K classes, D width of the features, C colours, T frames, H height, W width.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from math import prod
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

import fixformer
from fixformer.config import parse_views
from fixformer.config.data import Workers
from fixformer.config.eval import BatchSize, Views
from fixformer.config.schema import PositiveInt, Settings, Threads
from fixformer.config.train import Device
from fixformer.data.clips.transforms import normalise
from fixformer.evaluation.evaluate import override_eval
from fixformer.evaluation.scores import NOT_FINITE, have_finite_scores, probabilities
from fixformer.labelling.decoding import Decoded, DecodingPool, Failure, Row, ViewReader
from fixformer.models.base import VideoModel
from fixformer.models.checkpoint import CheckpointInfo, load_model
from fixformer.models.cost import require_forward_memory
from fixformer.runtime.distributed import choose_device
from fixformer.runtime.pools import affordable_workers


@dataclass(frozen=True)
class LabelSettings(Settings):
    """What a label is, and how it is computed; `RESULT` names the settings that change the rows.

    Args:
        checkpoint: where the model is.
        views: CLIPSxCROPS; by default the recipe's.
        top_k: how many of the best classes a row lists.
        logits: also give the logit of every class, averaged over the views.
        features: also give the input of the model's last layer, averaged over the views.
        batch_size: videos at a time.
        workers: decoding processes; 0 decodes between the batches.
        threads: batches at a time on a CPU.
        device: auto takes all GPUs there are, otherwise the CPU.
    """

    checkpoint: str
    views: Views | None = None
    top_k: PositiveInt = 5
    logits: bool = False
    features: bool = False
    batch_size: BatchSize = 4
    workers: Workers = 1
    threads: Threads = 1
    device: Device = "auto"


RESULT = ("views", "top_k", "logits", "features")


class Labeller:
    """A model, ready to label; use it in a `with`, at whose end its processes end.

    Args:
        model: the checkpoint, if it has been read already.
        digest: identifies the checkpoint in every row.
    """

    def __init__(
        self, settings: LabelSettings, digest: str, model: tuple[VideoModel, CheckpointInfo] | None = None
    ) -> None:
        network, self.info = model or load_model(settings.checkpoint)
        self.settings, self.digest = settings, digest
        self.config = override_eval(self.info.config.eval, views=settings.views)
        views = parse_views(self.config.views)
        self._devices = _devices(settings.device)
        on_cpu = self._devices[0].type == "cpu"
        self._threads = settings.threads if on_cpu else len(self._devices)
        if on_cpu:
            what = f"views={self.config.views}, batch_size={settings.batch_size}, threads={self._threads}"
            require_forward_memory(network, prod(views) * settings.batch_size * self._threads, what)
        reader = ViewReader(self.info.config.clip, *views, self.info.config.data)
        workers = affordable_workers(settings.workers)
        # one batch is being filled, one waits for the model, and every process reads into a slot
        self._pool = DecodingPool(reader, workers=workers, slots=2 * settings.batch_size + max(1, workers))
        self._torch_threads = torch.get_num_threads()
        torch.set_num_threads(1)  # new threads take it over
        self._models: SimpleQueue[tuple[VideoModel, torch.device]] = SimpleQueue()
        for number in range(self._threads):
            device = self._devices[number % len(self._devices)]
            own = network if on_cpu or number == 0 else deepcopy(network)
            self._models.put((own.to(device).eval(), device))
        self._executor = ThreadPoolExecutor(self._threads, "model", torch.set_num_threads, (1,))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.close()
        self._executor.shutdown(cancel_futures=True)
        torch.set_num_threads(self._torch_threads)

    def label_rows(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Every row once, as it is ready: with its label, or with the reason why it has none."""
        batch: list[Decoded] = []
        running: deque[Future[list[Row]]] = deque()
        for decoded in self._pool.decode(rows):
            if decoded.failure:
                yield self._result(decoded.row, failure=decoded.failure)
                continue
            batch.append(decoded)
            if len(batch) == self.settings.batch_size:
                running.append(self._executor.submit(self._run, batch))
                batch = []
            while running and (running[0].done() or len(running) > self._threads):
                yield from running.popleft().result()
        if batch:
            running.append(self._executor.submit(self._run, batch))
        while running:
            yield from running.popleft().result()

    @torch.inference_mode()
    def _run(self, batch: list[Decoded]) -> list[Row]:
        """One batch through a model that is free."""
        model, device = self._models.get()
        try:
            views_BVCTHW = self._pool.views_SVCTHW[[one.slot for one in batch]]
            for one in batch:
                self._pool.release(one.slot)
            logits_BVK, features_BD = self.logits(model, views_BVCTHW.to(device))
        finally:
            self._models.put((model, device))
        return self._rows(batch, logits_BVK, features_BD)

    def logits(self, model: VideoModel, views_BVCTHW: Tensor) -> tuple[Tensor, Tensor | None]:
        """`logits_BVK` of views as bytes, and `features_BD` if they are wanted."""
        clip = self.info.config.clip
        tokens = model.forward_features(normalise(views_BVCTHW.flatten(0, 1), clip.mean, clip.std))
        per_video = (-1, views_BVCTHW.shape[1])
        logits_BVK = model.forward_head(tokens).float().unflatten(0, per_video).cpu()
        if not self.settings.features:
            return logits_BVK, None
        features_BVD = model.forward_head(tokens, pre_logits=True).float().unflatten(0, per_video)
        return logits_BVK, features_BVD.mean(1).cpu()

    def _rows(self, batch: list[Decoded], logits_BVK: Tensor, features_BD: Tensor | None) -> list[Row]:
        good_B = have_finite_scores(logits_BVK).tolist()
        best = probabilities(logits_BVK, self.config.aggregate).topk(min(self.settings.top_k, len(self.info.labels)))
        found = []
        for i, one in enumerate(batch):
            if not good_B[i]:
                found.append(self._result(one.row, seconds=one.seconds, failure=Failure("not_finite", NOT_FINITE)))
                continue
            values: Row = {"seconds": one.seconds}
            values["top_labels"] = [self.info.labels[number] for number in best.indices[i].tolist()]
            values["top_probabilities"] = best.values[i].tolist()
            if self.settings.logits:
                values["logits"] = logits_BVK[i].mean(0).tolist()
            if features_BD is not None:
                values["features"] = features_BD[i].tolist()
            found.append(self._result(one.row, **values))
        return found

    def _result(self, row: Row, *, failure: Failure | None = None, **values: Any) -> Row:
        """The row as it is written."""
        labels, shares = values.get("top_labels") or [None], values.get("top_probabilities") or [None]
        outcome = failure or Failure("ok", "")
        return {
            **row,
            "status": outcome.status,
            "error": outcome.error or None,
            "label": labels[0],
            "probability": shares[0],
            **values,
            "model": self.digest,
            "fixformer": fixformer.__version__,
        }


def _devices(name: str) -> list[torch.device]:
    """The devices a setting means; "auto" and "cuda" are all GPUs."""
    first = choose_device(name, 0)
    if first.type == "cpu" or name.startswith("cuda:"):
        return [first]
    return [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
