"""The decode-once cache: equal to decoding, keyed by content and settings, safe against interruption."""

import json
import os
import pickle
import re
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fixformer.config import Augment, ClipSpec, DataConfig
from fixformer.data.listing import Sample, load_index
from fixformer.data.loading import cache, reader_for
from fixformer.data.loading.cache import CachedReader, fill_cache
from fixformer.data.loading.datasets import TestVideos, TrainClips
from fixformer.data.loading.order import Visit
from fixformer.data.loading.reader import DecodingReader, VideoReader
from fixformer.data.prepare.encode import Encoded
from fixformer.data.prepare.shard_files import append_video
from fixformer.data.synthetic import make_motions
from fixformer.errors import InputError, UserError
from videos import jpeg, moving_square

SPEC = ClipSpec(
    frames=4, size=20, keep_frames=12, keep_short_side=24, augment=Augment(jitter=(20, 26), policy="v0", span=0.8)
)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list[Sample]:
    index = load_index(make_motions(tmp_path_factory.mktemp("set") / "motions", 24, size=(32, 40), workers=0))
    return index.samples[:10]


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "SHARD_VIDEOS", 4)


class CountingReader(DecodingReader):
    """Knows how many videos it decoded (in this process)."""

    opened = 0

    def open(self, index: int, sample: Sample, content: bytes | None = None):  # type: ignore[no-untyped-def]
        self.opened += 1
        return super().open(index, sample, content)


@pytest.mark.parametrize("spec", [SPEC, replace(SPEC, keep_frames=None), replace(SPEC, fps=8.0, clock="seconds")])
def test_cached_clips_equal_decoded_clips(spec: ClipSpec, samples: list[Sample], tmp_path: Path) -> None:
    decoding = DecodingReader(spec)
    cached = CachedReader(fill_cache(samples, decoding, tmp_path), decoding)
    assert all(i in cached.table for i in range(len(samples)))
    for i in range(len(samples)):
        train = [TrainClips(samples, spec, seed=1, reader=reader).item(3, Visit(i)) for reader in (cached, decoding)]
        assert torch.equal(train[0].clip_CTHW, train[1].clip_CTHW)
        videos = [TestVideos(samples, spec, clips=2, crops=3, reader=reader) for reader in (cached, decoding)]
        one, other = (video.item(Visit(i)).views_VCTHW for video in videos)
        assert one is not None
        assert other is not None
        assert torch.equal(one, other)


def test_filling_again_decodes_nothing(samples: list[Sample], tmp_path: Path, small_shards: None) -> None:
    reader = CountingReader(SPEC)
    reports: list[tuple[int, int]] = []
    fill_cache(samples[:6], reader, tmp_path, progress=lambda done, total: reports.append((done, total)))
    assert reader.opened == 6
    assert reports[-1] == (6, 6)
    fill_cache(samples[:6], reader, tmp_path)
    assert reader.opened == 6
    fill_cache(samples, reader, tmp_path)
    assert reader.opened == 10


def test_processes_fill_the_same_cache(samples: list[Sample], tmp_path: Path, small_shards: None) -> None:
    reader = DecodingReader(SPEC)
    alone = fill_cache(samples, reader, tmp_path / "a")
    spread = fill_cache(samples, reader, tmp_path / "b", workers=2)
    assert len(list((tmp_path / "b").rglob("*.bin"))) == 3
    for i in range(len(samples)):
        a, b = alone.frames(i), spread.frames(i)
        assert (a.get_frames(range(len(a))) == b.get_frames(range(len(b)))).all()
        assert (a.timestamps == b.timestamps).all()
        assert a.fps == b.fps


def test_settings_do_not_share_entries(samples: list[Sample], tmp_path: Path) -> None:
    reader = CountingReader(SPEC)
    fill_cache(samples[:2], reader, tmp_path)
    for other in (replace(SPEC, keep_frames=5), replace(SPEC, keep_short_side=16)):
        table = fill_cache(samples[:2], DecodingReader(other), tmp_path)
        assert len(table.frames(0)) == (other.keep_frames or 0)
    assert len(list(tmp_path.iterdir())) == 3
    # how clips are cut makes no difference
    fill_cache(samples[:2], DecodingReader(replace(SPEC, frames=8, size=16)), tmp_path)
    assert len(list(tmp_path.iterdir())) == 3


