"""`open_video` chooses the backend for a source."""

import os
from pathlib import Path
from typing import Annotated

import numpy as np

from fixformer.config import Backend
from fixformer.config.clip import FrameRate, Side
from fixformer.config.schema import checked, int_between
from fixformer.data.video.array_frames import ArrayDecoder
from fixformer.data.video.decoder import Decoder, Limits, Policy, VideoSource
from fixformer.data.video.image_folder import ImageFolderDecoder
from fixformer.data.video.pyav_decoder import PyAVDecoder
from fixformer.data.video.shard_member import is_member, read_member
from fixformer.data.video.torchcodec_decoder import TorchCodecDecoder
from fixformer.errors import InputError


@checked
def open_video(
    source: VideoSource,
    *,
    backend: Backend = "pyav",
    policy: Policy = "strict",
    limits: Limits = Limits(),  # noqa: B008 - frozen
    short_side: Side | None = None,
    threads: Annotated[int, int_between(1, 64)] = 1,
    fps: FrameRate | None = None,
) -> Decoder:
    """Open a video file, its bytes, a binary file object, a folder of images, a video inside a shard, or an array.

    Args:
        source: what to read. A folder is a video whose frames are its images in natural order.
            An array holds RGB frames, uint8 `[T, H, W, 3]`.
        backend: "pyav", or "torchcodec" where it is installed.
        policy: on damage, "strict" raises `DecodeError`; "partial" keeps the good frames and records a `Fault`.
        limits: what the file may cost before it is refused.
        short_side: scale the frames so that their shorter side has this many pixels.
        threads: of the decoder. Use one inside the workers of a data loader.
        fps: frame rate of a folder of images or an array, which have no timestamps.
    """
    if isinstance(source, np.ndarray):
        return ArrayDecoder(source, limits=limits, short_side=short_side, fps=fps)
    if not isinstance(source, str | Path | bytes) and not hasattr(source, "read"):
        raise InputError(f"source={source!r}: expected a path, bytes or an open binary file.")
    if not isinstance(limits, Limits):
        raise InputError(f"limits={limits!r}: expected Limits.")
    if source == "":
        raise InputError("source='': expected the name of a file.")
    name = None
    if isinstance(source, str) and is_member(source):
        name, source = source, read_member(source)
    if isinstance(source, str | Path) and os.path.isdir(source):  # `Path.is_dir` raises if the name is too long
        return ImageFolderDecoder(Path(source), policy=policy, limits=limits, short_side=short_side, fps=fps)
    if backend == "torchcodec":
        return TorchCodecDecoder(source, policy=policy, limits=limits, short_side=short_side, threads=threads)
    return PyAVDecoder(source, policy=policy, limits=limits, short_side=short_side, threads=threads, name=name)
