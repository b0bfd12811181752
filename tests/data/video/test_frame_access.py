"""Ways to a frame that are chosen for odd streams only."""

from fixformer.data.video import open_video
from fixformer.data.video.containers import Deadline
from fixformer.data.video.frame_access import SequentialAccess, decode_all
from fixformer.data.video.pyav_decoder import PyAVDecoder
from videos import encode, moving_square


def test_a_request_that_continues_has_its_own_time_limit() -> None:
    """The time between two requests does not count: a slow consumer may read a long stream piece by piece."""
    with open_video(encode(moving_square(20))) as video:
        assert isinstance(video, PyAVDecoder)
        assert len(video) == 20
        assert video._packets is not None
        access = SequentialAccess(video._codec, video._packets, [None] * 20)
        first = Deadline(60, "a.mp4")
        times = [frame.pts for frame in access.fetch([0, 3], first)]
        first._cpu_end = first._clock_end = 0.0
        times += [frame.pts for frame in access.fetch([5, 9], Deadline(60, "a.mp4"))]
        sequential = [frame.pts for frame in decode_all(video._codec, video._packets, lambda: None, [])]
        assert times == [sequential[number] for number in (0, 3, 5, 9)]
