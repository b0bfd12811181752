"""From a decoded picture to upright RGB: colour conversion, resizing and the orientation in the metadata.

Legend: H height, W width, C the three colours.
"""

from dataclasses import dataclass
from math import atan2, degrees
from typing import Any

import numpy as np
from av.sidedata.sidedata import Type as SideDataType
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter

from fixformer.data.video.scaling import scaled_size


@dataclass(frozen=True)
class Orientation:
    """How a coded picture becomes upright: transposed first, then reversed."""

    transpose: bool = False
    reverse_rows: bool = False
    reverse_columns: bool = False

    @property
    def mirrored(self) -> bool:
        return self.transpose ^ self.reverse_rows ^ self.reverse_columns

    @property
    def rotation(self) -> int:
        """Clockwise rotation in degrees; of the mirror image if `mirrored`."""
        x, y = (0, 1) if self.transpose else (1, 0)
        x, y = -x if self.reverse_columns else x, -y if self.reverse_rows else y
        if self.mirrored:
            x, y = -x, -y
        return round(degrees(atan2(y, x))) % 360

    def apply(self, picture_HWC: np.ndarray) -> np.ndarray:
        if self.transpose:
            picture_HWC = picture_HWC.swapaxes(0, 1)
        return picture_HWC[:: -1 if self.reverse_rows else 1, :: -1 if self.reverse_columns else 1]

    @classmethod
    def of(cls, frame: VideoFrame) -> "Orientation":
        """From the display matrix that the container or the codec attached."""
        try:
            side_data: Any = frame.side_data
            matrix = side_data[SideDataType.DISPLAYMATRIX]
        except KeyError:
            return cls()
        except ValueError:  # PyAV cannot list side data it has no name for (EXIF), but still gives the angle
            return cls.from_angle(-frame.rotation)
        entries = np.frombuffer(matrix, dtype=np.int32)
        return cls.from_matrix(*(int(entries[i]) for i in (0, 1, 3, 4)))

    @classmethod
    def from_angle(cls, clockwise: int) -> "Orientation":
        turn = round(clockwise / 90) % 4
        return cls(turn % 2 == 1, turn in (2, 3), turn in (1, 2))

    @classmethod
    def from_matrix(cls, a: int, b: int, c: int, d: int) -> "Orientation":
        """The multiple of 90 degrees nearest to x' = a x + c y, y' = b x + d y (x to the right, y down)."""
        if abs(a) + abs(d) >= abs(b) + abs(c):
            return cls(False, d < 0, a < 0)
        return cls(True, b < 0, c < 0)


class RgbConverter:
    """Converts the frames of one video to upright RGB of one size: that of the first frame, scaled to `short_side`."""

    def __init__(self, first: VideoFrame, short_side: int | None) -> None:
        self.orientation = Orientation.of(first)
        self._coded_size = scaled_size(first.width, first.height, short_side)
        self._reformatter = VideoReformatter()

    @property
    def size(self) -> tuple[int, int]:
        """Upright width and height."""
        width, height = self._coded_size
        return (height, width) if self.orientation.transpose else (width, height)

    def convert(self, frame: VideoFrame) -> np.ndarray:
        """`picture_HWC`, possibly a view into memory that lives as long as the array."""
        width, height = self._coded_size
        picture = self._reformatter.reformat(frame, width, height, "rgb24", interpolation="BILINEAR", threads=1)
        return self.orientation.apply(picture.to_ndarray())
