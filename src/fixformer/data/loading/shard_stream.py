"""Reading shards in order, from disk or through a pipe, with every epoch accounted for.

The order of an epoch is a list of all videos: the shards in an order drawn for (seed, epoch), each from its beginning.
Processes and their workers take contiguous parts of that list, so what each reads is known before anything is read.
For training all parts are whole batches, equal in number on every process; for testing the parts together are the
list: nothing is dropped and nothing repeated.
"""

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

from torch.utils.data import get_worker_info

from fixformer.data.listing.shards import Entry
from fixformer.errors import MissingExtra, SettingsConflict, UserError
from fixformer.runtime.seeds import generator

BLOCK = 128


@dataclass(frozen=True)
class Share:
    """Who reads: process `rank` of `world`, worker `worker` of `workers` on it."""

    rank: int = 0
    world: int = 1
    worker: int = 0
    workers: int = 1

    def with_worker(self, turn: int = 0) -> "Share":
        """The same process, in the data loader's worker that asks; worker 0 takes the place of worker `turn`."""
        info = get_worker_info()
        if info is None:
            return self
        return Share(self.rank, self.world, (info.id + turn) % info.num_workers, info.num_workers)


def epoch_order(entries: list[Entry], seed: int, epoch: int) -> list[Entry]:
    """Shards in an order of this epoch, within a shard as stored."""
    shards = [list(group) for _, group in groupby(entries, key=lambda entry: entry.shard)]
    return [entry for number in generator(seed, epoch, "shards").permutation(len(shards)) for entry in shards[number]]


def train_steps(videos: int, batch_size: int, world: int) -> int:
    """Batches of `batch_size` over all processes in an epoch; each process makes its share of every one."""
    if batch_size % world:
        raise SettingsConflict(f"batch size {batch_size} cannot be divided between {world} processes.")
    if videos < batch_size:
        raise UserError(f"batch size {batch_size} is larger than the training set of {videos} videos.")
    return videos // batch_size


def train_part(videos: int, batch_size: int, share: Share) -> tuple[int, int]:
    """The range of the epoch's order that a worker reads.

    A data loader takes batches from its workers in turn, so worker w of W makes batches w, w + W, w + 2W, ...
    """
    steps, own = train_steps(videos, batch_size, share.world), batch_size // share.world
    counts = [len(range(worker, steps, share.workers)) for worker in range(share.workers)]
    begin = share.rank * steps + sum(counts[: share.worker])
    return begin * own, (begin + counts[share.worker]) * own


def eval_part(videos: int, share: Share) -> tuple[int, int]:
    """The range of the list that a worker reads; all ranges together are the list."""
    parts, part = share.world * share.workers, share.rank * share.workers + share.worker
    return videos * part // parts, videos * (part + 1) // parts


def read_shuffled(
    entries: list[Entry], key: tuple[int | str, ...], skip: int, location: str
) -> Iterator[tuple[Entry, bytes]]:
    """Videos with their bytes, neighbours shuffled in blocks by an order drawn for the key, the first `skip` left out.

    Each shard is opened once and read forward; what is skipped is not read.
    """
    plan = []
    for number, begin in enumerate(range(0, len(entries), BLOCK)):
        block = entries[begin : begin + BLOCK]
        order = [block[i] for i in generator(*key, number).permutation(len(block))]
        plan.append(order[skip:])
        skip = max(0, skip - len(order))
    chosen = {entry.key for order in plan for entry in order}
    reader = read_in_order([entry for entry in entries if entry.key in chosen], location)
    for order in plan:
        found = {entry.key: data for entry, data in islice(reader, len(order))}
        for entry in order:
            yield entry, found.pop(entry.key)


def read_in_order(entries: list[Entry], location: str) -> Iterator[tuple[Entry, bytes]]:
    """Videos with their bytes; `entries` name each shard's videos together, in their stored order.

    `location` is the directory of the shards, or a pattern with the name of a shard such as
    "pipe:curl -s https://host/{shard}" or "s3://bucket/{shard}", which the `webdataset` package opens.
    """
    for shard, wanted in groupby(entries, key=lambda entry: entry.shard):
        if "{shard}" in location:
            yield from _from_stream(location.format(shard=shard), list(wanted))
        else:
            yield from _from_disk(f"{location}/{shard}", list(wanted))


def _from_disk(path: str, wanted: list[Entry]) -> Iterator[tuple[Entry, bytes]]:
    try:
        with open(path, "rb") as file:
            for entry in wanted:
                file.seek(entry.offset)
                yield entry, file.read(entry.size)
    except OSError as error:
        raise UserError(f"cannot read the shard {path}: {error.strerror}.") from None


def _from_stream(url: str, wanted: list[Entry]) -> Iterator[tuple[Entry, bytes]]:
    """Skips what comes before, and hangs up after the last."""
    by_name = {f"{entry.key}.mp4": entry for entry in wanted}
    try:
        with _open_url(url) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                entry = by_name.pop(member.name, None)
                content = tar.extractfile(member) if entry else None
                if entry and content:
                    yield entry, content.read()
                if not by_name:
                    # everything wanted has come: how the command takes being hung up on (curl: 23) does not matter
                    if hasattr(stream, "ignore_errors"):
                        stream.ignore_errors = True
                    return
    except (OSError, tarfile.TarError) as error:
        raise UserError(f"{url} broke off: {error}; is the command right and the shard whole?") from None
    raise UserError(f"{url} ended before {next(iter(by_name))}; is it the shard the index describes?")


def _open_url(url: str) -> Any:
    try:
        from webdataset.gopen import gopen
    except ImportError:
        raise MissingExtra(f"reading {url}", "shards") from None
    return gopen(url, "rb")
