"""`fixformer prepare`: encode a data set again so that training reads it fast, as files or in tar shards.

An interrupted `prepare` resumes: a file or shard is either complete and recorded, or made again.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from fixformer.config.data import Workers
from fixformer.config.schema import PositiveInt, at_least, check_path, checked, int_between
from fixformer.data.listing import load_index
from fixformer.data.prepare.encode import EncodeSettings, require_encoder
from fixformer.data.prepare.prepare_report import PrepareReport
from fixformer.data.prepare.shard_files import make_shards
from fixformer.data.prepare.video_files import make_files
from fixformer.data.video import Policy
from fixformer.errors import InputError, SettingsConflict
from fixformer.runtime.files import (
    check_writable,
    claim_output,
    make_output,
    read_json,
    require_outside_runs,
    write_json,
)
from fixformer.runtime.locks import is_empty, locked
from fixformer.runtime.pools import processors

SETTINGS = "prepare.json"
MOST_FRAMES = 2**31 - 1  # between key frames: x264 counts them in 32 bits


@checked
def prepare(
    src: str | Path,
    dst: str | Path,
    *,
    short_side: Annotated[int, at_least(2)] = 256,
    keyframes: Annotated[int, int_between(1, MOST_FRAMES)] = 16,
    quality: Annotated[int, int_between(0, 51)] = 20,
    damaged: Policy = "strict",
    shards: bool = False,
    shard_videos: PositiveInt = 256,
    workers: Workers | None = None,
    kind: str = "auto",
    videos: str | Path | None = None,
    labels: str | Path | None = None,
) -> PrepareReport:
    """Encode every video of a data set again: smaller, upright, with key frames close together.

    Args:
        src: the data set, in any layout that training accepts; `kind`, `videos` and `labels` as for `load_index`.
        dst: a new directory, or that of an interrupted `prepare` with the same settings.
        short_side: this, `keyframes`, `quality` and `damaged` are explained at `EncodeSettings`.
        shards: write tar shards of `shard_videos` videos each, with an index, instead of files with a CSV.
        workers: processes; by default one per available core.
    """
    require_encoder()
    for name, path in (("src", src), ("dst", dst)):
        check_path(path, name)
    check_writable(dst)
    require_outside_runs(dst)
    claim_output(dst, src, "prepare")
    index = load_index(src, kind=kind, videos=videos, labels=labels)
    encoding, target = EncodeSettings(short_side, keyframes, quality, damaged), Path(dst)
    processes = workers or processors()
    settings = {
        "src": str(Path(src).resolve()),
        "kind": index.kind,
        "videos": str(Path(videos).resolve()) if videos else None,
        "labels": str(Path(labels).resolve()) if labels else None,
        **asdict(encoding),
        "shard_videos": shard_videos if shards else None,
    }
    with locked(target):
        claim(target, settings)
        if shards:
            report = make_shards(index, target, encoding, shard_videos, processes, settings)
        else:
            report = make_files(index, target, encoding, processes)
    report.src, report.missing = str(src), [sample.path for sample in index.missing]
    return report


def claim(target: Path, settings: dict[str, Any]) -> None:
    """Record the settings in a new directory; in one that was started before, require them to be the same."""
    path = target / SETTINGS
    if path.exists():
        before = read_json(path)
        if not isinstance(before, dict):
            raise InputError(f"{path} is damaged: expected a table of settings; choose another directory.")
        for name, value in settings.items():
            if before.get(name) != value:
                was = f"{target} was started with {name}={before.get(name)!r}"
                raise SettingsConflict(f"{was}, this run has {name}={value!r}; choose another directory.")
    elif not is_empty(target):
        raise InputError(f"{target} is not empty and was not made by prepare; choose a new directory.")
    else:
        make_output(target, "prepare")  # so that it is not read as a class if it lies among the videos
        write_json(path, settings)
