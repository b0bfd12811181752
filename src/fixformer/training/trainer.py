"""The training loop. Everything random follows from (seed, step, place in the batch), so a run can go on anywhere.

Legend: B clips of this process, C colours, T frames, H height, W width, K classes.
"""

import time
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fixformer.config import ClipSpec, Stage, TrainConfig
from fixformer.config.schema import dump
from fixformer.data.clips.mixing import mix_batch, soft_targets
from fixformer.data.listing import Index
from fixformer.data.loading import VideoReader, train_loader
from fixformer.data.loading.datasets import TrainBatch
from fixformer.data.loading.loaders import TrainLoader
from fixformer.errors import NotFinite, Stopped
from fixformer.evaluation.metrics import compute_metrics
from fixformer.evaluation.scoring import score_split
from fixformer.models.checkpoint import CheckpointInfo
from fixformer.models.layers.noise import share_of_batch
from fixformer.runtime.distributed import World
from fixformer.runtime.provenance import source_commit, versions
from fixformer.runtime.seeds import generator
from fixformer.runtime.signals import StopRequest
from fixformer.training.checkpoint_store import Saves, Snapshot
from fixformer.training.display import Display
from fixformer.training.learner import Learner, model_settings
from fixformer.training.log import RunLog
from fixformer.training.loss import soft_cross_entropy
from fixformer.training.meter import Meter
from fixformer.training.optim import set_rate
from fixformer.training.schedule import learning_rate


