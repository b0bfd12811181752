"""`open_video` chooses the backend for a source."""

import os
from pathlib import Path
from typing import get_args

from fixformer.config import Backend
from fixformer.data.video.decoder import Decoder, Limits, Policy, Source
from fixformer.data.video.image_folder import ImageFolderDecoder
from fixformer.data.video.pyav_decoder import PyAVDecoder
from fixformer.data.video.shard_member import is_member, read_member
from fixformer.data.video.torchcodec_decoder import TorchCodecDecoder
from fixformer.errors import UnknownName

BACKENDS: tuple[str, ...] = get_args(Backend)


def open_video(
    source: Source,
    *,
    backend: str = "pyav",
    policy: Policy = "strict",
    limits: Limits = Limits(),  # noqa: B008 - frozen
    short_side: int | None = None,
    threads: int = 1,
    fps: float | None = None,
) -> Decoder:
    """Open a video file, its bytes, a binary file object, a folder of images, or a video inside a shard.

    Args:
        source: what to read. A folder is a video whose frames are its images in natural order.
        backend: "pyav", or "torchcodec" where it is installed.
        policy: on damage, "strict" raises `DecodeError`; "partial" keeps the good frames and records a `Fault`.
        limits: what the file may cost before it is refused.
        short_side: scale the frames so that their shorter side has this many pixels.
        threads: of the decoder. Use one inside the workers of a data loader.
        fps: frame rate of a folder of images, which has no timestamps.
    """
    if backend not in BACKENDS:
        raise UnknownName("decoder backend", backend, BACKENDS)
    name = None
    if isinstance(source, str) and is_member(source):
        name, source = source, read_member(source)
    if isinstance(source, str | Path) and os.path.isdir(source):  # `Path.is_dir` raises if the name is too long
        return ImageFolderDecoder(Path(source), policy=policy, limits=limits, short_side=short_side, fps=fps)
    if backend == "torchcodec":
        return TorchCodecDecoder(source, policy=policy, limits=limits, short_side=short_side, threads=threads)
    return PyAVDecoder(source, policy=policy, limits=limits, short_side=short_side, threads=threads, name=name)
