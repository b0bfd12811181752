"""The same clip read by different tools, each on one thread: what `bench data` compares.

A reader is a function from a path and frame numbers to `frames_THWC`, RGB bytes. Each opens the file anew, as a data
loader does.

Legend: T frames, H height, W width, C the three colours.
"""

from collections.abc import Callable, Sequence
from importlib import import_module

import numpy as np

from fixformer.data.video import open_video

ReadClip = Callable[[str, Sequence[int]], np.ndarray]


def ours(path: str, indices: Sequence[int]) -> np.ndarray:
    """Open, count the frames, read: all a data set does."""
    with open_video(path) as video:
        len(video)
        return video.get_frames(indices)


def pyav(path: str, indices: Sequence[int]) -> np.ndarray:
    """Decode in order up to the last frame needed, convert the ones wanted."""
    import av

    wanted, last, found = set(indices), max(indices), {}
    with av.open(path, metadata_errors="replace") as container:
        stream = container.streams.best("video")
        assert isinstance(stream, av.VideoStream)
        stream.codec_context.thread_count = 1
        for number, frame in enumerate(container.decode(stream)):
            if number in wanted:
                found[number] = frame.to_ndarray(format="rgb24", threads=1)
            if number == last:
                break
    return np.stack([found[i] for i in indices])


def opencv(path: str, indices: Sequence[int]) -> np.ndarray:
    """Grab in order up to the last frame needed, retrieve the ones wanted."""
    return _opencv(path, indices, first=0)


def opencv_seek(path: str, indices: Sequence[int]) -> np.ndarray:
    """Seek to the first frame needed, then as `opencv`."""
    return _opencv(path, indices, first=min(indices))


def _opencv(path: str, indices: Sequence[int], first: int) -> np.ndarray:
    import cv2

    cv2.setNumThreads(1)
    wanted, found = set(indices), {}
    capture = cv2.VideoCapture(path, cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, 1])
    if first:
        capture.set(cv2.CAP_PROP_POS_FRAMES, first)
    for number in range(first, max(indices) + 1):
        capture.grab()
        if number in wanted:
            found[number] = cv2.cvtColor(capture.retrieve()[1], cv2.COLOR_BGR2RGB)
    capture.release()
    return np.stack([found[i] for i in indices])


def torchcodec(path: str, indices: Sequence[int]) -> np.ndarray:
    from torchcodec.decoders import VideoDecoder

    decoder = VideoDecoder(path, dimension_order="NHWC", num_ffmpeg_threads=1, seek_mode="exact")
    frames: np.ndarray = decoder.get_frames_at(list(indices)).data.numpy()
    return frames


def available_readers() -> tuple[dict[str, ReadClip], dict[str, str]]:
    """The readers that can be imported, ours first, and why the others cannot."""
    readers: dict[str, ReadClip] = {"fixformer": ours, "PyAV in order": pyav}
    absent = {}
    optional: dict[str, dict[str, ReadClip]] = {
        "cv2": {"OpenCV": opencv, "OpenCV seeking": opencv_seek},
        "torchcodec.decoders": {"torchcodec": torchcodec},
    }
    for module, found in optional.items():
        try:
            import_module(module)
            readers |= found
        except (ImportError, RuntimeError) as error:
            absent[module] = str(error).splitlines()[0]
    return readers, absent
