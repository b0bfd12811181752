"""The balanced training order."""

from collections import Counter
from pathlib import Path

import pytest
import torch

from fixformer.config import ClipSpec, DataConfig
from fixformer.config.clip import Augment
from fixformer.data.listing import Sample
from fixformer.data.loading import train_loader
from fixformer.data.loading.datasets import TrainClips
from fixformer.data.loading.order import BalancedClasses, Visit, WorkerSlot
from fixformer.errors import SettingsConflict, UserError
from videos import class_folders, encode, textured

LABELS = [0] * 3 + [1] * 30 + [2] * 7
SPEC = ClipSpec(frames=2, size=16, augment=Augment(jitter=(16, 24)))


def visits(epoch: int, slot: WorkerSlot = WorkerSlot(), start: int = 0) -> list[Visit]:  # noqa: B008 - frozen
    return list(BalancedClasses(LABELS).train(5, epoch, start, 8, slot))


def test_every_class_equally_often_and_no_video_more_often_than_others_of_its_class() -> None:
    drawn = visits(0)
    assert len(drawn) == len(LABELS)  # 40 videos, 5 batches of 8
    assert max(Counter(LABELS[visit.index] for visit in drawn).values()) == 14
    assert min(Counter(LABELS[visit.index] for visit in drawn).values()) == 13
    times = Counter(visit.index for visit in drawn)
    assert {times[index] for index in range(3)} <= {4, 5}
    assert {times[index] for index in range(3, 33)} == {0, 1}
    for index, count in times.items():
        assert sorted(visit.draw for visit in drawn if visit.index == index) == list(range(count))


def test_the_order_follows_from_seed_and_epoch() -> None:
    assert visits(3) == visits(3)
    assert visits(3) != visits(4)
    large = {visit.index for epoch in range(12) for visit in visits(epoch) if LABELS[visit.index] == 1}
    assert large == set(range(3, 33))  # other videos of a large class in every epoch


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("start", [0, 3])
def test_processes_share_the_same_batches_and_a_resumed_epoch_goes_on(world: int, start: int) -> None:
    parts = [visits(2, WorkerSlot(rank, world), start) for rank in range(world)]
    own = 8 // world
    joined = [part[own * step : own * (step + 1)] for step in range(5 - start) for part in parts]
    assert [visit for part in joined for visit in part] == visits(2)[8 * start :]


def samples(folder: Path) -> list[Sample]:
    root = class_folders(folder / "set", {"train": 2}, lambda seed: encode(textured(seed, 4)))
    return [Sample(str(path), 0, "train", path.name) for path in sorted(root.rglob("*.mp4"))][:1]


def test_another_draw_of_a_video_is_another_clip(tmp_path: Path) -> None:
    clips = TrainClips(samples(tmp_path), SPEC, seed=1)
    first, again, other = (clips.item(0, Visit(0, draw=draw)).clip_CTHW for draw in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_stored_position_belongs_to_its_order(tmp_path: Path) -> None:
    videos = samples(tmp_path) * 4
    plain = train_loader(videos, SPEC, DataConfig(path="x", workers=0), batch_size=2, seed=0)
    balanced = train_loader(videos, SPEC, DataConfig(path="x", workers=0, balance="classes"), batch_size=2, seed=0)
    assert balanced.check_state(balanced.state_dict()) == (0, 0)
    with pytest.raises(UserError, match="balance"):
        balanced.check_state(plain.state_dict())


def test_a_stream_cannot_be_balanced() -> None:
    with pytest.raises(SettingsConflict, match="balance=none"):
        DataConfig(path="x", location="/shards", balance="classes").validate()
