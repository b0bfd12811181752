"""Neighbourhood association: keys and values borrow channels from tokens next to them (section 4.3, appendix A.3).

Shapes: B batch, T frames, H rows, W columns, h heads, E head width.
"""

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from fixformer.config import FilledModelConfig
from fixformer.errors import InputError
from fixformer.ops.shift import (
    Group,
    compose,
    cross_groups,
    released_cross_groups,
    released_square_groups,
    released_time_groups,
    shift,
    shift_,
    square_groups,
    time_groups,
    unshift_,
)


class Associate(nn.Module):
    """Shift channels of keys or values; queries stay. `segment` cuts a clip into parts that exchange no frames."""

    def __init__(self, groups: Sequence[Group], segment: int | None = None) -> None:
        super().__init__()
        self.groups = tuple(groups)
        self.segment = segment

    def forward(self, x_BTHWhE: Tensor) -> Tensor:
        return shift(self._segments(x_BTHWhE), self.groups).view_as(x_BTHWhE)

    def in_place(self, x_BTHWhE: Tensor) -> None:
        """The same without gradient, writing over the keys or values."""
        shift_(self._segments(x_BTHWhE), self.groups)

    def gradient_in_place(self, g_BTHWhE: Tensor) -> None:
        """From the gradient of the shifted keys or values to that of those before."""
        unshift_(self._segments(g_BTHWhE), self.groups)

    def _segments(self, x_BTHWhE: Tensor) -> Tensor:
        """A view `[B·T/segment, segment, H, W, h·E]`."""
        B, T, H, W, _, _ = x_BTHWhE.shape
        segment = self.segment or T
        if T % segment:
            raise InputError(f"a clip of {T} frames cannot be divided into segments of shift_segment={segment} frames.")
        return x_BTHWhE.flatten(-2).view(B * T // segment, segment, H, W, -1)


def paper_groups(config: FilledModelConfig, axis: str) -> list[Group]:
    """Temporal, then spatial shift, in every attention alike; `axis` is the attention's and does not matter."""
    c, channels = config, config.embed_dim
    space = {"cross": cross_groups, "square": square_groups}[c.shift_shape]
    in_time = time_groups(channels, c.shift_time, c.shift_keep) if c.association != "space" else []
    in_space = space(channels, c.shift_space, c.shift_keep) if c.association != "time" else []
    return compose(in_time, in_space)


def released_groups(config: FilledModelConfig, axis: str) -> list[Group]:
    """The released code's crossing: attention in time gets the spatial shift, attention in space the temporal one."""
    c, channels = config, config.embed_dim
    if axis == "time" and c.association != "time":
        space = {"cross": released_cross_groups, "square": released_square_groups}[c.shift_shape]
        return space(channels, c.shift_space)
    if axis == "space" and c.association != "space":
        return released_time_groups(channels, divisor=round(2 / (1 - c.shift_keep)))
    return []


READINGS: dict[str, Callable[[FilledModelConfig, str], list[Group]]] = {
    "paper": paper_groups,
    "released": released_groups,
}
