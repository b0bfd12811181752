"""The first phase of a run with `stem="lite0"`: features of the frozen image network, computed once and kept.

Draw d of a video is the augmented clip it has in epoch d; epoch e of the phase trains on draw e mod `frozen_draws`.
Its features are stored in half precision beside the decoded videos, found by the content of the video, the clip
settings, the seed and the weights of the network, so that another run with the same finds them. Shards appear by
renaming, so an interrupted run goes on where it was; every clip is compared with its CRC-32 when it is read, and
computed again if it differs.

Legend: B clips, T frames, H rows, W columns of features, C channels.
"""

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fixformer.config import ClipSpec, DataConfig
from fixformer.config.schema import dump
from fixformer.data.listing import Sample
from fixformer.data.loading import VideoReader
from fixformer.data.loading.cache import content_digests
from fixformer.data.loading.datasets import Problem, TrainClips, collate_train
from fixformer.data.loading.order import VideoOrder, Visit, WorkerSlot, batches_per_epoch
from fixformer.models.layers.lite0 import Lite0Stem
from fixformer.runtime.console import note, printable
from fixformer.runtime.files import WriteError, cache_directory, make_output, replacing, require_regular
from fixformer.runtime.progress import Report

FORMAT = 1
# videos of a shard: what an interrupted run loses at most
SHARD_VIDEOS = 16
HALF = np.dtype("<f2")


@dataclass
class FeatureBatch:
    """Features of clips; as `TrainBatch`."""

    features_BTHWC: Tensor
    labels_B: Tensor
    index_B: Tensor
    problems: list[Problem]