@dataclass
class Position:
    """Where a run is: `batch` batches of `epoch` are done, `step` in all. `unscored`: an epoch awaits evaluation."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    seconds: float = 0.0
    unscored: bool = False
    best: float = -1.0
    metrics: dict[str, Any] = field(default_factory=dict)


class Trainer:
    """One run on one process, from wherever it stands to its end."""

    def __init__(
        self,
        config: TrainConfig,
        index: Index,
        learner: Learner,
        readers: dict[str, VideoReader],
        *,
        world: World,
        display: Display,
        stop: StopRequest,
    ) -> None:
        self.config, self.index, self.learner, self.readers = config, index, learner, readers
        self.world, self.display, self.stop = world, display, stop
        self.at = Position()
        self.saves = Saves(Path(config.output), config.save.keep)
        self.meter = Meter()
        self._saved_at = time.monotonic()
        self._log: RunLog | None = None
        self._loader: tuple[Stage, TrainLoader] | None = None

    def go_on(self, state: dict[str, Any]) -> None:
        """From where a checkpoint of this run stands; its tensors are the learner's."""
        self.at = Position(**state["position"])
        if state["steps"] != self.loader().steps and self.at.batch:  # a forked run with another batch size
            self.at.batch = self.at.batch * self.loader().steps // state["steps"]

    def run(self) -> None:
        """Train to the end, or until asked to stop."""
        if self.world.is_main:
            self._log = RunLog(Path(self.config.output), from_step=self.at.step, unscored=self.at.unscored)
        self.display.begin(self.total_steps(), self.at.step)
        self._clock = time.monotonic() - self.at.seconds
        try:
            while self.at.epoch < self.config.epochs or self.at.unscored:
                if self.at.unscored:
                    self._finish_epoch()
                else:
                    self._run_epoch()
        finally:
            self.display.close()
            if self._log is not None:
                self._log.close()

    def total_steps(self) -> int:
        """Those done, in a forked run perhaps with another batch size, and those to come."""
        samples = len(self.index.split("train"))
        whole = sum(samples // self._stage(epoch)[1] for epoch in range(self.at.epoch, self.config.epochs))
        return self.at.step + whole - self.at.batch

    def _stage(self, epoch: int) -> tuple[Stage, int]:
        stage = self.config.stage_of(epoch)
        assert stage.batch_size is not None
        return stage, stage.batch_size

    def spec(self) -> ClipSpec:
        """The clip of the epoch at hand."""
        stage, _ = self._stage(min(self.at.epoch, self.config.epochs - 1))
        return self.config.clip.at(frames=stage.frames, size=stage.size)

    def loader(self) -> TrainLoader:
        """Of the stage at hand; workers are kept as long as it lasts."""
        stage, batch_size = self._stage(min(self.at.epoch, self.config.epochs - 1))
        if self._loader is None or self._loader[0] != stage:
            self._loader = (stage, self._make_loader(batch_size))
        return self._loader[1]

    def _make_loader(self, batch_size: int) -> TrainLoader:
        return train_loader(
            self.index.split("train"),
            self.spec(),
            self.config.data,
            batch_size=batch_size,
            seed=self.config.seed,
            reader=self.readers["train"],
            **self.world.place(),
        )

    def _run_epoch(self) -> None:
        loader = self.loader()
        _, batch_size = self._stage(self.at.epoch)
        self.learner.model.train()
        for batch in self.meter.timed(loader.epoch(self.at.epoch, self.at.batch)):
            fraction = self.at.epoch + self.at.batch / loader.steps
            rate = learning_rate(self.config.optim, self.config.epochs, fraction)
            set_rate(self.learner.optimiser, rate)
            self.meter.add(self.train_step(batch), batch.index_B, batch_size)
            self._advance(loader.steps)
            self._note_problems(batch)
            self._after_step(fraction, rate)

    def train_step(self, batch: TrainBatch) -> Tensor:
        """One update; returns this process's mean loss."""
        video_BCTHW, targets_BK = self._inputs(batch)
        total = torch.zeros((), device=self.world.device)
        count = len(targets_BK)
        micro = self.config.micro_batch or count
        for start in range(0, count, micro):
            stop = min(start + micro, count)
            part = slice(start, stop)
            self._seed()
            with self._share(part, count), self.learner.accumulating(stop == count):
                with self.learner.autocast():
                    logits_BK = self.learner.forward(video_BCTHW[part])
                loss = soft_cross_entropy(logits_BK, targets_BK[part]) * (len(logits_BK) / count)
                self.learner.scaler.scale(loss).backward()
            total += loss.detach()
        self.learner.apply_gradients(self.at.step)
        return total

    def _inputs(self, batch: TrainBatch) -> tuple[Tensor, Tensor]:
        """Normalised, mixed clips on the device and their soft targets."""
        spec = self.spec()
        labels_B = batch.labels_B.to(self.world.device)
        rng = generator(self.config.seed, self.at.step, "mix")
        mixed = mix_batch(batch.inputs(spec, self.world.device), labels_B, spec.augment, rng)
        return mixed.video_BCTHW, soft_targets(mixed, len(self.index.labels), self.config.smoothing)

    def _share(self, part: slice, count: int) -> AbstractContextManager[None]:
        """Dropout depends on the step and the place in the global batch, not on the process or on what came before."""
        first = self.world.rank * count
        return share_of_batch(first + part.start, first + part.stop, self.world.size * count, self.world.device)

    def _seed(self) -> None:
        torch.manual_seed(int(generator(self.config.seed, self.at.step, "dropout").integers(2**62)))

    def _advance(self, steps: int) -> None:
        self.at.step += 1
        self.at.batch += 1
        if self.at.batch == steps:
            self.at.epoch, self.at.batch, self.at.unscored = self.at.epoch + 1, 0, True

    def _after_step(self, fraction: float, rate: float) -> None:
        save = self.config.save
        by_steps = save.steps is not None and self.at.step % save.steps == 0
        by_time = self.world.is_main and time.monotonic() - self._saved_at > 60 * save.minutes
        stop, due = self.world.any(bool(self.stop), by_steps or by_time)
        if stop or due or self.at.unscored or self.at.step % self.config.log_steps == 0:
            self._write_row(fraction, rate)
        if stop:
            self._save()
            raise self.stop.stopped(f"stopped at step {self.at.step}, saved; go on with --resume.")
        if due:
            self._save()

    def _write_row(self, fraction: float, rate: float) -> None:
        self._check_finite()
        values = self.meter.row(self.world)
        self._record("step", {"epoch": round(fraction, 6), "lr": rate, "seconds": self._seconds(), **values})

    def _check_finite(self) -> None:
        bad = self.meter.first_bad()
        samples = self.index.split("train")
        own = None if bad is None else [samples[i].path for i in bad.tolist()]
        files = next((names for names in self.world.all(own) if names), None)
        if files:
            raise NotFinite(
                f"the loss is not finite near step {self.at.step}, in the batch of {', '.join(files)}; lower lr, set "
                "clip_norm or look at these files, and go on from the newest checkpoint with --resume --fork."
            )

    def _note_problems(self, batch: TrainBatch) -> None:
        for problem in batch.problems:
            self._record("problem", asdict(problem), show=False)
            self.display.note(f"{problem.path} is unreadable, {problem.replaced_by} is used: {problem.message}")

    def _finish_epoch(self) -> None:
        every, done = self.config.eval.every, self.at.epoch == self.config.epochs
        if done or (every and self.at.epoch % every == 0):
            try:
                best = self._evaluate()
            except Stopped:
                self._save()
                raise
            self.at.unscored = False
            self._save(best)
        self.at.unscored = False

    def _evaluate(self) -> bool:
        """One centre view of every validation video, at the clip size of the epoch; whether it is the best so far."""
        split = self.index.eval_split
        stage, _ = self._stage(self.at.epoch - 1)
        spec = self.config.clip.at(frames=stage.frames, size=stage.size)
        with self.learner.averaged():
            scores = score_split(
                self.learner.model,
                self.index.split(split),
                spec,
                self.config.eval,
                self.config.data,
                reader=self.readers[split],
                views="1x1",
                world=self.world,
                progress=self.display.scoring(),
                stop=self.stop,
            )
        metrics = asdict(compute_metrics(scores))
        counts = {"scored": len(scores), "listed": len(self.index.split(split)) + len(self.index.missing_in(split))}
        self.at.metrics = {**metrics, **counts, "split": split, "views": "1x1", "epoch": self.at.epoch}
        self._record("eval", {"seconds": self._seconds(), **self.at.metrics})
        is_best = metrics["video_top1"] > self.at.best
        self.at.best = max(self.at.best, metrics["video_top1"])
        return is_best

    def _seconds(self) -> float:
        return round(time.monotonic() - self._clock, 3)

    def _record(self, kind: str, values: dict[str, Any], *, show: bool = True) -> None:
        if self._log is not None:
            row = self._log.write(kind, self.at.step, **values)
            if show:
                self.display.row(row)

    def _save(self, best: bool = False) -> None:
        self.at.seconds = self._seconds()
        weights, rest = self.learner.tensors()
        self._check_weights(weights)
        self._saved_at = time.monotonic()
        if self.world.is_main:
            scaler = self.learner.scaler.state_dict()
            state = {"position": asdict(self.at), "steps": self.loader().steps, "scaler": scaler}
            self.saves.write(Snapshot(self.info(), weights, rest, state), best=best)
        self.world.wait()

    def _check_weights(self, weights: dict[str, Tensor]) -> None:
        """A run cannot go on from weights that are no numbers, so the checkpoint before must stay the newest."""
        bad = next((name for name, value in weights.items() if not value.isfinite().all()), None)
        if bad:
            raise NotFinite(
                f"{bad} is not finite at step {self.at.step}, which is not saved; lower lr or set clip_norm, and go on "
                "from the newest checkpoint with --resume --fork."
            )

    def info(self) -> CheckpointInfo:
        return CheckpointInfo(
            self.config.model,
            model_settings(self.config, len(self.index.labels)),
            self.config.clip,
            self.index.labels,
            eval=self.config.eval,
            recipe=dump(self.config),
            metrics=self.at.metrics,
            step=self.at.step,
            epoch=self.at.epoch + self.at.batch / self.loader().steps,
            versions=versions(),
            commit=source_commit(),
        )
