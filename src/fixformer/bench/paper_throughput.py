"""The paper's table of throughput as printed: videos a second of three attentions in one backbone.

All numbers are quoted from the paper, none is measured here. Its rows of Orthoformer and softmax also pay for the
gate, which the authors' speed test leaves on; Orthoformer had 64 landmarks on both axes there.
"""

from itertools import product

SOURCE = "The paper: videos a second on an A100 with 80 GB, batch 1, the mean of ten runs (its Table 8)"
FRAMES, SIZES = (16, 32, 64, 96), (224, 336, 448)
OUT_OF_MEMORY = "OOM"

# As in the paper: the sizes of 16 frames, then those of 32, 64 and 96.
_PRINTED: dict[str, tuple[float | str, ...]] = {
    "orthoformer": (1.79, 1.59, 1.41, 1.71, 1.56, 1.15, 1.53, 0.97, OUT_OF_MEMORY, 1.25, 0.83, OUT_OF_MEMORY),
    "ours": (10.25, 8.57, 5.40, 8.38, 4.68, 3.22, 6.58, 3.75, 2.81, 4.48, 2.30, OUT_OF_MEMORY),
    "softmax": (8.23, 6.49, 4.57, 6.15, 4.57, 2.57, 5.27, 2.55, OUT_OF_MEMORY, 4.27, OUT_OF_MEMORY, OUT_OF_MEMORY),
}
PAPER: dict[tuple[int, int, str], float | str] = {
    (*clip, variant): value
    for variant, values in _PRINTED.items()
    for clip, value in zip(product(FRAMES, SIZES), values, strict=True)
}


def paper_ratio(frames: int, size: int, variant: str) -> float | str | None:
    """How many times as fast as a variant ours is; "OOM" if one of the two is, None if the clip is not in the table."""
    ours, other = (PAPER.get((frames, size, name)) for name in ("ours", variant))
    if isinstance(ours, float) and isinstance(other, float):
        return ours / other
    return None if other is None else OUT_OF_MEMORY
