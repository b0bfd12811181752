"""The middle frame of a video as a small PNG, made with the decoder's own libraries."""

from dataclasses import replace

import av

from fixformer.config import ClipSpec
from fixformer.data.clips.frames import open_frames
from fixformer.errors import UserError
from fixformer.labelling.decoding import open_source

SIDE = 96  # pixels of the shorter side


def thumbnail(path: str, start: float | None, end: float | None, spec: ClipSpec) -> bytes | None:
    """The frame as the model sees it, or the first good one of a damaged video; None if there is none."""
    small = replace(spec, keep_frames=None, keep_short_side=SIDE)
    try:
        with open_source(path) as source, open_frames(source, small, start=start, end=end, damaged="partial") as frames:
            picture_HWC = frames.get_frames([len(frames) // 2])[0]
    except (UserError, OSError, RuntimeError, MemoryError):
        return None
    codec = av.CodecContext.create("png", "w")
    codec.height, codec.width = picture_HWC.shape[:2]
    codec.pix_fmt = "rgb24"
    frame = av.VideoFrame.from_ndarray(picture_HWC, "rgb24")
    return b"".join(bytes(packet) for packet in [*codec.encode(frame), *codec.encode(None)])