class FrozenFeatures:
    """Features of the training videos, from the store or, where it has none, from pixels."""

    def __init__(
        self,
        samples: Sequence[Sample],
        spec: ClipSpec,
        data: DataConfig,
        stem: Lite0Stem,
        *,
        seed: int,
        draws: int,
        reader: VideoReader,
        device: torch.device,
    ) -> None:
        self.clips = TrainClips(samples, spec, seed=seed, reader=reader, unreadable=data.unreadable_train)
        self.samples, self.spec, self.stem, self.device = samples, spec, stem, device
        side = stem.grid(spec.size)
        self.shape = (spec.frames, side, side, stem.features.width)
        self.draws = draws
        place = cache_directory() / "clips" if data.cache == "auto" else Path(str(data.cache))
        self.home = place / f"features-{_digest(FORMAT, dump(spec), seed, _weights_digest(stem))}"
        self._digests = content_digests(samples, self.home, data.workers)
        self._maps: dict[tuple[int, int], np.ndarray | None] = {}
        most = int(data.cache_gb * 2**30 // max(1, len(samples) * self._clip_bytes))
        if most < draws:
            self.draws = max(1, most)
            note(
                f"features of {draws} draws would take more than cache_gb={data.cache_gb:g}; "
                + (f"keeping {most}." if most else "keeping none: they are computed in every epoch.")
            )
        self.is_stored = most > 0

    @property
    def _clip_bytes(self) -> int:
        """Of a clip in a shard: its CRC-32, then its features."""
        return 4 + HALF.itemsize * int(np.prod(self.shape))

    def fill(self, rank: int, world: int, report: Report | None = None) -> None:
        """Compute what is not stored yet; each process its share."""
        if not self.is_stored:
            return
        shards = [(draw, shard) for draw in range(self.draws) for shard in range(-(-len(self.samples) // SHARD_VIDEOS))]
        own = shards[rank::world]
        try:
            make_output(self.home, "cache")
            for done, (draw, shard) in enumerate(own, 1):
                path = self._path(draw, shard)
                if not path.is_file() or path.stat().st_size != len(self._videos(shard)) * self._clip_bytes:
                    self._write(path, draw, shard)
                if report:
                    report(done, len(own))
        except (OSError, WriteError) as error:
            self.is_stored = False
            note(printable(f"features cannot be kept ({error}); they are computed in every epoch."))

    def of(self, draw: int, indices: Sequence[int]) -> tuple[Tensor, list[Problem]]:
        """`features_BTHWC` of videos in float32 on the device."""
        found = [self._stored(draw, index) for index in indices]
        missing = [index for index, features in zip(indices, found, strict=True) if features is None]
        fresh, problems = self._compute(draw, missing) if missing else (torch.empty(0), [])
        rest = iter(fresh)
        rows = [next(rest) if features is None else torch.from_numpy(features) for features in found]
        return torch.stack(rows).to(self.device, torch.float32), problems

    def _videos(self, shard: int) -> range:
        return range(shard * SHARD_VIDEOS, min((shard + 1) * SHARD_VIDEOS, len(self.samples)))

    def _path(self, draw: int, shard: int) -> Path:
        """Named by what is in it: the ids, of which augmentation is drawn, and the contents of its videos."""
        videos = [(self.samples[index].id, self._digests[index]) for index in self._videos(shard)]
        return self.home / f"{_digest(draw, videos)}.bin"

    def _write(self, path: Path, draw: int, shard: int) -> None:
        features, problems = self._compute(draw, self._videos(shard))
        if problems:  # the place of a clip would hold another video's features
            return
        with replacing(path) as temporary, temporary.open("wb") as file:
            for row in features.numpy():
                content = row.astype(HALF).tobytes()
                file.write(zlib.crc32(content).to_bytes(4, "little"))
                file.write(content)

    def _stored(self, draw: int, index: int) -> np.ndarray | None:
        key = (draw, index // SHARD_VIDEOS)
        if key not in self._maps:
            path = self._path(*key)
            count = len(self._videos(key[1]))
            is_whole = self.is_stored and path.is_file() and path.stat().st_size == count * self._clip_bytes
            if is_whole:
                require_regular(path)
            self._maps[key] = np.memmap(path, np.uint8, "r").reshape(count, -1) if is_whole else None
        rows = self._maps[key]
        if rows is None:
            return None
        row = np.array(rows[index % SHARD_VIDEOS])
        if zlib.crc32(row[4:].tobytes()) != int.from_bytes(row[:4].tobytes(), "little"):
            return None
        return row[4:].view(HALF).reshape(self.shape)

    @torch.no_grad()
    def _compute(self, draw: int, indices: Sequence[int]) -> tuple[Tensor, list[Problem]]:
        """In half precision, as from the store."""
        batch = collate_train([self.clips.item(draw, Visit(index)) for index in indices])
        features = self.stem.extract(batch.inputs(self.spec, self.device))
        return features.half().cpu(), batch.problems


class FrozenLoader:
    """Batches of features; as `TrainLoader`, in the same order."""

    def __init__(
        self, features: FrozenFeatures, order: VideoOrder, *, batch_size: int, seed: int, rank: int, world: int
    ) -> None:
        self.features, self.order, self.batch_size, self.seed = features, order, batch_size, seed
        self.slot = WorkerSlot(rank, world)
        self.steps = batches_per_epoch(len(features.samples), batch_size, world)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[FeatureBatch]:
        """The batches of one epoch, without the first `start`."""
        samples, own = self.features.samples, self.batch_size // self.slot.world
        visits = self.order.train(self.seed, epoch, start, self.batch_size, self.slot)
        indices = [visit.index for visit in visits]
        for begin in range(0, len(indices), own):
            part = indices[begin : begin + own]
            features, problems = self.features.of(epoch % self.features.draws, part)
            labels = torch.tensor([samples[index].label for index in part])
            yield FeatureBatch(features, labels, torch.tensor(part), problems)


def _digest(*values: Any) -> str:
    return hashlib.blake2b(repr(values).encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()


def _weights_digest(stem: Lite0Stem) -> str:
    digest = hashlib.blake2b(digest_size=12)
    for name, value in stem.features.state_dict().items():
        digest.update(name.encode())
        digest.update(value.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
