"""Video in: frames by number or by time, from files, bytes, folders of images and shards."""

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
