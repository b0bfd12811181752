"""Frames by number or by time, from video files, bytes, folders of images, tar shards and arrays.

Read in this order: `decoder` (the interface), `containers` (opening a file within limits), `packets` (demuxing),
`frame_table` (which packet holds which frame), `frame_access` (seeking, sequential or from memory), `pyav_decoder` (the
default backend, built on all of these), `open_video` (chooses the backend). `orientation` makes upright RGB of a frame.
"""

from fixformer.data.video.decoder import (
    DecodeError,
    Decoder,
    Fault,
    Limits,
    NoVideoStream,
    Policy,
    Source,
    VideoInfo,
    VideoSource,
)
from fixformer.data.video.open_video import open_video

__all__ = [
    "DecodeError",
    "Decoder",
    "Fault",
    "Limits",
    "NoVideoStream",
    "Policy",
    "Source",
    "VideoInfo",
    "VideoSource",
    "open_video",
]
