"""What a model loses when a part of the clip is covered: a check that knows nothing of the model.

Legend: C colours, T frames, H height, W width; cells t x r x c in time, rows and columns.
"""

import re
from typing import Annotated

import torch
from torch import Tensor

from fixformer.config.schema import Expect, coerce
from fixformer.models.base import VideoModel
from fixformer.runtime.progress import Report

BATCH = 4
CELLS = re.compile(r"([1-9][0-9]?)x([1-9][0-9]?)x([1-9][0-9]?)")
Cells = Annotated[str, Expect("FRAMESxROWSxCOLUMNS of 1 to 99 cells, such as 4x4x4", CELLS.fullmatch)]


def parse_cells(text: str) -> tuple[int, int, int]:
    frames, rows, columns = coerce(text, Cells, "occlusion").split("x")
    return int(frames), int(rows), int(columns)


@torch.no_grad()
def occlude(
    model: VideoModel, video_1CTHW: Tensor, label: int, cells: tuple[int, int, int], progress: Report | None = None
) -> Tensor:
    """By how much the label's log-probability falls when a cell is covered with the mean colour: `[t, r, c]`.

    Negative where covering helps the label.
    """
    whole = float(model(video_1CTHW).log_softmax(-1)[0, label])
    boxes = _boxes(video_1CTHW.shape[2:], cells)
    drops: list[Tensor] = []
    for begin in range(0, len(boxes), BATCH):
        part = boxes[begin : begin + BATCH]
        covered_BCTHW = video_1CTHW.repeat(len(part), 1, 1, 1, 1)
        for number, box in enumerate(part):
            covered_BCTHW[(number, slice(None), *box)] = 0  # normalised pixels: the mean colour of the clip spec
        drops.append(whole - model(covered_BCTHW).log_softmax(-1)[:, label].float().cpu())
        if progress:
            progress(begin + len(part), len(boxes))
    return torch.cat(drops).view(cells)


def _boxes(sizes: torch.Size, cells: tuple[int, int, int]) -> list[tuple[slice, slice, slice]]:
    """The cells in order: as those of adaptive pooling, so that heat can be averaged over the same."""
    frames, rows, columns = (
        [slice(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]
        for size, count in zip(sizes, cells, strict=True)
    )
    return [(t, r, c) for t in frames for r in rows for c in columns]
