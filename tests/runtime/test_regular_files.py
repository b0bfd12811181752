"""Only regular files are opened, and only by the functions of `runtime/files.py`."""

import ast
import os
from pathlib import Path

import pytest

import fixformer
from fixformer.runtime.files import open_file, read_bytes, read_json, read_text, require_regular

SOURCE = Path(fixformer.__file__).parent
OPENING = {"open", "read_text", "read_bytes", "memmap", "fromfile", "load_file", "safe_open"}
# Who else opens something, and why that cannot block or run for ever.
ALLOWED = {
    "runtime/files.py": {"open", "os.open"},  # the functions themselves; files that this process has just written
    "runtime/locks.py": {"os.open"},  # without following links, without waiting, and checked after opening
    "runtime/machine.py": {"Path('/proc/cpuinfo').read_text"},
    # /proc and /sys
    "runtime/memory.py": {"STATUS.read_text", "MACHINE.read_text", "CONTAINER_LIMIT.read_text"},
    "runtime/pools.py": {"OWN_CGROUP.read_text", "(folder / 'cpu.max').read_text"},
    "__init__.py": {"installed.read_text"},  # the metadata of the installed package
    "bench/other_readers.py": {"av.open"},  # videos that the benchmark has made itself, here and in the next two
    "bench/reading_memory.py": {"Path(path).read_bytes"},
    "bench/sample_videos.py": {"av.open"},
    "data/loading/cache.py": {
        *{"np.memmap"},  # after require_regular
        *{"temporary.open"},  # a new file
        *{"reader.open", "self.decoding.open"},  # a `VideoReader`, which opens videos with `open_video`
    },
    "data/loading/datasets.py": {"reader.open"},
    "data/loading/shard_stream.py": {"tarfile.open"},  # what a command prints
    "data/prepare/encode.py": {"av.open"},  # a buffer
    "data/prepare/shard_files.py": {"tarfile.open"},  # a new file
    "data/synthetic/motions.py": {"av.open"},  # a new file
    "data/video/containers.py": {"av.open"},  # after local_url
    "diagnosis/video_codecs.py": {"av.open"},  # a buffer
    # URLs that the user gives; file:// does not get there
    "evaluation/remote.py": {"fsspec.open(url, 'rb').open", "fsspec.open", "system.open"},
    "labelling/label_parts.py": {"temporary.open"},  # a new file
    "labelling/remote_files.py": {"file_system(url).open"},  # URLs that the user gives
    "labelling/row_sources.py": {"tarfile.open"},  # an open file
    "models/tensor_files.py": {"load_file"},  # after require_regular
    "models/model_table.py": {"FILE.read_text"},  # a part of this package
    "training/frozen_features.py": {"np.memmap", "temporary.open"},  # after require_regular; a new file
    "runtime/pictures.py": {"av.open"},  # a new file
    "serve/interface.py": {"entry.read_bytes"},  # a part of this package
    "cli/app.py": {"open", "os.open"},  # /dev/null, in place of a stream that is closed
}


def opening_calls(file: Path) -> set[str]:
    """The calls that open a file by a function other than those of `runtime/files.py`."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        text = ast.unparse(node.func)
        is_ours = text in ("read_text", "read_bytes", "files.read_text")
        if name in OPENING and not is_ours:
            found.add(text)
    return found


def test_every_file_is_opened_as_a_regular_one() -> None:
    found = {path.relative_to(SOURCE).as_posix(): opening_calls(path) for path in SOURCE.rglob("*.py")}
    assert {name: calls for name, calls in found.items() if calls} == ALLOWED


def test_ours_come_from_one_place() -> None:
    """`read_text` and `read_bytes` without a dot are the functions of `runtime/files.py`, or read with them."""
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        sources = {node.module for node in imports for name in node.names if name.name in ("read_text", "read_bytes")}
        assert sources <= {"fixformer.runtime.files", "fixformer.data.listing.label_files"}, path


@pytest.fixture
def odd(tmp_path: Path) -> dict[str, Path]:
    """What is not a regular file, by what it is called."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    return {"pipe": tmp_path / "pipe", "named pipe": tmp_path / "link", "device": tmp_path / "zero", "direct": tmp_path}


def test_what_is_not_a_regular_file_is_an_error(odd: dict[str, Path]) -> None:
    for what, path in odd.items():
        for read in (read_text, read_bytes, open_file, require_regular):
            with pytest.raises(OSError, match=what) as raised:
                read(path)
            assert raised.value.filename == str(path)
        with pytest.raises(OSError, match=what):
            open_file(path, "a")


def test_files_and_links_to_them_are_read(tmp_path: Path) -> None:
    with open_file(tmp_path / "new", "a", encoding="utf-8") as file:
        file.write("one")
    (tmp_path / "link").symlink_to("new")
    assert read_text(tmp_path / "link") == "one"
    assert read_bytes(str(tmp_path / "new")) == b"one"
    with pytest.raises(FileNotFoundError):
        read_text(tmp_path / "absent")
    with pytest.raises(ValueError, match="new"):
        read_json(tmp_path / "new")
