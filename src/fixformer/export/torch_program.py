"""A checkpoint as a program of `torch.export`: frames of bytes in, logits out, loaded without this package.

Legend: B clips, T frames, H height, W width, C colours, N = B x T pictures.
"""

import json
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from fixformer.config import ClipSpec
from fixformer.export.compare import Answer
from fixformer.export.metadata import ExportInfo
from fixformer.models.base import VideoModel


class FramesToLogits(nn.Module):
    """`data/clips/transforms.py` and the network, without conditions on the size of the frames, which is free."""

    def __init__(self, model: VideoModel, spec: ClipSpec) -> None:
        super().__init__()
        self.model, self.spec = model, spec
        shape = (3, 1, 1, 1)
        self.register_buffer("scale", torch.tensor([1 / (255 * s) for s in spec.std]).view(shape))
        shift = [-m / s for m, s in zip(spec.mean, spec.std, strict=True)]
        self.register_buffer("shift", torch.tensor(shift).view(shape))

    def forward(self, frames: Tensor) -> Tensor:
        spec, batch = self.spec, frames.shape[0]
        pictures_NCHW = frames.flatten(0, 1).permute(0, 3, 1, 2)
        if spec.keep_short_side is not None:  # unchanged if frames have been scaled so when they were decoded
            pictures_NCHW = short_side_to(pictures_NCHW, spec.keep_short_side, True)
        side = spec.test_short_side
        if spec.fit == "squeeze":
            pictures_NCHW = F.interpolate(pictures_NCHW, (side, side), mode="bilinear", antialias=spec.antialias)
        else:
            pictures_NCHW = short_side_to(pictures_NCHW, side, spec.antialias)
        pictures_NCHW = middle_crop(pictures_NCHW, spec.size, spec.focus)
        video_BCTHW = pictures_NCHW.unflatten(0, (batch, spec.frames)).transpose(1, 2)
        return self.model(video_BCTHW.float() * self.scale + self.shift)


def short_side_to(pictures_NCHW: Tensor, side: int, antialias: bool) -> Tensor:
    height, width = pictures_NCHW.shape[-2:]
    short = torch.sym_min(height, width)
    size = (height * side // short, width * side // short)
    return F.interpolate(pictures_NCHW, size, mode="bilinear", antialias=antialias)


def middle_crop(pictures_NCHW: Tensor, size: int, focus: float) -> Tensor:
    """The middle crop, whose place is computed in tensors: no branch depends on the size."""
    height, width = (torch.full((), side, dtype=torch.int64) for side in pictures_NCHW.shape[-2:])
    place = torch.full((), focus, dtype=torch.float64)
    half = torch.full((), 0.5, dtype=torch.float64)
    top = ((height - size) * torch.where(height > width, place, half)).ceil().long()
    left = ((width - size) * torch.where(height > width, half, place)).ceil().long()
    line = torch.arange(size)
    return pictures_NCHW.index_select(-2, top + line).index_select(-1, left + line)


def trace(model: VideoModel, spec: ClipSpec) -> ExportedProgram:
    """For batches and pictures of any size."""
    frames = torch.zeros(2, spec.frames, 3 * spec.test_short_side, 4 * spec.test_short_side, 3, dtype=torch.uint8)
    shapes = {0: Dim("batch", max=4096), 1: spec.frames, 2: Dim.DYNAMIC, 3: Dim.DYNAMIC, 4: 3}
    with torch.no_grad():
        return torch.export.export(
            FramesToLogits(model, spec).eval(), (frames,), dynamic_shapes=(shapes,), strict=False
        )


def write_program(program: ExportedProgram, path: Path, info: ExportInfo) -> None:
    """A `.pt2` file, with the metadata of an ONNX graph as `fixformer.json` in it."""
    # the example would be stored as a pickle, and nobody needs it
    program.example_inputs = None
    buffer = BytesIO()
    torch.export.save(program, buffer, extra_files={"fixformer.json": json.dumps(info.to_texts())})
    path.write_bytes(buffer.getvalue())


def program_answer(program: ExportedProgram) -> Answer:
    """Logits by the program itself, as whoever loads it will run it."""
    module = program.module()

    @torch.no_grad()
    def answer(clip_THWC: np.ndarray) -> np.ndarray:
        return module(torch.from_numpy(clip_THWC)[None])[0].numpy()

    return answer
