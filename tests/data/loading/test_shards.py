"""Shards: readable by any tar, addressable like files, every epoch accounted for over processes and workers."""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import textwrap
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixformer.config import ClipSpec
from fixformer.data.audit.check import probe_files
from fixformer.data.audit.probe import ProbeCache
from fixformer.data.listing import Sample
from fixformer.data.listing.shards import Entry, ShardSet, is_shard_set, load_shards, read_index
from fixformer.data.loading import shard_stream
from fixformer.data.loading.shard_loader import ShardTrainLoader, shard_view_loader
from fixformer.data.loading.shard_stream import Share, eval_part, read_in_order, train_part, train_steps
from fixformer.data.prepare import shard_files as prepare_shards
from fixformer.data.prepare.encode import Encoded, Recipe
from fixformer.data.prepare.prepare import prepare
from fixformer.data.video import DecodeError, open_video
from fixformer.data.video.shard_member import read_member
from fixformer.errors import SettingsConflict, UserError
from videos import encode, textured

SPEC = ClipSpec(frames=4, size=32, short_side=32)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("source")
    seed = 0
    for split, count in (("train", 13), ("val", 4)):
        for name in ("clap", "wave"):
            folder = root / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                seed += 1
                (folder / f"{number}.mp4").write_bytes(encode(textured(seed, 6 + seed % 3)))
    return root


@pytest.fixture(scope="module")
def shards(source: Path, tmp_path_factory: pytest.TempPathFactory) -> ShardSet:
    target = tmp_path_factory.mktemp("shards") / "out"
    report = prepare(source, target, short_side=48, shards=True, shard_videos=6, workers=2)
    assert (report.videos, report.failed) == (34, [])
    return read_index(target)


def test_index_tells_where_every_video_is(shards: ShardSet) -> None:
    assert is_shard_set(shards.root)
    assert len(shards.entries) == 34
    assert Counter(entry.split for entry in shards.entries) == {"train": 26, "val": 8}
    assert {entry.shard for entry in shards.split("train")} == {f"train-00000{i}.tar" for i in range(5)}
    for entry in shards.entries:
        with tarfile.open(shards.root / entry.shard) as tar:
            member = tar.extractfile(f"{entry.key}.mp4")
            facts = json.load(tar.extractfile(f"{entry.key}.json"))
            content = member.read()
        assert content == read_member(f"{shards.root / entry.shard}::{entry.offset}+{entry.size}")
        assert facts["label"] == entry.label
        assert facts["class"] == shards.labels[entry.label]
        with open_video(content) as video:
            assert len(video) == entry.frames == facts["frames"]


def test_shards_are_listed_and_opened_like_files(shards: ShardSet, source: Path) -> None:
    index = load_shards(shards.root)
    assert index.labels == ["clap", "wave"]
    assert len(index.split("train")) == 26
    for sample in index.samples[::5]:
        with open_video(sample.path) as inside, open_video(source / sample.id) as outside:
            assert len(inside) == len(outside) == sample.frames
    torn = index.samples[0].path.replace("+", "+9")[:-1]
    with pytest.raises(DecodeError, match=r"tar::"), open_video(torn[: torn.rindex("+")] + "+40") as video:
        len(video)