def test_moved_files_are_known_and_changed_files_are_not(samples: list[Sample], tmp_path: Path) -> None:
    reader = CountingReader(SPEC)
    home = tmp_path / "cache"
    fill_cache(samples[:2], reader, home)
    moved = tmp_path / "elsewhere.webm"
    shutil.copy(samples[0].path, moved)
    fill_cache([replace(samples[0], path=str(moved))], reader, home)
    assert reader.opened == 2
    shutil.copy(samples[5].path, moved)
    os.utime(moved, ns=(1, 1))
    table = fill_cache([replace(samples[0], path=str(moved))], reader, home)
    assert reader.opened == 3
    frames = table.frames(0)
    with reader.open(0, samples[5]) as decoded:
        assert (frames.get_frames([0, 3]) == decoded.get_frames([0, 3])).all()


def test_parts_of_a_file_are_entries_of_their_own(samples: list[Sample], tmp_path: Path) -> None:
    spec = replace(SPEC, keep_frames=None)
    halves = [replace(samples[0], end=0.5), replace(samples[0], start=0.5), samples[0]]
    table = fill_cache(halves, DecodingReader(spec), tmp_path)
    first, second, whole = (len(table.frames(i)) for i in range(3))
    assert first < whole
    assert second < whole
    assert whole <= first + second <= whole + 1


def test_unreadable_and_missing_videos_are_left_to_the_decoder(samples: list[Sample], tmp_path: Path) -> None:
    broken = tmp_path / "broken.webm"
    broken.write_bytes(b"no video")
    listed = [samples[0], replace(samples[1], path=str(broken)), replace(samples[2], path=str(tmp_path / "gone.mp4"))]
    decoding = DecodingReader(SPEC)
    reader = CachedReader(fill_cache(listed, decoding, tmp_path / "cache"), decoding)
    items = [TestVideos(listed, SPEC, reader=reader).item(Visit(i)) for i in range(3)]
    assert items[0].problem is None
    assert all(item.problem is not None for item in items[1:])


def test_a_truncated_shard_is_decoded_again(samples: list[Sample], tmp_path: Path, small_shards: None) -> None:
    reader = CountingReader(SPEC)
    fill_cache(samples[:8], reader, tmp_path)
    shard = sorted(tmp_path.rglob("*.bin"))[0]
    os.truncate(shard, shard.stat().st_size - 1)
    table = fill_cache(samples[:8], reader, tmp_path)
    assert reader.opened == 12
    assert all(len(table.frames(i)) == 12 for i in range(8))


