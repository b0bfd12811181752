"""The training loop. All randomness follows from (seed, step, index in the batch), so a run can resume at any step.

Legend: B clips of this process, C colours, T frames, H height, W width, K classes.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fixformer.config import Augment, ClipSpec, Stage
from fixformer.config.schema import PositiveInt, coerce, load
from fixformer.data.clips.mixing import Mixed, mix_batch, soft_targets
from fixformer.data.listing import Index
from fixformer.data.listing.durations import typical_seconds
from fixformer.data.loading import VideoReader, train_loader
from fixformer.data.loading.datasets import TrainBatch
from fixformer.data.loading.from_config import training_order
from fixformer.data.loading.loaders import TrainLoader
from fixformer.errors import Interrupted, NotFinite, UserError
from fixformer.evaluation.metrics import compute_metrics
from fixformer.evaluation.scoring import require_scores, score_split
from fixformer.models.checkpoint import CheckpointError, CheckpointInfo
from fixformer.models.layers.noise import share_of_batch
from fixformer.runtime.distributed import World
from fixformer.runtime.provenance import source_commit, versions
from fixformer.runtime.seeds import generator
from fixformer.runtime.signals import StopRequest
from fixformer.training.checkpoint_store import CheckpointStore, Snapshot
from fixformer.training.display import Display
from fixformer.training.frozen_features import FeatureBatch, FrozenFeatures, FrozenLoader
from fixformer.training.learner import Learner
from fixformer.training.log import RunLog
from fixformer.training.loss import soft_cross_entropy
from fixformer.training.meter import Meter
from fixformer.training.optim import set_rate
from fixformer.training.run_record import RunRecord
from fixformer.training.schedule import phase_rate


@dataclass
class Position:
    """How far a run is.

    Args:
        epoch, batch: completed epochs, and completed batches of the current one.
        step: completed steps of the whole run.
        seconds: time spent so far.
        unscored: the epoch that just ended has not been evaluated yet.
        best: the highest validation accuracy so far.
        metrics: the last evaluation.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    seconds: float = 0.0
    unscored: bool = False
    best: float = -1.0
    metrics: dict[str, Any] = field(default_factory=dict)