def test_a_check_looks_into_shards(shards: ShardSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIXFORMER_CACHE", str(tmp_path))
    index = load_shards(shards.root)
    found = probe_files(index, ProbeCache(shards.root), workers=1)
    assert {one.path: one.frames for one in found} == {sample.path: sample.frames for sample in index.samples}
    assert len({one.digest for one in found}) == len(found)
    assert all(ProbeCache(shards.root).get(one.path) == one for one in found)


def test_webdataset_reads_them(shards: ShardSet) -> None:
    webdataset = pytest.importorskip("webdataset")
    urls = [str(path) for path in sorted(shards.root.glob("val-*.tar"))]
    found = list(webdataset.WebDataset(urls, shardshuffle=False))
    assert {sample["__key__"] for sample in found} == {entry.key for entry in shards.split("val")}
    assert all(set(sample) >= {"mp4", "json"} for sample in found)


def test_damaged_videos_are_listed_as_failed(source: Path, tmp_path: Path) -> None:
    root = tmp_path / "source"
    for path in sorted(source.rglob("*.mp4"))[::3]:
        place = root / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(path.read_bytes())
    victim = sorted((root / "train/clap").iterdir())[0]
    whole = victim.read_bytes()
    victim.write_bytes(b"torn")
    report = prepare(root, tmp_path / "out", shards=True, shard_videos=4, workers=1)
    assert [path for path, _ in report.failed] == [str(victim)]
    assert [sample.path for sample in load_shards(tmp_path / "out").missing] == [str(victim)]
    victim.write_bytes(whole)
    again = prepare(root, tmp_path / "out", shards=True, shard_videos=4, workers=1)
    assert again.failed == []
    assert again.videos == report.videos + 1


def test_finished_shards_are_not_made_again(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    make = prepare_shards._make_shard

    def stop_after_two(job: prepare_shards.ShardJob) -> prepare_shards.ShardDone:
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(job.name)
        return make(job)

    settings = {"short_side": 48, "shards": True, "shard_videos": 10, "workers": 1}
    monkeypatch.setattr(prepare_shards, "_make_shard", stop_after_two)
    with pytest.raises(KeyboardInterrupt):
        prepare(source, tmp_path / "out", **settings)
    monkeypatch.setattr(prepare_shards, "_make_shard", lambda job: made.append(job.name) or make(job))
    assert prepare(source, tmp_path / "out", **settings).videos == 34
    assert len(made) == len(set(made)) == 4


def test_a_crash_costs_one_video_not_its_shard(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reencode = prepare_shards.reencode

    def die_at_one(sample: Sample, recipe: Recipe) -> Encoded:
        if sample.path.endswith("train/wave/3.mp4"):
            os._exit(3)
        return reencode(sample, recipe)

    monkeypatch.setattr(prepare_shards, "reencode", die_at_one)
    report = prepare(source, tmp_path / "out", short_side=48, shards=True, shard_videos=20, workers=2)
    assert [Path(path).name for path, _ in report.failed] == ["3.mp4"]
    assert report.failed[0][1] == "the decoder crashed on it"
    assert report.videos == 33


def test_shards_of_another_list_are_made_again(source: Path, tmp_path: Path) -> None:
    root, target = tmp_path / "source", tmp_path / "out"
    shutil.copytree(source, root)
    settings = {"short_side": 48, "shards": True, "shard_videos": 8, "workers": 1}
    prepare(root, target, **settings)
    for split in ("train", "val"):
        shutil.copytree(root / split / "wave", root / split / "bow")
    assert prepare(root, target, **settings).videos == 34 + 17
    index = load_shards(target)
    assert Counter(s.split for s in index.samples) == {"train": 39, "val": 12}
    assert all(index.labels[s.label] == s.id.split("/")[1] for s in index.samples)
    entries = read_index(target).entries
    assert len({entry.key for entry in entries}) == len(entries)
    for split in ("train", "val"):
        shutil.rmtree(root / split / "clap")
    prepare(root, target, **settings)
    assert {path.name for path in target.glob("*.tar")} == {entry.shard for entry in read_index(target).entries}


def test_an_absent_or_torn_shard(shards: ShardSet, tmp_path: Path) -> None:
    root = tmp_path / "copy"
    shutil.copytree(shards.root, root)
    whole = load_shards(root)
    (root / "val-000000.tar").unlink()
    torn = root / "train-000000.tar"
    torn.write_bytes(torn.read_bytes()[: torn.stat().st_size // 2])
    index = load_shards(root)
    assert len(index.samples) + len(index.missing) == len(whole.samples)
    assert {s.split for s in index.missing} == {"train", "val"}
    for sample in index.missing:
        with pytest.raises(DecodeError, match=r"the shard (cannot be read|ends after)"):
            open_video(sample.path)
    assert load_shards(root, require_files=False).samples == whole.samples
    with pytest.raises(UserError, match=r"cannot read the shard .*val-000000.tar: No such file"):
        list(read_in_order([entry for entry in shards.entries if entry.shard == "val-000000.tar"], str(root)))


@pytest.mark.parametrize("command", ["head -c 3000 {root}/{{shard}}", "cat {root}/absent-{{shard}}"])
def test_a_pipe_that_breaks(shards: ShardSet, command: str) -> None:
    pytest.importorskip("webdataset")
    with pytest.raises(UserError, match="broke off"):
        list(read_in_order(shards.split("val"), "pipe:" + command.format(root=shards.root)))


@settings(deadline=None)
@given(videos=st.integers(1, 300), own=st.integers(1, 5), world=st.integers(1, 4), workers=st.integers(1, 4))
def test_training_parts(videos: int, own: int, world: int, workers: int) -> None:
    """Whole batches, disjoint, the same number on every process."""
    batch = own * world
    if videos < batch:
        with pytest.raises(UserError, match="larger than the training set"):
            train_steps(videos, batch, world)
        return
    steps = train_steps(videos, batch, world)
    seen: list[int] = []
    for rank in range(world):
        parts = [train_part(videos, batch, Share(rank, world, worker, workers)) for worker in range(workers)]
        assert all((end - begin) % own == 0 for begin, end in parts)
        assert sum(end - begin for begin, end in parts) == steps * own
        # the loader asks the workers in turn and must never find one empty while another still has batches
        counts = [(end - begin) // own for begin, end in parts]
        assert counts == sorted(counts, reverse=True)
        assert counts[0] - counts[-1] <= 1
        seen += [place for begin, end in parts for place in range(begin, end)]
    assert len(seen) == len(set(seen)) == steps * batch
    assert max(seen) < videos


@settings(deadline=None)
@given(videos=st.integers(0, 300), world=st.integers(1, 5), workers=st.integers(1, 4))
def test_test_parts_are_the_whole_list_once(videos: int, world: int, workers: int) -> None:
    seen = [
        place
        for rank in range(world)
        for worker in range(workers)
        for place in range(*eval_part(videos, Share(rank, world, worker, workers)))
    ]
    assert sorted(seen) == list(range(videos))


def test_batch_must_divide_between_processes() -> None:
    with pytest.raises(SettingsConflict, match="cannot be divided"):
        train_steps(100, 10, 3)


def epoch_of(shards: ShardSet, epoch: int, start: int = 0, **where: int) -> list[list[int]]:
    loader = ShardTrainLoader(shards, SPEC, seed=1, batch_size=4, **where)
    return [batch.index_B.tolist() for batch in loader.epoch(epoch, start)]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_an_epoch_from_any_batch_on(shards: ShardSet, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_stream, "BLOCK", 5)
    whole = epoch_of(shards, 0, workers=workers)
    assert len(whole) == 26 // 4
    flat = [place for batch in whole for place in batch]
    assert len(flat) == len(set(flat))
    assert epoch_of(shards, 0, workers=workers) == whole
    assert epoch_of(shards, 1, workers=workers) != whole
    for start in (1, 2, 5):
        assert epoch_of(shards, 0, start, workers=workers) == whole[start:]


def test_workers_that_live_on_learn_of_the_next_epoch(shards: ShardSet) -> None:
    loader = ShardTrainLoader(shards, SPEC, seed=1, batch_size=4, workers=2)
    epochs = [[batch.index_B.tolist() for batch in loader.epoch(epoch)] for epoch in (0, 1, 0)]
    assert epochs[0] == epochs[2] != epochs[1]


def test_processes_share_an_epoch(shards: ShardSet) -> None:
    parts = [epoch_of(shards, 3, rank=rank, world=2, workers=1) for rank in range(2)]
    assert [len(part) for part in parts] == [6, 6]
    flat = [place for part in parts for batch in part for place in batch]
    assert len(flat) == len(set(flat)) == 24


@pytest.mark.parametrize(("world", "workers"), [(1, 0), (2, 2), (3, 1)])
def test_every_test_video_once(shards: ShardSet, world: int, workers: int) -> None:
    seen: list[int] = []
    for rank in range(world):
        loader = shard_view_loader(shards, "val", SPEC, crops=3, batch_size=3, workers=workers, rank=rank, world=world)
        for batch in loader:
            assert batch.views_BVCTHW.shape[1:] == (3, 3, 4, 32, 32)
            seen += batch.index_B.tolist()
            assert batch.labels_B.tolist() == [shards.split("val")[i].label for i in batch.index_B.tolist()]
    assert sorted(seen) == list(range(8))


def test_clips_are_the_same_as_from_listed_shards(shards: ShardSet) -> None:
    """A clip depends on (seed, epoch, video), not on how the video was reached."""
    from fixformer.data.loading.datasets import TrainClips

    clips = TrainClips(load_shards(shards.root).split("train"), SPEC, seed=1)
    batch = next(ShardTrainLoader(shards, SPEC, seed=1, batch_size=4).epoch(2))
    for place, index in enumerate(batch.index_B.tolist()):
        assert np.array_equal(batch.video_BCTHW[place], clips[2, index].clip_CTHW)


@pytest.mark.parametrize("location", ["pipe:cat {root}/{{shard}}", "file:{root}/{{shard}}"])
def test_reading_through_a_pipe(shards: ShardSet, location: str) -> None:
    pytest.importorskip("webdataset")
    where = location.format(root=shards.root)
    wanted = [entry for entry in shards.entries if entry.split == "train"][2::2]
    assert list(read_in_order(wanted, where)) == list(read_in_order(wanted, str(shards.root)))
    piped = ShardTrainLoader(shards, SPEC, seed=1, batch_size=4, workers=2, location=where)
    assert [batch.index_B.tolist() for batch in piped.epoch(0)] == epoch_of(shards, 0, workers=2)


def test_a_pipe_with_the_wrong_shard(shards: ShardSet) -> None:
    pytest.importorskip("webdataset")
    first = shards.split("train")[0]
    stranger = Entry(**{**vars(first), "key": "999999999"})
    with pytest.raises(UserError, match="ended before 999999999"):
        list(read_in_order([stranger], f"pipe:cat {shards.root}/{{shard}}"))


def test_an_unreadable_video_in_a_stream(shards: ShardSet, tmp_path: Path) -> None:
    entry = shards.split("train")[0]
    torn = Entry(**{**vars(entry), "size": 100})
    broken = ShardSet(shards.root, shards.labels, [torn, *shards.split("train")[1:4]])
    with pytest.raises(UserError, match=entry.shard):
        list(ShardTrainLoader(broken, SPEC, seed=1, batch_size=2, workers=1).epoch(0))
    held_out = ShardSet(shards.root, shards.labels, [Entry(**{**vars(torn), "split": "val"})])
    (batch,) = shard_view_loader(held_out, "val", SPEC)
    assert [problem.id for problem in batch.problems] == [entry.id]


@pytest.mark.slow
def test_epoch_under_torchrun(shards: ShardSet, tmp_path: Path) -> None:
    """Two real processes: each training video at most once, equal steps; each test video exactly once."""
    script = tmp_path / "run.py"
    script.write_text(
        textwrap.dedent(
            """
            import json, os, sys
            from pathlib import Path
            import torch.distributed as dist
            from fixformer.config import ClipSpec
            from fixformer.data.loading.shard_loader import ShardTrainLoader, shard_view_loader
            from fixformer.data.listing.shards import read_index

            if __name__ == "__main__":
                dist.init_process_group("gloo")
                rank, world = dist.get_rank(), dist.get_world_size()
                shards, spec = read_index(sys.argv[1]), ClipSpec(frames=4, size=32, short_side=32)
                train = ShardTrainLoader(shards, spec, seed=0, batch_size=4, workers=2, rank=rank, world=world)
                steps = [batch.index_B.tolist() for batch in train.epoch(0)]
                views = shard_view_loader(shards, "val", spec, batch_size=3, workers=2, rank=rank, world=world)
                tested = [i for batch in views for i in batch.index_B.tolist()]
                Path(sys.argv[2], f"{rank}.json").write_text(json.dumps([steps, tested]))
                dist.barrier()
                dist.destroy_process_group()
            """
        )
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(shards.root), str(tmp_path)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (first, tested_first), (second, tested_second) = (
        json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)
    )
    assert len(first) == len(second) == 6
    trained = [place for batch in first + second for place in batch]
    assert len(trained) == len(set(trained)) == 24
    assert sorted(tested_first + tested_second) == list(range(8))


def test_a_command_may_fail_once_everything_wanted_has_come(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "big.tar", "w") as tar:
        for name, size in (("first.mp4", 10), ("second.mp4", 5_000_000)):
            member = tarfile.TarInfo(name)
            member.size = size
            tar.addfile(member, io.BytesIO(bytes(size)))
    first = Entry("first", "big.tar", 512, 10, 0, "train", 1, None, "first")
    # like curl, which ends with status 23 when nobody reads on
    command = f"pipe:cat {tmp_path}/{{shard}} || exit 23"
    assert list(read_in_order([first], command)) == [(first, bytes(10))]
