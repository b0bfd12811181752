"""Shards that are read from front to back, from disk or through a pipe: for sets on slow or remote storage.

The order of an epoch is a list of all videos: the shards in an order drawn for (seed, epoch), each from its beginning.
Processes and their workers take contiguous parts of that list, so what each reads is known before anything is read, and
no process needs to know what the others do. For training all parts are whole batches, equal in number on every process;
for testing the parts together are the list: nothing is dropped and nothing repeated.
"""

import os
import tarfile
from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from fixformer.config.location import PLACE, shard_command, shard_file
from fixformer.data.listing import Sample
from fixformer.data.loading.order import Visit, WorkerSlot, batches_per_epoch
from fixformer.data.loading.piped_command import running
from fixformer.data.video.shard_member import parse_member, read_part
from fixformer.data.video.source_file import require_content
from fixformer.errors import UserError
from fixformer.runtime.files import open_file
from fixformer.runtime.seeds import generator

# Neighbours are shuffled in blocks of so many videos, which is also how many a worker holds in memory. `prepare` has
# shuffled the whole set over its shards, so this only has to give batches another composition in every epoch.
BLOCK = 128


class ShardStream:
    """A `VideoOrder` over videos in tar shards.

    Args:
        samples: with the paths of members (`DIR/train-000000.tar::512+90000`); each shard's together, as stored.
        location: as for `DataConfig`.
    """

    depends_on_workers = True
    balance = "none"

    def __init__(self, samples: Sequence[Sample], location: str) -> None:
        members = [parse_member(sample.path) for sample in samples]
        names = [os.path.basename(member.tar) for member in members if member]
        assert len(names) == len(samples), "samples of a shard set have the paths of members"
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        # in arrays, like the samples (see `table`)
        self._names = list(numbers)
        self._shard = np.array([numbers[name] for name in names], np.int32)
        self._place = np.array([(member.offset, member.size) for member in members if member], np.int64).reshape(-1, 2)
        self._location = location

    def train(self, seed: int, epoch: int, start: int, batch_size: int, slot: WorkerSlot) -> Iterator[Visit]:
        begin, end = train_part(len(self._shard), batch_size, slot)
        shards = np.split(np.arange(len(self._shard)), np.flatnonzero(np.diff(self._shard)) + 1)
        drawn = generator(seed, epoch, "shards").permutation(len(shards))
        part = np.concatenate([shards[number] for number in drawn])[begin:end]
        order = np.empty_like(part)
        for number, first in enumerate(range(0, len(part), BLOCK)):
            block = part[first : first + BLOCK]
            rng = generator(seed, epoch, slot.rank, slot.worker, number)
            order[first : first + BLOCK] = block[rng.permutation(len(block))]
        done = len(slot.batches(0, start)) * (batch_size // slot.world)
        return self._in_turn(part, order[done:])

    def test(self, batch_size: int, slot: WorkerSlot) -> Iterator[Visit]:
        begin, end = eval_part(len(self._shard), slot)
        return self._read(np.arange(begin, end))

    def _in_turn(self, part: np.ndarray, order: np.ndarray) -> Iterator[Visit]:
        """The videos of `order`, read in the sequence of `part`; what comes before its turn is held until then."""
        arriving = self._read(part[np.isin(part, order)])
        held: dict[int, Visit] = {}
        for index in order.tolist():
            while index not in held:
                visit = next(arriving)
                held[visit.index] = visit
            yield held.pop(index)

    def _read(self, indices: np.ndarray) -> Iterator[Visit]:
        """Each shard is opened once and read forward."""
        for shard, members in groupby(indices.tolist(), key=self._shard.__getitem__):
            wanted = {tuple(self._place[index].tolist()): index for index in members}
            name = self._names[shard]
            if words := shard_command(self._location, name):
                yield from _read_command(self._location.replace(PLACE, name), words, wanted)
            else:
                yield from _read_file(shard_file(self._location, name), wanted)


def train_part(videos: int, batch_size: int, slot: WorkerSlot) -> tuple[int, int]:
    """The range of the epoch's list that a worker reads: whole batches, as many as it makes."""
    steps, own = batches_per_epoch(videos, batch_size, slot.world), batch_size // slot.world
    counts = [len(range(worker, steps, slot.workers)) for worker in range(slot.workers)]
    begin = slot.rank * steps + sum(counts[: slot.worker])
    return begin * own, (begin + counts[slot.worker]) * own


def eval_part(videos: int, slot: WorkerSlot) -> tuple[int, int]:
    """The range of the list that a worker reads; all ranges together are the list."""
    parts, part = slot.world * slot.workers, slot.rank * slot.workers + slot.worker
    return videos * part // parts, videos * (part + 1) // parts


def _read_file(path: str, wanted: dict[tuple[int, ...], int]) -> Iterator[Visit]:
    """The members at the wanted places (offset, size) of a shard on disk."""
    try:
        require_content(path)
        with open_file(path, "rb") as file:
            for (offset, size), index in wanted.items():
                yield Visit(index, read_part(file, offset, size))
    except OSError as error:
        raise UserError(f"cannot read the shard {path}: {error.strerror}.") from None


def _read_command(name: str, words: list[str], wanted: dict[tuple[int, ...], int]) -> Iterator[Visit]:
    """The same of what a command prints; it is stopped after the last of them. `name` is for messages."""
    left = dict(wanted)
    with running(words) as command:
        damage: Exception | None = None
        try:
            with tarfile.open(fileobj=command.output, mode="r|") as tar:
                for member in tar:
                    place = (member.offset_data, member.size)
                    if place in left and (content := tar.extractfile(member)):
                        yield Visit(left.pop(place), content.read())
                    if not left:
                        return
        except (OSError, ValueError, tarfile.TarError) as error:
            damage = error
        if problem := command.failure() or damage:
            raise UserError(f"cannot read {name} to its end: {problem}; check the command and the shard.")
    offset, size = next(iter(left))
    raise UserError(f"{name} has no video of {size} bytes at byte {offset}; is it the shard that the index describes?")
