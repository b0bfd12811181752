"""Peaks of a process that trains or infers on growing clips (`python -m THIS JOB`)."""

from dataclasses import dataclass
from typing import Any, Literal

import torch

from fixformer.bench.process import answer
from fixformer.config import OptimConfig
from fixformer.models.base import VideoModel
from fixformer.models.layers.lite0 import Lite0Stem
from fixformer.models.registry import create_model
from fixformer.models.video_transformer import VideoTransformer
from fixformer.runtime.memory import free_memory, peak_memory, reset_peak_memory
from fixformer.training.learner import stem_of
from fixformer.training.optim import build_optimiser

Mode = Literal["kept", "recomputed", "inference"]
Optimiser = Literal["sgd", "adamw"]
# Inference has the same memory in each block of a Transformer, so two of them tell as much as all.
BLOCKS = 2
# From a clip to the next one memory may grow so many times: mostly there are twice as many clips.
GROWTH = 3


@dataclass(frozen=True)
class PeakJob:
    """What is measured.

    Args:
        clips: batch, frames and size of each, the smallest first.
        enough: how many of them are measured at least,
        grown: and then as many as it takes for the peak to grow by so many bytes.
        whole: run all blocks in inference, too.
        steps: passes of each clip.
    """

    model: str
    settings: dict[str, Any]
    mode: Mode
    clips: list[list[int]]
    enough: int = 1
    grown: int = 0
    device: str = "cpu"
    threads: int = 1
    optimiser: Optimiser = "adamw"
    whole: bool = False
    steps: int = 1


def measure(job: PeakJob) -> list[int]:
    """The peak of each clip, up to the last that is needed, or that there is memory for."""
    torch.set_num_threads(job.threads)
    device = torch.device(job.device)
    before = peak_memory(device)
    peaks: list[int] = []
    for clip in job.clips:
        if len(peaks) >= job.enough and peaks[-1] - peaks[0] >= job.grown:
            break
        free = free_memory()
        if peaks and device.type == "cpu" and free is not None and GROWTH * (peaks[-1] - before) > free:
            break
        if device.type == "cpu":
            reset_peak_memory()  # also of what the clip before has left in the allocator
        run_clip(job, clip, device)
        peaks.append(peak_memory(device))
    return peaks


def run_clip(job: PeakJob, clip: list[int], device: torch.device) -> None:
    """The steps of one clip size, with a model of its own, of which nothing is left."""
    batch, frames, size = clip
    torch.manual_seed(0)
    model = create_model(job.model, **{**job.settings, "num_frames": frames, "image_size": size}).to(device)
    video_BCTHW = torch.randn(batch, 3, frames, size, size, device=device)
    if job.mode == "inference":
        _infer(model.eval(), video_BCTHW, job)
    else:
        _train(model.train(), video_BCTHW, job)


def _infer(model: VideoModel, video_BCTHW: torch.Tensor, job: PeakJob) -> None:
    if isinstance(model, VideoTransformer) and not job.whole:
        model.left_out = model.blocks[BLOCKS:]  # their weights stay
        model.blocks = model.blocks[:BLOCKS].eval()  # a new list would be in training
    with torch.no_grad():
        for _ in range(job.steps):
            model(video_BCTHW)


def _train(model: VideoModel, video_BCTHW: torch.Tensor, job: PeakJob) -> None:
    config = OptimConfig(optimiser=job.optimiser)
    if isinstance(stem := stem_of(model), Lite0Stem):
        stem.features.freeze(config.stem_frozen)
    model.set_grad_checkpointing(job.mode == "recomputed")
    optimiser = build_optimiser(model, config)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    optimiser.step()  # its state is there from the first step on, as in every later step of a run
    optimiser.zero_grad(set_to_none=True)
    for _ in range(job.steps):
        model(video_BCTHW).logsumexp(-1).mean().backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)


if __name__ == "__main__":
    answer(PeakJob, lambda job: {"peaks": measure(job)})
