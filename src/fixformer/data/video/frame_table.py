"""Which packet holds which frame, and where decoding must start to reach it, computed from demuxing alone.

Legend: P packets in decoding order, F frames in order of presentation.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np


class PacketRow(NamedTuple):
    """One packet as the container describes it. Times are in units of the stream's time base."""

    pts: int | None
    dts: int | None
    key: bool
    shown: bool
    position: int | None = None


class FrameTable:
    """The frames of a stream in which every shown packet becomes exactly one frame, with the packet's timestamp."""

    def __init__(self, rows: Sequence[PacketRow]) -> None:
        self.pts_P = np.array(
            # hidden packets may have no timestamp; they are never looked up by it
            [row.pts if row.pts is not None else row.dts or 0 for row in rows],
            dtype=np.int64,
        )
        self._key_P = np.array([row.key for row in rows], dtype=bool)
        live = np.flatnonzero([row.shown for row in rows])
        self.packet_F = live[np.argsort(self.pts_P[live], kind="stable")]
        self.pts_F = self.pts_P[self.packet_F]
        self.frame_P = np.full(len(rows), -1, dtype=np.int64)
        self.frame_P[self.packet_F] = np.arange(len(self.packet_F))
        self._index = {int(pts): i for i, pts in enumerate(self.pts_F)}

    def __len__(self) -> int:
        return len(self.packet_F)

    @property
    def unambiguous(self) -> bool:
        """Whether a timestamp identifies a frame."""
        return len(self._index) == len(self)

    def find(self, pts: int | None) -> int | None:
        """The number of the frame with this timestamp."""
        return None if pts is None else self._index.get(pts)

    def anchor(self, frame: int) -> int:
        """The packet from which decoding must start for this frame to be exact."""
        return int(self._anchor_F[frame])

    @cached_property
    def _anchor_F(self) -> np.ndarray:
        """For each frame the last key packet before it in decoding order that is not presented after it.

        A frame presented before the key packet that precedes it (a leading picture of an open GOP) may reference
        pictures older than that key packet, so it needs an earlier one.
        """
        keys = np.append(np.flatnonzero(self._key_P), 0)  # index -1 is packet 0, for frames without a usable key packet
        nearest_F = np.searchsorted(keys[:-1], self.packet_F, side="right") - 1
        leading_F = (nearest_F >= 0) & (self.pts_P[keys[nearest_F]] > self.pts_F)
        while leading_F.any():
            nearest_F[leading_F] -= 1
            leading_F = (nearest_F >= 0) & (self.pts_P[keys[nearest_F]] > self.pts_F)
        return keys[nearest_F]


def frames_at(times: np.ndarray, seconds: Sequence[float]) -> list[int]:
    """The number of the frame displayed at each time; `times` ascend from 0."""
    # a time computed from a frame number may fall a rounding error short of the frame it means
    slack = 1e-6
    return [int(i) for i in np.searchsorted(times, np.asarray(seconds, dtype=np.float64) + slack, side="right") - 1]
