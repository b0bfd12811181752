"""Random generators keyed by what they are for, independent of the process and of the order of draws."""

import hashlib

import numpy as np


def generator(*key: int | str) -> np.random.Generator:
    """The generator of a key such as (seed, epoch, video id): the same on any worker of any run."""
    text = "\0".join(map(str, key))
    digest = hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))
