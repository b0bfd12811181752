"""What a checkpoint's directory must not hold: pickles, which run code when others load them, and links out of it."""

import os
from pathlib import Path

from fixformer.runtime.files import open_file

PICKLES = frozenset((".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth"))
OURS = frozenset((".json", ".safetensors"))  # read as what they are called, and refused if they are not that
# The first bytes of a pickle since protocol 2, and what torch's archive has among its first ones.
_PROTOCOLS = tuple(bytes((0x80, number)) for number in (2, 3, 4, 5))
_ARCHIVE, _ARCHIVE_MEMBER = b"PK\x03\x04", b"data.pkl"


def foreign_part(folder: Path) -> str | None:
    """The first file that has no place in a checkpoint and what is wrong with it, or None."""
    for path in sorted(folder.iterdir()):
        if leads_out(path, folder):
            return f"has a link out of it, {path.name}, to {os.path.realpath(path)}"
        if path.is_file() and is_pickle(path):
            return f"has a pickle in it, {path.name}, which would run code when loaded"
    return None


def leads_out(path: Path, folder: Path) -> bool:
    """Whether a path in a folder is a link, or lies behind one, to somewhere else."""
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def is_pickle(path: Path) -> bool:
    """By its name or by its first bytes; torch's files are archives with a pickle inside."""
    suffix = path.suffix.lower()
    if suffix in OURS or suffix in PICKLES:
        return suffix in PICKLES
    with open_file(path, "rb") as file:
        head = file.read(200)
    return head.startswith(_PROTOCOLS) or (head.startswith(_ARCHIVE) and _ARCHIVE_MEMBER in head)
