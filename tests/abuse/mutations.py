"""Spoiling a file: bytes at random, or its structure (JSON, CSV, safetensors, tar), or what kind of file it is."""

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nasty_text import any_text, to_bytes

# JSON values that a reader is tempted to believe. 1e999 and NaN are what Python's own parser accepts.
VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        -7,
        99,
        10**9,
        2**31,
        2**63,
        2**64,
        10**400,
        0.5,
        -0.0,
        1e308,
        float("inf"),
        float("nan"),
    ),
    *(
        "",
        "x",
        "auto",
        "none",
        "../..",
        "/etc/passwd",
        "/dev/zero",
        "pipe:touch PWNED; cat {shard}",
        "http://127.0.0.1:9/{shard}",
    ),
    *("a" * 100_000, "\x1b[31m", "\ud800", [], {}, [[]], {"": None}, [0] * 1000, [None], ["a", "a"]),
)


def spoil(path: Path, rng: random.Random) -> str:
    """Change a file in a random way that suits it; returns what was done."""
    before = path.read_bytes()
    ways: list[Callable[[Path, random.Random], str]] = [_bytes, _bytes, _kind]
    ways += {".json": [_json] * 6, ".jsonl": [_json_line] * 4, ".safetensors": [_safetensors] * 4}.get(path.suffix, [])
    ways += {".csv": [_table] * 6, ".txt": [_table] * 4, ".tar": [_tar] * 3}.get(path.suffix, [])
    done = rng.choice(ways)(path, rng)
    if path.is_file() and not path.is_symlink() and rng.random() < 0.5:
        done += _forge_digest(path, before)
    return done


def _forge_digest(path: Path, before: bytes) -> str:
    """What a hostile person does next: the manifest beside the file gets the new digest."""
    manifest = path.parent / "manifest.json"
    old, new = (hashlib.blake2b(data).hexdigest() for data in (before, path.read_bytes()))
    if not manifest.is_file() or path == manifest or old not in manifest.read_text():
        return ""
    manifest.write_text(manifest.read_text().replace(old, new))
    return ", digest forged"


def _bytes(path: Path, rng: random.Random) -> str:
    data = bytearray(path.read_bytes())
    way = rng.choice(("empty", "cut", "flip", "noise", "insert", "zeros", "append", "twice"))
    at = rng.randrange(len(data) + 1)
    if way == "empty":
        data = bytearray()
    elif way == "cut":
        del data[at:]
    elif way == "flip":
        for _ in range(rng.choice((1, 1, 10, 100))):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
    elif way == "noise":
        data = bytearray(rng.randbytes(rng.choice((1, 100, 5000))))
    elif way == "insert":
        data[at:at] = rng.randbytes(rng.choice((1, 8, 1000)))
    elif way == "zeros":
        data[at : at + 64] = bytes(64)
    elif way == "append":
        data += rng.randbytes(100)
    else:
        data *= 2
    path.write_bytes(data)
    return f"bytes {way}"


def _kind(path: Path, rng: random.Random) -> str:
    """Something else in place of the file."""
    way = rng.choice(("missing", "directory", "fifo", "loop", "zero", "dangling", "null", "socket-like"))
    path.unlink()
    if way == "directory":
        path.mkdir()
    elif way == "fifo":
        os.mkfifo(path)
    elif way == "loop":
        path.symlink_to(path.name)
    elif way in ("zero", "null"):
        path.symlink_to(f"/dev/{way}")
    elif way == "dangling":
        path.symlink_to("nowhere")
    elif way == "socket-like":
        path.symlink_to("/proc/self/mem")
    return f"kind {way}"


def _json(path: Path, rng: random.Random) -> str:
    if rng.random() < 0.05:
        path.write_text("[" * 100_000)
        return "json nested 100000 deep"
    value, done = spoil_value(json.loads(path.read_text()), rng)
    path.write_text(json.dumps(value))
    return f"json {done}"


def _json_line(path: Path, rng: random.Random) -> str:
    lines = path.read_text().splitlines()
    if not lines:
        return _bytes(path, rng)
    at = rng.randrange(len(lines))
    value, done = spoil_value(json.loads(lines[at]), rng)
    lines[at] = json.dumps(value)
    path.write_text("\n".join(lines))
    return f"json line {done}"