class Trainer:
    """One run on one process, from its current position to its end.

    `features`, of the frozen image network, are what the first `frozen_epochs` are trained on.
    """

    def __init__(
        self,
        record: RunRecord,
        index: Index,
        learner: Learner,
        readers: dict[str, VideoReader],
        *,
        world: World,
        display: Display,
        stop: StopRequest,
        features: FrozenFeatures | None = None,
    ) -> None:
        self.features = features
        self.record, self.config = record, record.config
        self.index, self.learner, self.readers = index, learner, readers
        self.world, self.display, self.stop = world, display, stop
        self.position = Position()
        self.store = CheckpointStore(Path(self.config.output), self.config.save.keep)
        self.meter = Meter()
        self._saved_at = time.monotonic()
        self._log: RunLog | None = None
        self._loader: tuple[Stage, bool, TrainLoader | FrozenLoader] | None = None

    def resume(self, info: CheckpointInfo, state: dict[str, Any]) -> None:
        """Continue from a checkpoint's `config.json` and `train.json`; its tensors are restored by the learner."""
        # checkpoints of format 1 have step and metrics in both files
        try:
            values = {"step": info.step, "metrics": info.metrics, **coerce(state.get("position"), dict, "position")}
            self.position, stored_steps = load(Position, values), coerce(state.get("steps"), PositiveInt, "steps")
        except UserError as error:
            raise CheckpointError(f"train.json of step {info.step} is damaged: {error}") from None
        steps = self.loader().steps
        if stored_steps != steps and self.position.batch:  # forked with another batch size
            self.position.batch = self.position.batch * steps // stored_steps

    def run(self) -> None:
        """Train to the end, or until a signal asks to stop."""
        position = self.position
        if self.world.is_main:
            self._log = RunLog(Path(self.config.output), from_step=position.step, unscored=position.unscored)
        self.display.begin(self._total_steps(), position.step)
        self._started = time.monotonic() - position.seconds
        try:
            while position.epoch < self.config.epochs or position.unscored:
                if position.unscored:
                    self._finish_epoch()
                else:
                    self._run_epoch()
        finally:
            self.display.close()
            if self._log is not None:
                self._log.close()

    def _total_steps(self) -> int:
        """Steps done, in a forked run perhaps with another batch size, plus those to come."""
        videos = len(self.index.split("train"))
        epochs = range(self.position.epoch, self.config.epochs)
        return self.position.step - self.position.batch + sum(videos // self._batch_size(epoch) for epoch in epochs)

    def _batch_size(self, epoch: int) -> int:
        return self.config.stage_of(epoch).batch_size or self.config.batch_size

    def _clip_of(self, epoch: int) -> ClipSpec:
        stage = self.config.stage_of(epoch)
        return self.config.clip.at(frames=stage.frames, size=stage.size)

    @property
    def _current_epoch(self) -> int:
        """The epoch being trained; the last one when all are done."""
        return min(self.position.epoch, self.config.epochs - 1)

    def loader(self) -> TrainLoader | FrozenLoader:
        """The loader of the current stage or phase; its workers live as long as that."""
        epoch = self._current_epoch
        stage, is_frozen = self.config.stage_of(epoch), epoch < self.config.frozen_epochs
        if self._loader is None or self._loader[:2] != (stage, is_frozen):
            options = {"batch_size": self._batch_size(epoch), "seed": self.config.seed}
            loader: TrainLoader | FrozenLoader
            if is_frozen:
                assert self.features is not None
                order = training_order(self.index.split("train"), self.config.data)
                loader = FrozenLoader(self.features, order, **options, rank=self.world.rank, world=self.world.size)
            else:
                loader = train_loader(
                    self.index.split("train"),
                    self._clip_of(epoch),
                    self.config.data,
                    reader=self.readers["train"],
                    **options,
                    **self.world.loader_options(),
                )
            self._loader = (stage, is_frozen, loader)
        return self._loader[2]

    def _run_epoch(self) -> None:
        """The remaining batches of an epoch; saves and logs in between."""
        position, save = self.position, self.config.save
        loader, batch_size = self.loader(), self._batch_size(self.position.epoch)
        self.learner.freeze_stem(position.epoch < self.config.frozen_epochs)
        self.learner.model.train()
        batches: Iterator[TrainBatch | FeatureBatch] = loader.epoch(position.epoch, position.batch)
        for batch in self.meter.timed(batches):
            epoch = position.epoch + position.batch / loader.steps
            rate = phase_rate(self.config.optim, self.config.epochs, self.config.frozen_epochs, epoch)
            set_rate(self.learner.optimiser, rate)
            self.meter.add(self.train_step(batch), batch.index_B, batch_size)
            position.step += 1
            position.batch += 1
            if position.batch == loader.steps:
                position.epoch, position.batch, position.unscored = position.epoch + 1, 0, True
            self._log_problems(batch)
            by_steps = save.steps is not None and position.step % save.steps == 0
            by_time = self.world.is_main and time.monotonic() - self._saved_at > 60 * save.minutes
            stop, due = self.world.any(bool(self.stop), by_steps or by_time)
            if stop or due or position.unscored or position.step % self.config.log_steps == 0:
                self._log_step(epoch, rate)
            if stop or due:
                self._save()
            if stop:
                raise self.stop.interruption(f"stopped and saved at step {position.step}; resume with --resume.")

    def train_step(self, batch: TrainBatch | FeatureBatch) -> Tensor:
        """One update; returns the mean loss of this process."""
        step, device, seed = self.position.step, self.world.device, self.config.seed
        mixed = self._mixed(batch, generator(seed, step, "mix"))
        targets_BK = soft_targets(mixed, len(self.index.labels), self.config.smoothing)
        total = torch.zeros((), device=device)
        count = len(targets_BK)
        first = self.world.rank * count  # index of this process's first clip in the global batch
        micro_batch = self.config.micro_batch or count
        for start in range(0, count, micro_batch):
            stop = min(start + micro_batch, count)
            # Dropout depends on the step and the index in the global batch, not on the process or the micro-batch.
            torch.manual_seed(int(generator(seed, step, "dropout").integers(2**62)))
            noise = share_of_batch(first + start, first + stop, self.world.size * count, device)
            with noise, self.learner.accumulating(stop == count):
                with self.learner.autocast():
                    logits_BK = self.learner.forward(mixed.video_BCTHW[start:stop])
                loss = soft_cross_entropy(logits_BK, targets_BK[start:stop]) * (len(logits_BK) / count)
                self.learner.scaler.scale(loss).backward()
            total += loss.detach()
        self.learner.apply_gradients(step)
        return total

    def _mixed(self, batch: TrainBatch | FeatureBatch, rng: np.random.Generator) -> Mixed:
        """The clips of a batch with mixup and cutmix, which mix pixels: features stay as they are."""
        clip, labels_B = self._clip_of(self._current_epoch), batch.labels_B.to(self.world.device)
        if isinstance(batch, FeatureBatch):
            return mix_batch(batch.features_BTHWC, labels_B, Augment(), rng)
        return mix_batch(batch.inputs(clip, self.world.device), labels_B, clip.augment, rng)

    def _log_step(self, epoch: float, rate: float) -> None:
        bad = self.meter.first_not_finite()
        samples = self.index.split("train")
        own = None if bad is None else [samples[i].path for i in bad.tolist()]
        files = next((paths for paths in self.world.all_gather(own) if paths), None)
        if files:
            raise NotFinite(
                f"the loss became NaN or infinite near step {self.position.step}, in the batch of {', '.join(files)}; "
                "lower lr, set clip_norm or check these files, then continue from the last checkpoint with --resume "
                "--fork."
            )
        self._write_row("step", epoch=round(epoch, 6), lr=rate, seconds=self._seconds(), **self.meter.row(self.world))

    def _log_problems(self, batch: TrainBatch | FeatureBatch) -> None:
        for problem in batch.problems:
            if self._log is not None:
                self._log.write("problem", self.position.step, **asdict(problem))
            self.display.note(f"{problem.path} is unreadable, using {problem.replaced_by} instead: {problem.message}")

    def _write_row(self, kind: str, **values: Any) -> None:
        if self._log is not None:
            self.display.row(self._log.write(kind, self.position.step, **values))

    def _finish_epoch(self) -> None:
        """Evaluate and save at the end of an epoch, if one is due."""
        every, done = self.config.eval.every, self.position.epoch == self.config.epochs
        if done or (every and self.position.epoch % every == 0):
            try:
                is_best = self._evaluate()
            except (Interrupted, UserError):  # the epoch itself is not lost
                self._save()
                raise
            self.position.unscored = False
            self._save(is_best)
        self.position.unscored = False

    def _evaluate(self) -> bool:
        """Score one centre view of every validation video, at the clip size of the epoch; true if it is the best."""
        position, split = self.position, self.index.eval_split
        samples, missing = self.index.split(split), self.index.missing_in(split)
        with self.learner.averaged():
            scores = score_split(
                self.learner.model,
                samples,
                self._clip_of(position.epoch - 1),
                self.config.eval,
                self.config.data,
                reader=self.readers[split],
                views="1x1",
                world=self.world,
                progress=self.display.scoring(),
                stop=self.stop,
            )
        require_scores(scores, split)
        metrics = compute_metrics(scores)
        counts = {"scored": len(scores), "listed": len(samples) + len(missing)}
        position.metrics = {**asdict(metrics), **counts, "split": split, "views": "1x1", "epoch": position.epoch}
        self._write_row("eval", seconds=self._seconds(), **position.metrics)
        is_best = metrics.video_top1 > position.best
        position.best = max(position.best, metrics.video_top1)
        return is_best

    def _seconds(self) -> float:
        return round(time.monotonic() - self._started, 3)

    def _save(self, best: bool = False) -> None:
        """Write a checkpoint; a collective call. Weights that are not finite are an error: one cannot resume there."""
        self.position.seconds = self._seconds()
        weights, tensors = self.learner.tensors()
        bad = next((name for name, value in weights.items() if not value.isfinite().all()), None)
        if bad:
            raise NotFinite(
                f"the weights {bad} became NaN or infinite; step {self.position.step} is not saved. Lower lr or set "
                "clip_norm, then continue from the last checkpoint with --resume --fork."
            )
        in_config = ("step", "metrics")  # the same in `info`
        state = {
            "position": {name: value for name, value in asdict(self.position).items() if name not in in_config},
            "steps": self.loader().steps,
            "scaler": self.learner.scaler.state_dict(),
            **self.record.state(),
        }
        snapshot = Snapshot(self.info(), weights, tensors, state)
        self.world.on_main_process(lambda: self.store.write(snapshot, best=best))
        self._saved_at = time.monotonic()

    def info(self) -> CheckpointInfo:
        """The `config.json` of a checkpoint at this position."""
        position = self.position
        return CheckpointInfo(
            self.config,
            self.index.labels,
            metrics=position.metrics,
            step=position.step,
            epoch=position.epoch + position.batch / self.loader().steps,
            versions=versions(),
            commit=source_commit(),
            video_seconds=self._video_seconds,
        )

    @cached_property
    def _video_seconds(self) -> float | None:
        """The window of timelines; not for shards that a command reads, which would have to be fetched."""
        return typical_seconds(self.index.split("train")) if self.config.data.location is None else None
