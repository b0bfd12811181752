"""The middle frame of a video as a small PNG, made with the decoder's own libraries."""

from dataclasses import replace

import av

from fixformer.config import ClipSpec
from fixformer.data.clips.frames import open_frames
from fixformer.errors import explain
from fixformer.labelling.decoding import Row, open_source, path_of
from fixformer.labelling.remote_files import is_url

SIDE = 96  # pixels of the shorter side


def thumbnail(row: Row, spec: ClipSpec) -> bytes | None:
    """The frame as the model sees it, or the middle one of what is left of a damaged video; None if there is none."""
    small = replace(spec, keep_frames=None, keep_short_side=SIDE)
    path, part = path_of(row), {"start": row["start"], "end": row["end"]}
    try:
        with open_source(path) as source, open_frames(source, small, **part, damaged="partial") as frames:
            picture_HWC = frames.get_frames([len(frames) // 2])[0]
    except Exception as error:
        if explain(error) is None and not is_url(path):  # behind a URL are many libraries, each with its errors
            raise
        return None
    codec = av.CodecContext.create("png", "w")
    codec.height, codec.width = picture_HWC.shape[:2]
    codec.pix_fmt = "rgb24"
    frame = av.VideoFrame.from_ndarray(picture_HWC, "rgb24")
    return b"".join(bytes(packet) for packet in [*codec.encode(frame), *codec.encode(None)])
