"""Shards: readable by any tar, addressable like files, every epoch accounted for over processes and workers."""

import io
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import tarfile
import textwrap
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixformer.config import ClipSpec, DataConfig
from fixformer.data.audit.check import probe_files
from fixformer.data.audit.probe import ProbeCache
from fixformer.data.listing import Index, Sample
from fixformer.data.listing.shards import ShardSet, is_shard_set, load_shards, read_index
from fixformer.data.loading import shard_stream, train_loader, view_loader
from fixformer.data.loading.datasets import TrainClips
from fixformer.data.loading.loaders import TrainLoader
from fixformer.data.loading.order import Visit, WorkerSlot, batches_per_epoch
from fixformer.data.loading.shard_stream import ShardStream, eval_part, train_part
from fixformer.data.prepare import shard_files as prepare_shards
from fixformer.data.prepare.encode import Encoded, EncodeSettings
from fixformer.data.prepare.prepare import prepare
from fixformer.data.video import DecodeError, open_video
from fixformer.data.video.shard_member import read_member
from fixformer.errors import UserError
from videos import class_folders, encode, textured

SPEC = ClipSpec(frames=4, size=32, short_side=32)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return class_folders(
        tmp_path_factory.mktemp("source"), {"train": 13, "val": 4}, lambda seed: encode(textured(seed, 6 + seed % 3))
    )


@pytest.fixture(scope="module")
def shards(source: Path, tmp_path_factory: pytest.TempPathFactory) -> ShardSet:
    target = tmp_path_factory.mktemp("shards") / "out"
    report = prepare(source, target, short_side=48, shards=True, shard_videos=6, workers=2)
    assert (report.videos, report.failed) == (34, [])
    return read_index(target)


@pytest.fixture(scope="module")
def index(shards: ShardSet) -> Index:
    return load_shards(shards.root)


def read_all(samples: list[Sample], location: str) -> list[Visit]:
    return list(ShardStream(samples, location).test(1, WorkerSlot()))


def test_index_tells_where_every_video_is(shards: ShardSet) -> None:
    assert is_shard_set(shards.root)
    assert len(shards.entries) == 34
    assert Counter(entry.split for entry in shards.entries) == {"train": 26, "val": 8}
    names = {entry.shard for entry in shards.entries if entry.split == "train"}
    assert names == {f"train-00000{i}.tar" for i in range(5)}
    for entry in shards.entries:
        with tarfile.open(shards.root / entry.shard) as tar:
            member = tar.extractfile(f"{entry.key}.mp4")
            description = json.load(tar.extractfile(f"{entry.key}.json"))
            content = member.read()
        assert content == read_member(f"{shards.root / entry.shard}::{entry.offset}+{entry.size}")
        assert description["label"] == entry.label
        assert description["class"] == shards.labels[entry.label]
        with open_video(content) as video:
            assert len(video) == entry.frames == description["frames"]


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
    assert {sample["__key__"] for sample in found} == {entry.key for entry in shards.entries if entry.split == "val"}
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

    def die_at_one(sample: Sample, recipe: EncodeSettings) -> Encoded:
        if sample.path.endswith("train/wave/3.mp4"):
            os._exit(3)
        return reencode(sample, recipe)

    monkeypatch.setattr(prepare_shards, "reencode", die_at_one)
    report = prepare(source, tmp_path / "out", short_side=48, shards=True, shard_videos=20, workers=2)
    assert [Path(path).name for path, _ in report.failed] == ["3.mp4"]
    assert report.failed[0][1] == "the decoder crashed"
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


@pytest.mark.parametrize("damage", ["label", "offset", "shard", "extra", "json", "tar"])
def test_a_damaged_shard_is_made_again(source: Path, tmp_path: Path, damage: str) -> None:
    settings = {"short_side": 48, "shards": True, "shard_videos": 20, "workers": 1}
    prepare(source, tmp_path, **settings)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    sidecar = tmp_path / "val-000000.json"
    rows = json.loads(sidecar.read_text())
    first = rows["samples"][0]
    changed = {"label": 1 - first["label"], "offset": 10**12, "shard": "train-000000.tar", "extra": 1}
    first[damage] = changed.get(damage)
    if damage == "tar":
        os.truncate(tmp_path / "val-000000.tar", 1000)
    else:
        sidecar.write_text("{" if damage == "json" else json.dumps(rows))
    prepare(source, tmp_path, **settings)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


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
        with pytest.raises(DecodeError, match=r"^.*-000000\.tar::\d+\+\d+: "):
            open_video(sample.path)
    assert load_shards(root, require_files=False).samples == whole.samples
    with pytest.raises(UserError, match=r"val-000000.tar.*No such file"):
        read_all([sample for sample in whole.samples if "val-000000.tar" in sample.path], str(root))


