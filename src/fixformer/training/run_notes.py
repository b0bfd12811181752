"""What a user should know before a run begins: it runs, but perhaps not as was meant."""

from collections.abc import Iterator

from fixformer.config import TrainConfig
from fixformer.data.audit.overlap import overlap_notes
from fixformer.data.listing import Index
from fixformer.runtime.console import printable
from fixformer.training.schedule import learning_rate


def run_notes(config: TrainConfig, index: Index) -> Iterator[str]:
    """One line each: missing videos, skipped directories, videos that should not be where they are, a single step."""
    yield from map(printable, _notes(config, index))


def _notes(config: TrainConfig, index: Index) -> Iterator[str]:
    missing = index.missing_in("train")
    videos = len(index.split("train"))
    if missing:
        yield f"{len(missing)} of {videos + len(missing)} listed training videos are missing, first {missing[0].path}"
    if index.skipped:
        yield f"skipped: {', '.join(index.skipped)} (written by fixformer)"
    if config.data.location is None:  # streamed shards are not here to be compared
        yield from overlap_notes(index)
    if config.data.balance == "classes":
        yield _balance_note(index)
    batches = [config.stage_of(epoch).batch_size or config.batch_size for epoch in range(config.epochs)]
    if sum(videos // batch for batch in batches) == 1:
        rate = learning_rate(config.optim, config.epochs, 0)
        yield (
            f"the run has a single step, with lr {rate:g}: {'next to nothing' if rate else 'nothing'} is learnt from "
            f"{videos} training videos; raise epochs={config.epochs} or lower batch_size={batches[0]}."
        )


def _balance_note(index: Index) -> str:
    """What the balanced order does with the smallest and the largest class."""
    counts = index.counts("train")
    share = sum(counts.values()) / len(counts)
    fewest, most = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
    return (
        f"balance=classes: each of the {len(counts)} classes is drawn {share:.3g} times an epoch; the {counts[fewest]} "
        f"training videos of {fewest!r} {share / counts[fewest]:.2g} times each, the {counts[most]} of {most!r} "
        f"{share / counts[most]:.2g} times"
    )