def spoil_value(value: Any, rng: random.Random) -> tuple[Any, str]:
    """Replace, remove or add something at a random place of a JSON value."""
    place: list[Any] = []
    at = value
    while isinstance(at, dict | list) and at and rng.random() < 0.8:
        key = rng.choice(list(at)) if isinstance(at, dict) else rng.randrange(len(at))
        place.append(key)
        at = at[key]
    new = any_text(rng) if rng.random() < 0.2 else rng.choice(VALUES)
    if not place:
        return new, f"all = {str(new)[:40]!r}"
    parent = value
    for key in place[:-1]:
        parent = parent[key]
    way = rng.choice(("replace", "replace", "replace", "remove", "add", "rename"))
    if way == "remove":
        del parent[place[-1]]
    elif way == "add" and isinstance(parent, dict):
        parent[any_text(rng)] = new
    elif way == "rename" and isinstance(parent, dict):
        parent[any_text(rng)] = parent.pop(place[-1])
    else:
        parent[place[-1]] = new
    return value, f"{way} {'.'.join(map(str, place))} {str(new)[:40]!r}"


def _table(path: Path, rng: random.Random) -> str:
    lines = path.read_text().splitlines()
    if not lines:
        return _bytes(path, rng)
    way = rng.choice(("cell", "cell", "cell", "drop line", "repeat line", "shuffle", "no header", "quote"))
    at = rng.randrange(len(lines))
    if way == "cell":
        separator = "," if path.suffix == ".csv" else " "
        cells = lines[at].split(separator)
        cells[rng.randrange(len(cells))] = any_text(rng) if rng.random() < 0.7 else str(rng.choice(VALUES))[:1000]
        lines[at] = separator.join(cells)
    elif way == "drop line":
        del lines[at]
    elif way == "repeat line":
        lines.append(lines[at])
    elif way == "shuffle":
        rng.shuffle(lines)
    elif way == "no header":
        del lines[0]
    else:
        lines[at] = f'"{lines[at]}'
    path.write_bytes(to_bytes("\n".join(lines)))
    return f"table {way}"


def _safetensors(path: Path, rng: random.Random) -> str:
    """The header is its length in 8 bytes and a JSON table of dtype, shape and place of every tensor."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header, tensors = data[8 : 8 + size], data[8 + size :]
    way = rng.choice(("header", "header", "length", "nan", "flip"))
    if way == "header":
        value, done = spoil_value(json.loads(header), rng)
        header = json.dumps(value).encode()
        path.write_bytes(len(header).to_bytes(8, "little") + header + tensors)
        return f"safetensors header {done}"
    if way == "length":
        wrong = rng.choice((0, 1, size - 1, size + 1, 2**32, 2**63, 2**64 - 1))
        path.write_bytes(wrong.to_bytes(8, "little") + header + tensors)
    elif way == "nan":
        at = rng.randrange(len(tensors) // 4) * 4
        path.write_bytes(data[: 8 + size] + tensors[:at] + b"\x00\x00\xc0\x7f" + tensors[at + 4 :])
    else:
        at = rng.randrange(len(tensors))
        path.write_bytes(data[: 8 + size] + tensors[:at] + rng.randbytes(1) + tensors[at + 1 :])
    return f"safetensors {way}"


def _tar(path: Path, rng: random.Random) -> str:
    """A field of a member's header; the members begin at multiples of 512."""
    data = bytearray(path.read_bytes())
    at = 512 * rng.randrange(max(len(data) // 512, 1)) + rng.choice((0, 100, 124, 148, 156, 257))
    data[at : at + 8] = rng.randbytes(8)
    path.write_bytes(data)
    return "tar header"


def rename_into(site: Path, old: str, new: str) -> bool:
    """Give a file or folder another last name, if the file system accepts it."""
    try:
        target = (site / old).parent / new
        if not new or "/" in new or target.exists():
            return False
        shutil.move(site / old, target)
    except (OSError, ValueError):
        return False
    return True