@pytest.mark.parametrize("command", ["head -c 3000 {root}/{{shard}}", "cat {root}/absent-{{shard}}"])
def test_a_pipe_that_breaks(index: Index, command: str) -> None:
    location = "pipe:" + command.format(root=index.root)
    with pytest.raises(UserError, match=f"^cannot read {location.format(shard='val-000000.tar')} "):
        read_all(index.split("val"), location)


@settings(deadline=None)
@given(videos=st.integers(1, 300), own=st.integers(1, 5), world=st.integers(1, 4), workers=st.integers(1, 4))
def test_training_parts(videos: int, own: int, world: int, workers: int) -> None:
    """Whole batches, disjoint, the same number on every process."""
    batch = own * world
    if videos < batch:
        with pytest.raises(UserError, match=rf"{batch}\b.*{videos} videos"):
            batches_per_epoch(videos, batch, world)
        return
    steps = batches_per_epoch(videos, batch, world)
    seen: list[int] = []
    for rank in range(world):
        parts = [train_part(videos, batch, WorkerSlot(rank, world, worker, workers)) for worker in range(workers)]
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
        for place in range(*eval_part(videos, WorkerSlot(rank, world, worker, workers)))
    ]
    assert sorted(seen) == list(range(videos))


def stream_loader(samples: list[Sample], location: str, **where: int) -> TrainLoader:
    """Streamed batches of 4."""
    return TrainLoader(TrainClips(samples, SPEC, seed=1), ShardStream(samples, location), batch_size=4, **where)


def epoch_of(index: Index, epoch: int, start: int = 0, **where: int) -> list[list[int]]:
    loader = stream_loader(index.split("train"), str(index.root), **where)
    return [batch.index_B.tolist() for batch in loader.epoch(epoch, start)]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_an_epoch_from_any_batch_on(index: Index, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_stream, "BLOCK", 5)
    whole = epoch_of(index, 0, workers=workers)
    assert len(whole) == 26 // 4
    flat = [place for batch in whole for place in batch]
    assert len(flat) == len(set(flat))
    assert epoch_of(index, 0, workers=workers) == whole
    assert epoch_of(index, 1, workers=workers) != whole
    for start in (1, 2, 5):
        assert epoch_of(index, 0, start, workers=workers) == whole[start:]


def test_a_worker_holds_no_more_than_a_block(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_stream, "BLOCK", 5)
    stream = ShardStream(index.split("train"), str(index.root))
    arrived = []
    read = stream._read
    monkeypatch.setattr(stream, "_read", lambda part: (arrived.append(visit) or visit for visit in read(part)))
    for consumed, visit in enumerate(stream.train(1, 0, 0, 2, WorkerSlot()), 1):
        assert visit in arrived
        assert len(arrived) - consumed < 5
    assert len(arrived) == 26


def test_a_stream_of_many_videos_is_small() -> None:
    """In arrays: what workers touch of Python objects, they copy."""
    samples = [Sample(f"set/train-{i // 100:06d}.tar::{512 * i}+512", 0, "train", str(i)) for i in range(10_000)]
    assert len(pickle.dumps(ShardStream(samples, "set"))) < 25 * len(samples)


def test_persistent_workers_see_the_next_epoch(index: Index) -> None:
    loader = stream_loader(index.split("train"), str(index.root), workers=2)
    epochs = [[batch.index_B.tolist() for batch in loader.epoch(epoch)] for epoch in (0, 1, 0)]
    assert epochs[0] == epochs[2] != epochs[1]


def test_processes_share_an_epoch(index: Index) -> None:
    parts = [epoch_of(index, 3, rank=rank, world=2, workers=1) for rank in range(2)]
    assert [len(part) for part in parts] == [6, 6]
    flat = [place for part in parts for batch in part for place in batch]
    assert len(flat) == len(set(flat)) == 24


def test_a_position_in_a_stream_belongs_to_the_number_of_readers(index: Index) -> None:
    samples, root = index.split("train"), str(index.root)
    state = stream_loader(samples, root, workers=2).state_dict()
    assert stream_loader(samples, root, workers=2).check_state(state) == (0, 0)
    with pytest.raises(UserError, match=r"1 x 2.*1 x 1"):
        stream_loader(samples, root, workers=0).check_state(state)


