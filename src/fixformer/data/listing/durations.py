"""How long the videos of a list are."""

from collections.abc import Sequence
from math import inf
from statistics import median

from fixformer.data.listing.index import Sample
from fixformer.data.video import open_video
from fixformer.errors import UserError

MOST_OPENED = 15  # of all videos, evenly spaced: enough for a median


def typical_seconds(samples: Sequence[Sample]) -> float | None:
    """The median length of the listed parts, from the headers of a few files; None if none of them says."""
    every = max(1, len(samples) // MOST_OPENED)
    found = [_seconds(sample) for sample in samples[::every][:MOST_OPENED]]
    known = [seconds for seconds in found if seconds is not None and 0 < seconds < inf]  # a header may say anything
    return median(known) if known else None


def _seconds(sample: Sample) -> float | None:
    if sample.start is not None and sample.end is not None:
        return sample.end - sample.start
    try:
        with open_video(sample.path) as video:
            whole = video.info.duration
    except (UserError, OSError):  # training reports what cannot be read
        return None
    end = whole if sample.end is None else sample.end
    return None if end is None else end - (sample.start or 0.0)