def test_an_interrupted_build_keeps_the_finished_shards(
    samples: list[Sample], tmp_path: Path, small_shards: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = CountingReader(SPEC)
    write = cache._write_shard

    def stop_at_second(job: cache._NewShard) -> None:
        if reader.opened >= 4:
            raise KeyboardInterrupt
        write(job)

    monkeypatch.setattr(cache, "_write_shard", stop_at_second)
    with pytest.raises(KeyboardInterrupt):
        fill_cache(samples[:8], reader, tmp_path)
    monkeypatch.setattr(cache, "_write_shard", write)
    fill_cache(samples[:8], reader, tmp_path)
    assert reader.opened == 8


def test_leftovers_of_killed_builds_are_removed(samples: list[Sample], tmp_path: Path) -> None:
    reader = DecodingReader(SPEC)
    fill_cache(samples[:1], reader, tmp_path)
    home = next(tmp_path.iterdir())
    old, young, orphan = home / "old.tmp", home / "young.tmp", home / "orphan.bin"
    for path in (old, young, orphan):
        path.write_bytes(b"x")
    for path in (old, orphan):
        os.utime(path, (1, 1))
    table = fill_cache(samples[:1], reader, tmp_path)
    assert (old.exists(), young.exists(), orphan.exists()) == (False, True, False)
    assert 0 in table


def test_an_unwritable_directory_is_reported(samples: list[Sample], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="file/cache"):
        fill_cache(samples[:1], DecodingReader(SPEC), tmp_path / "file" / "cache")


def test_a_full_disk_is_reported(samples: list[Sample], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "_append", full)
    with pytest.raises(UserError, match="No space left"):
        fill_cache(samples[:1], DecodingReader(SPEC), tmp_path)
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_table_is_small_and_travels_without_its_maps(samples: list[Sample], tmp_path: Path) -> None:
    table = fill_cache(samples, DecodingReader(SPEC), tmp_path)
    table.frames(0)
    sent = pickle.dumps(table)
    assert len(sent) < 5000
    assert (pickle.loads(sent).frames(3).get_frames([1]) == table.frames(3).get_frames([1])).all()


def test_shards_describe_themselves(samples: list[Sample], tmp_path: Path) -> None:
    fill_cache(samples[:3], DecodingReader(SPEC), tmp_path)
    (described,) = [path for path in tmp_path.rglob("*.json") if path.name != "files.json"]
    content = json.loads(described.read_text())
    assert content["bytes"] == described.with_suffix(".bin").stat().st_size
    assert all(video["offset"] % 8 == 0 for video in content["videos"])


def test_folders_of_images_are_cached(samples: list[Sample], tmp_path: Path) -> None:
    folder = tmp_path / "video"
    folder.mkdir()
    for number, picture in enumerate(moving_square(16)):
        (folder / f"{number}.jpg").write_bytes(jpeg(picture))
    listed = [replace(samples[0], path=str(folder))]
    decoding = CountingReader(SPEC)
    table = fill_cache(listed, decoding, tmp_path / "cache")
    assert table.left_out == []
    readers = (CachedReader(table, decoding), decoding)
    items = [TestVideos(listed, SPEC, reader=reader).item(Visit(0)) for reader in readers]
    assert items[0].views_VCTHW is not None
    assert items[1].views_VCTHW is not None
    assert torch.equal(items[0].views_VCTHW, items[1].views_VCTHW)
    with (
        CachedReader(table, decoding).open(0, listed[0]) as frames,
        pytest.raises(InputError, match=r"video.* no timestamps.*clock"),
    ):
        _ = frames.timestamps
    opened = decoding.opened
    fill_cache(listed, decoding, tmp_path / "cache")
    assert decoding.opened == opened
    (folder / "3.jpg").write_bytes(jpeg(moving_square(1)[0]))
    fill_cache(listed, decoding, tmp_path / "cache")
    assert decoding.opened == opened + 1


def test_videos_in_shards_are_cached(samples: list[Sample], tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "train-000000.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
        videos = [Encoded(Path(s.path).read_bytes(), 1, 40, 32, None) for s in samples[:3]]
        labels = [str(i) for i in range(12)]
        entries = [
            append_video(tar, "train-000000.tar", str(i), samples[i], video, labels) for i, video in enumerate(videos)
        ]
    paths = [f"{tmp_path / entry.shard}::{entry.offset}+{entry.size}" for entry in entries]
    reader = CountingReader(SPEC)
    fill_cache(samples[:2], reader, tmp_path / "cache")
    table = fill_cache([replace(s, path=p) for s, p in zip(samples, paths, strict=False)], reader, tmp_path / "cache")
    assert table.left_out == []
    assert reader.opened == 3  # the same content is known wherever it lies


def test_videos_left_out_are_reported(
    samples: list[Sample], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = replace(samples[1], path=str(tmp_path / "gone.mp4"))
    reader_for([samples[0], gone], SPEC, DataConfig(path="set", workers=0, cache=str(tmp_path / "cache")))
    assert re.search(f"1 of 2 videos .*{gone.path}", capsys.readouterr().err)


@pytest.mark.parametrize("broken", ["", "{", "[]", '{"bytes": '])
def test_broken_descriptions_count_as_absent(samples: list[Sample], tmp_path: Path, broken: str) -> None:
    reader = CountingReader(SPEC)
    fill_cache(samples[:2], reader, tmp_path)
    for path in tmp_path.rglob("*.json"):
        path.write_text(broken)
    table = fill_cache(samples[:2], reader, tmp_path)
    assert table.left_out == []
    assert reader.opened == 4


def test_a_leftover_that_another_build_removes_at_the_same_time(samples: list[Sample], tmp_path: Path) -> None:
    fill_cache(samples[:1], DecodingReader(SPEC), tmp_path)
    home = next(tmp_path.iterdir())
    (home / "link.tmp").symlink_to(home / "removed by another build")
    assert 0 in fill_cache(samples[:1], DecodingReader(SPEC), tmp_path)


def test_a_file_that_cannot_be_opened_is_left_out(
    samples: list[Sample], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(path: str) -> str:
        raise PermissionError(13, "Permission denied", path)

    with monkeypatch.context() as patch:
        patch.setattr(cache, "content_digest", locked)
        assert fill_cache(samples[:1], DecodingReader(SPEC), tmp_path).left_out == [0]
    assert fill_cache(samples[:1], DecodingReader(SPEC), tmp_path).left_out == []


def test_a_shard_without_readable_videos_leaves_nothing(samples: list[Sample], tmp_path: Path) -> None:
    broken = tmp_path / "broken.webm"
    broken.write_bytes(b"no video")
    assert fill_cache([replace(samples[0], path=str(broken))], DecodingReader(SPEC), tmp_path / "cache").left_out == [0]
    assert [path.name for path in (tmp_path / "cache").rglob("[!.]*.*")] == ["files.json"]


def clips(samples: list[Sample], reader: VideoReader) -> list[torch.Tensor]:
    train = TrainClips(samples, SPEC, seed=1, reader=reader)
    return [train.item(0, Visit(i)).clip_CTHW for i in range(len(samples))]


def test_without_its_cache_a_video_is_decoded(samples: list[Sample], tmp_path: Path) -> None:
    decoding = DecodingReader(SPEC)
    reader = CachedReader(fill_cache(samples[:2], decoding, tmp_path), decoding)
    shutil.rmtree(tmp_path)
    assert all(map(torch.equal, clips(samples[:2], reader), clips(samples[:2], decoding)))


@pytest.mark.parametrize("place", ["time", "check of a frame", "first pixel", "last pixel"])
def test_one_changed_byte_is_never_used(
    samples: list[Sample], tmp_path: Path, small_shards: None, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    """Its shard is decoded instead, which is said once, and written again by the next build."""
    decoding = CountingReader(SPEC)
    fill_cache(samples[:8], decoding, tmp_path)
    victim, _ = sorted(path for path in tmp_path.rglob("*.bin"))
    content = bytearray(victim.read_bytes())
    (row, *_) = json.loads(victim.with_suffix(".json").read_text())["videos"]
    count, height, width = row["shape"]
    head, frame = row["offset"] + 12 * count, height * width * 3
    places = {"time": 1, "check of a frame": 8 * count + 5, "first pixel": head, "last pixel": head + frame - 1}
    content[places[place]] ^= 1
    victim.write_bytes(content)
    reader = CachedReader(fill_cache(samples[:8], decoding, tmp_path), decoding)
    copied = pickle.loads(pickle.dumps(reader))  # as a worker gets it
    every = replace(SPEC, frames=12)
    for found in (reader, copied):
        videos = TestVideos(samples[:8], every, reader=found)
        plain = TestVideos(samples[:8], every, reader=DecodingReader(SPEC))
        for i in range(8):
            one, other = videos.item(Visit(i)).views_VCTHW, plain.item(Visit(i)).views_VCTHW
            assert one is not None
            assert other is not None
            assert torch.equal(one, other)
    assert capsys.readouterr().err.count(f"{victim} is damaged") == 1
    assert reader.table.left_out == copied.table.left_out != []
    decoding.opened = 0
    assert fill_cache(samples[:8], decoding, tmp_path).left_out == []
    assert decoding.opened == 4


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("offset", value) for value in (8, -8, "x", 10**30)),
        *(("shape", value) for value in ([12, 24, 29], [12], [-1, -2, 3], [10**9] * 3)),
        *(("fps", 99.0), ("fps", "x"), ("check", 7), ("check", -1), ("digest", 5), ("extra", 1)),
    ],
)
def test_a_changed_description_is_never_used(samples: list[Sample], tmp_path: Path, name: str, value: object) -> None:
    decoding = DecodingReader(SPEC)
    fill_cache(samples[:3], decoding, tmp_path)
    (described,) = [path for path in tmp_path.rglob("*.json") if path.name != "files.json"]
    content = json.loads(described.read_text())
    content["videos"][1][name] = value
    described.write_text(json.dumps(content))
    reader = CachedReader(fill_cache(samples[:3], decoding, tmp_path), decoding)
    assert all(map(torch.equal, clips(samples[:3], reader), clips(samples[:3], decoding)))
