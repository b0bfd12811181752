"""Which tokens attend to each other: those of a frame, those of a position over time, or all.

Each axis cuts a clip into sequences, puts the results back, and says how the N tokens of a sequence lie (its grid).
`rows` is a view of a contiguous clip in the order of its sequences, whose second axis may be cut into chunks.

Shapes: B batch, T frames, H rows, W columns, D width, h heads, E head width; G sequences of N tokens each.
"""

from collections.abc import Sequence

from torch import Tensor

Grid = tuple[int, ...]


class SpaceAxis:
    """Tokens of the same frame: B·T sequences of H·W tokens."""

    def grid(self, size_THW: Sequence[int]) -> Grid:
        return tuple(size_THW[1:])

    def rows(self, x_BTHWD: Tensor) -> Tensor:
        return x_BTHWD.flatten(2, 3).flatten(0, 1)[None]

    def sequences(self, x_BTHWhE: Tensor) -> Tensor:
        return x_BTHWhE.flatten(2, 3).flatten(0, 1).transpose(1, 2)

    def tokens(self, y_GhNE: Tensor, size_BTHW: Sequence[int]) -> Tensor:
        B, T, H, W = size_BTHW
        return y_GhNE.transpose(1, 2).reshape(B, T, H, W, -1)


class TimeAxis:
    """Tokens of the same position: B·H·W sequences of T tokens."""

    def grid(self, size_THW: Sequence[int]) -> Grid:
        return (size_THW[0],)

    def rows(self, x_BTHWD: Tensor) -> Tensor:
        return x_BTHWD.flatten(2, 3).transpose(1, 2)

    def sequences(self, x_BTHWhE: Tensor) -> Tensor:
        return x_BTHWhE.flatten(2, 3).permute(0, 2, 3, 1, 4).flatten(0, 1)

    def tokens(self, y_GhNE: Tensor, size_BTHW: Sequence[int]) -> Tensor:
        B, T, H, W = size_BTHW
        return y_GhNE.unflatten(0, (B, H * W)).permute(0, 3, 1, 2, 4).reshape(B, T, H, W, -1)


class JointAxis:
    """All tokens of a clip: B sequences of T·H·W tokens."""

    def grid(self, size_THW: Sequence[int]) -> Grid:
        return tuple(size_THW)

    def rows(self, x_BTHWD: Tensor) -> Tensor:
        return x_BTHWD.flatten(1, 3)[None]

    def sequences(self, x_BTHWhE: Tensor) -> Tensor:
        return x_BTHWhE.flatten(1, 3).transpose(1, 2)

    def tokens(self, y_GhNE: Tensor, size_BTHW: Sequence[int]) -> Tensor:
        return y_GhNE.transpose(1, 2).reshape(*size_BTHW, -1)


AXES: dict[str, SpaceAxis | TimeAxis | JointAxis] = {"space": SpaceAxis(), "time": TimeAxis(), "joint": JointAxis()}

# Attentions of a block, in order. Windowed is XViT's: attention inside a frame whose keys and values have been mixed
# with those of the frames around (association in time), so it has no attention along time.
PATTERNS = {
    ("factorised", "space_time"): ("space", "time"),
    ("factorised", "time_space"): ("time", "space"),
    ("joint", "space_time"): ("joint",),
    ("joint", "time_space"): ("joint",),
    ("windowed", "space_time"): ("space",),
    ("windowed", "time_space"): ("space",),
}
