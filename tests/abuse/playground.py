"""A small site with one of everything the program reads: a data set of every layout, prepared sets, a run, videos.

All paths in it are relative, so that a case can spoil a copy of it.
"""

import csv
import json
import os
import shutil
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path

import numpy as np

SETS = ("folders", "table", "lists", "ssv2", "kinetics", "lsa64", "images", "frames", "prepared", "shards")
"""Data sets that training accepts."""

VIDEOS = ("good.mp4", "cut.mp4", "noise.mp4", "empty.mp4", "text.mp4", "wide.mp4", "short.mp4")

# Name=value words of a run that takes a second and a model of a few thousand parameters.
TINY = (
    *("model=fixformer_tiny", "frames=4", "size=16", "keep_frames=8", "keep_short_side=none", "jitter=16,18"),
    *("stem=conv", "position_embedding=learned", "pool=grid", "patch_size=8", "patch_stride=8", "patch_padding=0"),
    *("embed_dim=16", "depth=1", "num_heads=2", "head_hidden_dim=16", "batch_size=2", "epochs=1", "warmup_epochs=0"),
    *("eval.views=1x1", "workers=0", "log_steps=1", "threads=1", "device=cpu", "cache=auto"),
)


def build(site: Path) -> None:
    """Write the site. The home directory of its commands, with their caches, is `home` in it."""
    for name in ("home", "out", "tmp"):
        (site / name).mkdir(parents=True)
    with chdir(site):
        os.environ.update(home_of(site))
        _write_videos()
        _write_sets()
        _run_commands()


def home_of(site: Path) -> dict[str, str]:
    """The environment of a command in the site: its home, caches and temporary files are inside."""
    home = str(site / "home")
    return {"HOME": home, "XDG_CACHE_HOME": f"{home}/.cache", "TMPDIR": str(site / "tmp"), "MPLCONFIGDIR": home}


def _write_videos() -> None:
    from videos import encode, moving_square

    good = encode(moving_square(16, 32, 40))
    rng = np.random.default_rng(0)
    contents = {
        "good.mp4": good,
        "cut.mp4": good[: len(good) * 2 // 3],
        "noise.mp4": rng.bytes(3000),
        "empty.mp4": b"",
        "text.mp4": b"path,label\na.mp4,1\n",
        "wide.mp4": encode(np.zeros((4, 16, 4096, 3), np.uint8)),
        "short.mp4": encode(moving_square(1, 32, 40)),
    }
    for name, content in contents.items():
        Path(name).write_bytes(content)


def _write_sets() -> None:
    """Two classes with four videos each, three of them for training, in every layout."""
    from videos import encode, moving_square

    clips = [encode(moving_square(10 + number, 32, 40, seed=number)) for number in range(8)]
    classes = [("left", "right")[number % 2] for number in range(8)]
    splits = ["val" if number >= 6 else "train" for number in range(8)]
    rows = list(zip(range(8), classes, splits, strict=True))

    def put(path: str, number: int) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(clips[number])

    for number, name, split in rows:
        put(f"folders/{name}/{number}.mp4", number)
        put(f"table/clips/{number}.mp4", number)
        put(f"lists/clips/{number}.mp4", number)
        put(f"ssv2/videos/{number}.webm", number)
        put(f"kinetics/{split}/video{number}_000000_000010.mp4", number)
        put(f"lsa64/{number}.mp4", number)
    _write_csv("folders/groups.csv", ["path", "group"], [[f"{name}/{n}.mp4", f"g{n // 2}"] for n, name, _ in rows])
    _write_csv("table/index.csv", ["path", "label", "split"], [[f"clips/{n}.mp4", name, s] for n, name, s in rows])
    Path("table/labels.txt").write_text("left\nright\n")
    for part in ("train", "val"):
        lines = [f"clips/{n}.mp4 {10 + n} {int(name == 'right')}\n" for n, name, split in rows if split == part]
        Path(f"lists/{part}.txt").write_text("".join(lines))
        published = {"train": "train", "val": "validation"}[part]
        listed = [{"id": str(n), "template": f"[{name}]"} for n, name, split in rows if split == part]
        Path(f"ssv2/{published}.json").write_text(json.dumps(listed))
        kinetics = [[name, f"video{n}", 0, 10, part] for n, name, split in rows if split == part]
        _write_csv(f"kinetics/{part}.csv", ["label", "youtube_id", "time_start", "time_end", "split"], kinetics)
    Path("ssv2/labels.json").write_text('{"left": "0", "right": "1"}')
    signers = [[f"{n}.mp4", int(c == "right"), c, 9 if s == "val" else 1, 1] for n, c, s in rows]
    _write_csv("lsa64/index.csv", ["path", "label", "class", "subject", "recording_set"], signers)
    _write_pictures(rows)
    Path("names.txt").write_text("left\nright\n")


def _write_pictures(rows: list[tuple[int, str, str]]) -> None:
    from videos import jpeg, moving_square

    for number, name, _ in rows:
        pictures = [jpeg(frame) for frame in moving_square(5, 32, 40, seed=number)]
        for at, picture in enumerate(pictures):
            path = Path(f"frames/{name}/{number}/{at}.jpg")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(picture)
        Path(f"images/{name}").mkdir(parents=True, exist_ok=True)
        Path(f"images/{name}/{number}.jpg").write_bytes(pictures[0])


def _write_csv(path: str, columns: list[str], rows: Sequence[Sequence[object]]) -> None:
    with open(path, "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([columns, *rows])


def _run_commands() -> None:
    """What the program itself writes: prepared sets, a run with its cache, weights, the cache of `check`."""
    from fixformer.cli.app import main

    for words in (
        ["prepare", "folders", "prepared", "--workers", "1"],
        ["prepare", "folders", "shards", "--shards", "--shard-videos", "4", "--workers", "1"],
        ["train", "demo", "--data", "folders", "--output", "run", "data.kind=folders", *TINY],
        ["check", "folders", "--out", "out/check", "--workers", "1"],
    ):
        main(words)
    shutil.copy(next(Path("run/checkpoints").glob("*/model.safetensors")), "weights.safetensors")
    shutil.rmtree("out")
    Path("out").mkdir()


def foreign_files(site: Path) -> list[str]:
    """Every file of the site that some command reads, as relative paths."""
    skipped = ("out/", "tmp/", "run/evaluation/", "run/tensorboard/", "home/.config", "home/.cache/matplotlib")
    found = [
        str(path.relative_to(site)) for path in sorted(site.rglob("*")) if path.is_file() and not path.is_symlink()
    ]
    return [name for name in found if not name.startswith(skipped) and "fontlist" not in name]
