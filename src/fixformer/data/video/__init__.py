"""Frames by number or by time, from video files, bytes, folders of images and tar shards.

Read in this order: `decoder` (the interface and `open_video`), `containers` (opening a file within limits), `packets`
(demuxing), `frame_table` (which packet holds which frame), `frame_access` (seeking, sequential or from memory),
`pyav_decoder` (the default backend, built on all of these). `orientation` makes upright RGB of a decoded picture.
"""

from fixformer.data.video.decoder import (
    BACKENDS,
    DecodeError,
    Decoder,
    Fault,
    Limits,
    NoVideoStream,
    Policy,
    Source,
    VideoInfo,
    open_video,
)

__all__ = [
    "BACKENDS",
    "DecodeError",
    "Decoder",
    "Fault",
    "Limits",
    "NoVideoStream",
    "Policy",
    "Source",
    "VideoInfo",
    "open_video",
]
