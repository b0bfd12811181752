"""Data sets and loader: the same batches for any number of workers and processes; failures recorded, never hidden."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fixformer.config import Augment, ClipSpec, DataConfig
from fixformer.data.clips import views
from fixformer.data.clips.frames import open_frames
from fixformer.data.clips.transforms import normalise
from fixformer.data.listing import Index, Sample, load_index
from fixformer.data.loading import index_of, train_loader, view_loader
from fixformer.data.loading.datasets import TestVideos, TrainBatch, TrainClips
from fixformer.data.loading.loaders import TrainLoader, ViewLoader
from fixformer.data.loading.order import RandomAccess, Visit, WorkerSlot, batches_per_epoch
from fixformer.data.loading.reader import DecodingReader
from fixformer.data.loading.table import SampleTable
from fixformer.data.synthetic import make_motions
from fixformer.data.video import DecodeError
from fixformer.errors import SettingsConflict, UserError

SPEC = ClipSpec(
    frames=4, size=24, augment=Augment(jitter=(28, 36), policy="rand", flip=0.5, colour=0.2, erase=0.5, span=0.7)
)


@pytest.fixture(scope="module")
def motions(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return load_index(make_motions(tmp_path_factory.mktemp("set") / "motions", 24, size=(32, 40), workers=0))


@pytest.fixture(scope="module")
def damaged(motions: Index, tmp_path_factory: pytest.TempPathFactory) -> list[Sample]:
    """Twelve videos, the fourth of them no video at all."""
    samples = motions.samples[:12]
    broken = tmp_path_factory.mktemp("broken") / "broken.webm"
    broken.write_bytes(b"this is not a video" * 50)
    return [replace(s, path=str(broken), id="broken") if i == 3 else s for i, s in enumerate(samples)]


def same(a: TrainBatch, b: TrainBatch) -> bool:
    return all(
        torch.equal(getattr(a, name), getattr(b, name)) for name in ("video_BCTHW", "boxes_B4", "labels_B", "index_B")
    )


def loader(samples: list[Sample], workers: int = 0, seed: int = 5, **options: int) -> TrainLoader:
    return TrainLoader(TrainClips(samples, SPEC, seed=seed), batch_size=4, workers=workers, **options)


def test_workers_do_not_change_the_batches(motions: Index) -> None:
    plain, spread = (loader(motions.samples, workers) for workers in (0, 2))
    for epoch in (0, 1):
        pairs = list(zip(plain.epoch(epoch), spread.epoch(epoch), strict=True))
        assert len(pairs) == 6
        assert all(same(a, b) for a, b in pairs)


def test_epochs_differ_in_order_and_in_augmentation(motions: Index) -> None:
    clips = TrainClips(motions.samples, SPEC, seed=5)
    first, second = (clips.item(epoch, Visit(3)).clip_CTHW for epoch in (0, 1))
    assert not torch.equal(first, second)
    assert torch.equal(second, TrainClips(motions.samples[3:4], SPEC, seed=5).item(1, Visit(0)).clip_CTHW)
    orders = [[b.index_B.tolist() for b in loader(motions.samples).epoch(epoch)] for epoch in (0, 1)]
    assert orders[0] != orders[1]
    assert all(sorted(i for batch in order for i in batch) == list(range(24)) for order in orders)


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_resuming_in_an_epoch_gives_the_same_batches(motions: Index, workers: int) -> None:
    first = loader(motions.samples)
    whole = []
    state = {}
    for step, batch in enumerate(first.epoch(2)):
        whole.append(batch)
        if step == 3:
            state = first.state_dict()
    again = loader(motions.samples, workers=workers)
    epoch, start = again.check_state(state)
    assert (epoch, start) == (2, 4)
    rest = list(again.epoch(epoch, start))
    assert len(rest) == 2
    assert all(same(a, b) for a, b in zip(rest, whole[4:], strict=True))
    assert first.state_dict() | {"epoch": 3, "step": 0} == first.state_dict()


def test_a_state_of_other_data_is_refused(motions: Index) -> None:
    state = loader(motions.samples).state_dict()
    with pytest.raises(UserError, match=r"samples=24\b.*samples=20\b"):
        loader(motions.samples[:20]).check_state(state)
    with pytest.raises(UserError, match=r"seed=5\b.*seed=6\b"):
        loader(motions.samples, seed=6).check_state(state)
    with pytest.raises(UserError, match="order="):
        loader(motions.samples[::-1]).check_state(state)
    moved = [replace(sample, path=f"/elsewhere/{sample.path}") for sample in motions.samples]
    assert loader(moved).check_state(state) == (0, 0)


def test_processes_share_every_global_batch(motions: Index) -> None:
    whole = list(loader(motions.samples).epoch(1))
    halves = [list(loader(motions.samples, rank=rank, world=2).epoch(1)) for rank in range(2)]
    for batch, *parts in zip(whole, *halves, strict=True):
        assert torch.equal(batch.video_BCTHW, torch.cat([part.video_BCTHW for part in parts]))


def test_batch_sizes_that_cannot_be() -> None:
    with pytest.raises(UserError, match=r"batch size 0\b"):
        batches_per_epoch(8, 0, 1)
    with pytest.raises(UserError, match=r"batch size 9\b.* 8 videos"):
        batches_per_epoch(8, 9, 1)
    with pytest.raises(SettingsConflict, match=r"batch size 4\b.* 3 processes"):
        batches_per_epoch(8, 4, 3)


def slots(world: int, workers: int) -> list[list[WorkerSlot]]:
    """By process, the slots of its workers."""
    return [[WorkerSlot(rank, world, worker, workers) for worker in range(workers)] for rank in range(world)]


def in_turn(parts: list[list[int]], batch: int, first: int = 0) -> list[list[int]]:
    """The batches of some workers as a data loader takes them, beginning with worker `first`."""
    batches, turn = [], first
    while any(parts):
        part = parts[turn % len(parts)]
        if part:
            batches.append([part.pop(0) for _ in range(min(batch, len(part)))])
        turn += 1
    return batches


@pytest.mark.parametrize("start", [0, 1, 4])
@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_training_order_is_the_same_for_any_number_of_workers(workers: int, world: int, start: int) -> None:
    order = RandomAccess(23)
    whole = [visit.index for visit in order.train(7, 3, 0, 4, WorkerSlot())]
    by_process = []
    for process in slots(world, workers):
        parts = [[visit.index for visit in order.train(7, 3, start, 4, slot)] for slot in process]
        by_process.append(in_turn(parts, 4 // world, first=start % workers))
    joined = [[index for part in batch for index in part] for batch in zip(*by_process, strict=True)]
    assert joined == [whole[begin : begin + 4] for begin in range(4 * start, 20, 4)]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("world", [1, 2, 3, 7])
@pytest.mark.parametrize("videos", [0, 1, 10, 23])
def test_every_test_video_exactly_once(videos: int, world: int, workers: int) -> None:
    dealt = []
    for process in slots(world, workers):
        parts = [[visit.index for visit in RandomAccess(videos).test(4, slot)] for slot in process]
        dealt.append([index for batch in in_turn(parts, 4) for index in batch])
    assert sorted(index for own in dealt for index in own) == list(range(videos))
    assert all(own == sorted(own) for own in dealt)
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


def test_unreadable_test_videos_are_recorded_and_not_replaced(damaged: list[Sample]) -> None:
    for workers in (0, 2):
        batches = list(ViewLoader(TestVideos(damaged, SPEC, clips=2, crops=3), batch_size=5, workers=workers))
        problems = [problem for batch in batches for problem in batch.problems]
        assert [(p.id, p.replaced_by) for p in problems] == [("broken", None)]
        assert "broken.webm" in problems[0].message
        seen = torch.cat([batch.index_B for batch in batches]).tolist()
        assert seen == [i for i in range(12) if i != 3]
        assert batches[0].views_BVCTHW.shape == (4, 6, 3, 4, 24, 24)


def test_a_batch_of_failures_only_is_empty(damaged: list[Sample]) -> None:
    (batch,) = ViewLoader(TestVideos(damaged[3:4], SPEC))
    assert len(batch.labels_B) == len(batch.index_B) == len(batch.views_BVCTHW) == 0
    assert len(batch.problems) == 1
    assert batch.inputs(SPEC).shape[0] == 0


def test_short_test_videos_are_failures_under_the_error_policy(motions: Index) -> None:
    spec = replace(SPEC, sampling="dense", stride=100, short_video="error", augment=replace(SPEC.augment, span=1.0))
    item = TestVideos(motions.samples, spec).item(Visit(0))
    assert item.views_VCTHW is None
    assert item.problem is not None
    assert "400 frames" in item.problem.message


def test_unreadable_train_videos_stop_training_by_default(damaged: list[Sample]) -> None:
    for workers in (0, 1):
        with pytest.raises(DecodeError, match=r"^\S+broken\.webm[^\n]*$"):
            list(loader(damaged, workers).epoch(0))


def test_a_part_that_the_video_does_not_have_stops_training_and_names_the_file(motions: Index) -> None:
    sample = replace(motions.samples[0], start=100.0, end=110.0)
    with pytest.raises(UserError, match=f"^{sample.path}: .* from 100 s to 110 s"):
        TrainClips([sample], SPEC, seed=5).item(0, Visit(0))
    problem = TestVideos([sample], SPEC).item(Visit(0)).problem
    assert problem is not None
    assert "from 100 s to 110 s" in problem.message


def test_replacement_is_of_the_same_class_reproducible_and_recorded(damaged: list[Sample]) -> None:
    samples = [replace(s, label=i % 2) for i, s in enumerate(damaged)]
    clips = TrainClips(samples, SPEC, seed=5, unreadable="replace")
    item, again, *later = (clips.item(epoch, Visit(3)) for epoch in (0, 0, *range(1, 8)))
    assert item.label == 1
    assert item.problem is not None
    assert item.problem.id == "broken"
    assert item.problem.replaced_by == samples[item.index].id
    assert samples[item.index].label == 1
    assert torch.equal(item.clip_CTHW, again.clip_CTHW)
    assert len({other.index for other in later}) > 1
    batches = list(TrainLoader(clips, batch_size=4).epoch(0))
    assert [p.id for batch in batches for p in batch.problems] == ["broken"]


def test_replacement_gives_up_when_the_class_has_nothing_readable(damaged: list[Sample]) -> None:
    clips = TrainClips(damaged, SPEC, seed=5, unreadable="replace")  # the only video of its class
    with pytest.raises(UserError, match=r"broken\.webm is unreadable .*in its place"):
        clips.item(0, Visit(3))


def test_a_passing_failure_is_no_failure(motions: Index) -> None:
    class Stumbling(DecodingReader):
        calls = 0

        def open(self, index: int, sample: Sample, content: bytes | None = None):  # type: ignore[no-untyped-def]
            self.calls += 1
            if self.calls % 2:
                raise DecodeError("gave up after 60 s", file=sample.path)
            return super().open(index, sample, content)

    assert TestVideos(motions.samples, SPEC, reader=Stumbling(SPEC)).item(Visit(0)).problem is None
    clips = TrainClips(motions.samples, SPEC, seed=5, reader=Stumbling(SPEC), unreadable="replace")
    item, plain = clips.item(0, Visit(0)), TrainClips(motions.samples, SPEC, seed=5).item(0, Visit(0))
    assert item.problem is None
    assert torch.equal(item.clip_CTHW, plain.clip_CTHW)


def test_a_video_that_was_read_already_gives_the_same_clip(motions: Index) -> None:
    clips = TrainClips(motions.samples, SPEC, seed=5)
    content = Path(motions.samples[4].path).read_bytes()
    assert torch.equal(clips.item(1, Visit(4)).clip_CTHW, clips.item(1, Visit(4, content)).clip_CTHW)


def test_an_unreadable_video_without_a_file_is_named(motions: Index) -> None:
    sample = replace(motions.samples[0], path="set/train-0.tar::512+9", id="original.mp4")
    with pytest.raises(DecodeError, match=r"^set/train-0\.tar::512\+9 \(original\.mp4\): [^<\n]*$"):
        TrainClips([sample], SPEC, seed=5).item(0, Visit(0, b"no video!"))
    problem = TestVideos([sample], SPEC).item(Visit(0, b"no video!")).problem
    assert problem is not None
    assert "train-0.tar" in problem.message


def test_inputs_are_normalised_then_erased(motions: Index) -> None:
    batch = next(iter(loader(motions.samples).epoch(0)))
    got = batch.inputs(SPEC)
    plain = normalise(batch.video_BCTHW, SPEC.mean, SPEC.std)
    assert (batch.boxes_B4[:, 2] > 0).any()
    for clip, full, (top, left, height, width) in zip(got, plain, batch.boxes_B4.tolist(), strict=True):
        inside = torch.zeros(24, 24, dtype=torch.bool)
        inside[top : top + height, left : left + width] = True
        assert (clip[:, :, inside] == 0).all()
        assert torch.equal(clip[:, :, ~inside], full[:, :, ~inside])


def test_one_preprocessing_everywhere(motions: Index) -> None:
    """Evaluation, prediction from a file, its bytes and an open file make the same tensors."""
    sample = motions.samples[2]
    (batch,) = ViewLoader(TestVideos([sample], SPEC, clips=2, crops=3))
    expected = batch.inputs(SPEC)[0]
    assert expected.shape == (6, 3, 4, 24, 24)
    assert torch.equal(views.file_views(sample.path, SPEC, 2, 3), expected)
    assert torch.equal(views.file_views(Path(sample.path).read_bytes(), SPEC, 2, 3), expected)
    with Path(sample.path).open("rb") as file:
        assert torch.equal(views.file_views(file, SPEC, 2, 3), expected)
    assert torch.equal(views.file_views(sample.path, SPEC, 1, 1)[0], expected[1])


class _Frames:
    """A video held in memory."""

    def __init__(self, frames: np.ndarray, fps: float | None = 10.0, timestamps: np.ndarray | None = None) -> None:
        self.frames, self.fps = frames, fps
        self.timestamps = np.arange(len(frames)) / (fps or 1) if timestamps is None else timestamps

    def __len__(self) -> int:
        return len(self.frames)

    def get_frames(self, indices: object) -> np.ndarray:
        return self.frames[np.asarray(indices)]


def counted(n: int) -> np.ndarray:
    """Frames that say their own number."""
    return np.broadcast_to(np.arange(n, dtype=np.uint8)[:, None, None, None], (n, 24, 24, 3)).copy()


def shown(video: torch.Tensor) -> list[int]:
    return video[0, :, 0, 0].tolist()


def test_views_are_clip_major() -> None:
    video = _Frames(np.concatenate([counted(40), 255 - counted(40)], axis=2))
    six = views.make_view_bytes(video, SPEC, 2, 3)
    middles, starts = views.view_indices(video, SPEC, 2).tolist()
    assert [shown(view) for view in six[:2]] == [middles, middles]
    assert [shown(view) for view in six[3:5]] == [starts, starts]
    assert [shown(255 - view) for view in (six[2], six[5])] == [middles, starts]


def test_dense_clips_follow_the_frame_rate() -> None:
    spec = ClipSpec(frames=4, sampling="dense", stride=5, fps=10.0, size=24, augment=Augment(crop="centre"))
    at_rate = views.make_view_bytes(_Frames(counted(100), 10.0), spec, 1, 1)[0]
    doubled = views.make_view_bytes(_Frames(counted(100), 20.0), spec, 1, 1)[0]
    assert shown(at_rate) == [0, 6, 12, 19]
    assert shown(doubled) == [0, 13, 26, 39]
    unknown = views.make_view_bytes(_Frames(counted(100), None), spec, 1, 1)[0]
    assert shown(unknown) == shown(at_rate)


def test_a_clock_in_seconds_sees_time_and_not_frames() -> None:
    spec = ClipSpec(frames=5, fps=10.0, clock="seconds", size=24, augment=Augment(crop="centre"))
    steady = np.arange(50) / 10
    slowing = np.concatenate([np.arange(40) / 40, 1 + np.arange(40) / 10])  # most frames in the first second
    assert shown(views.make_view_bytes(_Frames(counted(50), 10.0, steady), spec, 1, 1)[0]) == [5, 15, 24, 34, 44]
    by_time = shown(views.make_view_bytes(_Frames(counted(80), 16.0, slowing), spec, 1, 1)[0])
    assert [round(float(slowing[i]), 1) for i in by_time] == [0.5, 1.5, 2.4, 3.4, 4.4]


def test_a_part_of_a_file_is_a_video_of_its_own(motions: Index) -> None:
    sample = motions.samples[0]
    with open_frames(sample.path, SPEC) as whole, open_frames(sample.path, SPEC, start=0.5, end=1.0) as part:
        first = int(np.searchsorted(whole.timestamps, 0.5, side="right")) - 1
        assert 0 < len(part) < len(whole)
        assert len(part) == pytest.approx((whole.fps or 0) * 0.5, abs=1.5)
        assert (part.get_frames([0, 2]) == whole.get_frames([first, first + 2])).all()
        assert part.timestamps[0] == 0


def test_keep_frames_thins_the_video(motions: Index) -> None:
    path = motions.samples[0].path
    thin = replace(SPEC, keep_frames=6, keep_short_side=24)
    with open_frames(path, SPEC) as whole, open_frames(path, thin) as kept:
        assert len(kept) == 6
        assert kept.get_frames([0]).shape[1:] == (24, 30, 3)
        assert (kept.fps or 0) * len(whole) == pytest.approx((whole.fps or 0) * 6)


def test_sample_table_returns_what_went_in() -> None:
    samples = [
        Sample("/a/ü.mp4", 3, "train", "x", 0.5, None, 12, "signer"),
        Sample("", -1, "test", "", None, 2.25, None, None),
        Sample("b\udcff.mp4", 0, "val", "名前"),
    ]
    table = SampleTable(samples)
    assert [table[i] for i in range(len(table))] == samples
    assert table.id(2) == "名前"
    assert table.with_label(3).tolist() == [0]
    assert len(SampleTable([])) == 0


def test_config_to_loaders(motions: Index, tmp_path: Path) -> None:
    data = DataConfig(path=str(motions.root), workers=0, cache=str(tmp_path))
    index = index_of(data)
    assert index.samples == motions.samples
    cached = train_loader(index.split("train"), SPEC, data, batch_size=4, seed=5)
    plain = train_loader(index.split("train"), SPEC, replace(data, cache=None), batch_size=4, seed=5)
    assert all(same(a, b) for a, b in zip(cached.epoch(1), plain.epoch(1), strict=True))
    batches = list(view_loader(index.split("val"), SPEC, data, clips=2, crops=3, batch_size=5))
    assert sum(len(batch.labels_B) for batch in batches) == len(index.split("val")) == 12
    assert batches[0].inputs(SPEC).shape == (5, 6, 3, 4, 24, 24)