@pytest.mark.parametrize(("world", "workers"), [(1, 0), (2, 2), (3, 1)])
def test_every_test_video_once(index: Index, world: int, workers: int) -> None:
    seen: list[int] = []
    samples = index.split("val")
    data = DataConfig(path=str(index.root), location=str(index.root), workers=workers)
    for rank in range(world):
        for batch in view_loader(samples, SPEC, data, crops=3, batch_size=3, rank=rank, world=world):
            assert batch.views_BVCTHW.shape[1:] == (3, 3, 4, 32, 32)
            seen += batch.index_B.tolist()
            assert batch.labels_B.tolist() == [samples[i].label for i in batch.index_B.tolist()]
    assert sorted(seen) == list(range(8))


def test_clips_are_the_same_as_from_listed_shards(index: Index) -> None:
    """A clip depends on (seed, epoch, video), not on how the video was reached."""
    samples = index.split("train")
    clips = TrainClips(samples, SPEC, seed=1)
    batch = next(stream_loader(samples, str(index.root)).epoch(2))
    for place, number in enumerate(batch.index_B.tolist()):
        assert np.array_equal(batch.video_BCTHW[place], clips.item(2, Visit(number)).clip_CTHW)


@pytest.mark.parametrize("location", ["pipe:cat {root}/{{shard}}", "file:{root}/{{shard}}"])
def test_reading_through_a_pipe(index: Index, location: str) -> None:
    where = location.format(root=index.root)
    samples = index.split("train")
    piped = read_all(samples[2::2], where)
    assert piped == read_all(samples[2::2], str(index.root))
    assert [visit.content for visit in piped] == [read_member(sample.path) for sample in samples[2::2]]
    loader = stream_loader(samples, where, workers=2)
    assert [batch.index_B.tolist() for batch in loader.epoch(0)] == epoch_of(index, 0, workers=2)


@pytest.mark.parametrize(("offset", "size"), [(512, 7), (513, None), (10**9, None)])
def test_a_pipe_with_the_wrong_shard(index: Index, offset: int, size: int | None) -> None:
    """A member is only taken if it is where the index says, and as long."""
    first = index.split("train")[0]
    tar, place = first.path.split("::")
    size = size or int(place.split("+")[1])
    stranger = replace(first, path=f"{tar}::{offset}+{size}")
    with pytest.raises(UserError, match=rf"train-000000\.tar .*\b{size} bytes at byte {offset}\b"):
        read_all([stranger], f"pipe:cat {index.root}/{{shard}}")


@pytest.mark.parametrize("workers", [0, 1])
def test_an_unreadable_video_in_a_stream(index: Index, workers: int) -> None:
    first, *others = index.split("train")[:4]
    torn = replace(first, path=first.path[: first.path.rindex("+")] + "+100")
    data = DataConfig(path=str(index.root), location=str(index.root), workers=workers)
    with pytest.raises(DecodeError, match=rf"^{re.escape(torn.path)} \({first.id}\): [^\n]*$"):
        list(train_loader([torn, *others], SPEC, data, batch_size=2, seed=1).epoch(0))
    (batch,) = view_loader([torn], SPEC, data)
    assert [problem.id for problem in batch.problems] == [first.id]
    assert batch.problems[0].message.startswith(torn.path)


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
            from fixformer.config import ClipSpec, DataConfig
            from fixformer.data.loading import index_of, train_loader, view_loader

            if __name__ == "__main__":
                dist.init_process_group("gloo")
                rank, world = dist.get_rank(), dist.get_world_size()
                data, spec = DataConfig(sys.argv[1], location=sys.argv[1]), ClipSpec(frames=4, size=32, short_side=32)
                index, place = index_of(data), {"rank": rank, "world": world}
                train = train_loader(index.split("train"), spec, data, seed=0, batch_size=4, **place)
                steps = [batch.index_B.tolist() for batch in train.epoch(0)]
                views = view_loader(index.split("val"), spec, data, batch_size=3, **place)
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
    first = Sample(f"{tmp_path}/big.tar::512+10", 0, "train", "first")
    # like curl, which ends with status 23 when nobody reads on
    command = f"pipe:sh -c 'cat {tmp_path}/{{shard}} || exit 23'"
    assert read_all([first], command) == [Visit(0, bytes(10))]
