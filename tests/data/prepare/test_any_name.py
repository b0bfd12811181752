"""`prepare` writes a set that it can read again, whatever its files and folders are called."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fixformer.data.listing import Index, load_index
from fixformer.data.listing.split import SPLIT_NAMES
from fixformer.data.prepare import video_files
from fixformer.data.prepare.encode import Encoded
from fixformer.data.prepare.prepare import prepare
from fixformer.data.prepare.video_files import output_paths
from videos import encode, moving_square

HOSTILE = [b"left", b"left ", b"Left", b" ", b"caf\xe9", b"a\nb", b"\r", b"=1+1", b"--x", b"\x1b[31m", b"{shard}"]
HOSTILE += [b"a.tar::1+2", b"%d", b"~", b"pipe:x", b'"a"', b"a,b", b"\\x20", b"\xe2\x80\xa8", b"\xc2\x85", b"n" * 255]


def is_allowed(name: bytes) -> bool:
    """Hidden folders are no classes, and folders with the name of a split are splits."""
    return not name.startswith(b".") and os.fsdecode(name).lower() not in SPLIT_NAMES


letters = st.integers(1, 255).filter(lambda byte: byte != ord("/"))
folder_names = st.one_of(
    st.lists(letters, min_size=1, max_size=20).map(bytes),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), min_size=1, max_size=20).map(
        str.encode
    ),
    st.sampled_from(HOSTILE),
).filter(is_allowed)


def key(index: Index) -> object:
    return index.labels, sorted((s.id, s.label, s.split, s.group or "") for s in index.samples), index.missing


@pytest.mark.parametrize("shards", [False, True])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.lists(folder_names, unique=True, min_size=2, max_size=5), file=folder_names)
@example(names=HOSTILE, file=b"x")
def test_there_and_back(
    names: list[bytes],
    file: bytes,
    shards: bool,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    video = encode(moving_square(2, 16, 16))
    made = Encoded(video, 2, 16, 16, 25.0)
    for module in ("video_files", "shard_files"):  # encoding is not what is tested
        monkeypatch.setattr(f"fixformer.data.prepare.{module}.reencode", lambda sample, encoding: made)
    root = tmp_path_factory.mktemp("any")
    for name in names:
        folder = os.path.join(os.fsencode(root), b"set", name)
        os.makedirs(folder)
        for number in (b"0.mp4", b"1.mp4", file[:240] + b".mp4"):
            Path(os.fsdecode(os.path.join(folder, number))).write_bytes(video)
    prepare(root / "set", root / "out", shards=shards, workers=1)
    assert key(load_index(root / "out")) == key(load_index(root / "set"))


@given(st.lists(folder_names.map(os.fsdecode), min_size=1, max_size=8))
def test_every_output_has_a_path_of_its_own(ids: list[str]) -> None:
    paths = output_paths(ids)
    assert len({path.casefold() for path in paths}) == len(ids)
    assert all(path.startswith("videos/") and ".." not in Path(path).parts for path in paths)
    assert all(len(os.fsencode(part)) <= 255 for path in paths for part in Path(path).parts)


def test_a_set_that_an_earlier_version_prepared(tmp_path: Path) -> None:
    (tmp_path / "videos").mkdir()
    for name in ("1", "2"):
        (tmp_path / "videos" / f"{name}.mp4").touch()
    head = "path,label,class,split,frames,group,id,problem\n"
    rows = 'videos/1.mp4,0,a\\x20b,train,9,,caf\\xe9/1.mp4,\nvideos/2.mp4,1,"c,d",val,9,,x/2.mp4,\n'
    (tmp_path / "index.csv").write_text(head + rows)
    (tmp_path / "labels.txt").write_text("a\\x20b\nc,d\n")
    index = load_index(tmp_path, strict=False)
    assert index.labels == [r"a\x20b", "c,d"]
    assert [s.id for s in index.samples] == [r"caf\xe9/1.mp4", "x/2.mp4"]


def test_a_journal_of_rubbish_is_no_journal(tmp_path: Path) -> None:
    (tmp_path / video_files.JOURNAL).write_bytes(b'\xff\n[]\n{"path": 1}\n{"path": "a", "source": 2}\n' + b"[" * 99_999)
    assert video_files._read_journal(tmp_path) == {}
