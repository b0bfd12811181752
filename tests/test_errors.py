"""Errors survive pickling, so a worker process can raise them; failures of the machine are explained in a sentence."""

import errno
import json
import os
import pickle
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from fixformer.data.video import DecodeError
from fixformer.errors import Interrupted, MissingExtra, UnknownName, UserError, explain


@pytest.mark.parametrize(
    "error",
    [
        UserError("what, which value"),
        UnknownName("model", "fixfromer", ["fixformer_tiny"]),
        MissingExtra("drawing", "plots"),
        DecodeError("cannot be opened", file="a.mp4", frame=3),
        Interrupted(15, "stopped at step 3"),
    ],
)
def test_an_error_survives_pickling(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def too_much_memory() -> None:
    torch.empty(2**50)


def too_large_for_any_memory() -> None:
    torch.empty(2**62, 8, device="meta")


def too_much_memory_for_numpy() -> None:
    np.empty(2**50)


def nested_too_deeply() -> None:
    json.loads("[" * 100_000)


def number_too_large() -> None:
    float(10**400)


def no_such_file() -> None:
    Path("no/such/file").read_bytes()


def no_space() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "some/file")


def pool_without_workers() -> None:
    raise BrokenProcessPool("A process in the process pool was terminated abruptly")


def peer_without_life() -> None:
    raise RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:29500")


def library_without_memory() -> None:
    raise ImportError("libtorch.so: failed to map segment from shared object", name="torch._C")


def library_that_is_missing() -> None:
    raise ImportError("libav.so: cannot open shared object file", name="av")


class Failing(Dataset[int]):
    """Fails in the worker of a data loader."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __len__(self) -> int:
        return 1

    def __getitem__(self, number: int) -> int:
        if self.how == "exit":
            os._exit(9)
        globals()[self.how]()
        return 0


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (too_much_memory, ["out of memory", f"{4 * 2**50}", "smaller"]),
        (too_large_for_any_memory, ["out of memory", "smaller"]),
        (too_much_memory_for_numpy, ["out of memory", "8.00 PiB", "smaller"]),
        (nested_too_deeply, ["nested"]),
        (number_too_large, ["too large"]),
        (no_such_file, ["no/such/file", "No such file", "check the path"]),
        (no_space, ["some/file", "No space left", "free some space"]),
        (pool_without_workers, ["worker", "killed"]),
        (peer_without_life, ["another process"]),
        (library_without_memory, ["libtorch.so", "out of memory"]),
        (library_that_is_missing, ["libav.so", "again"]),
    ],
)
def test_a_failure_of_the_machine_is_explained(function: object, words: list[str]) -> None:
    with pytest.raises((OSError, MemoryError, OverflowError, ImportError, RuntimeError)) as raised:
        function()  # type: ignore[operator]
    sentence = explain(raised.value)
    assert sentence is not None
    assert all(word in sentence for word in words), sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    "text",
    ["CUDA error: an illegal memory access was encountered", "first\nexcept MemoryError:\nlast", "odd"],
)
def test_a_bug_is_not_explained_away(text: str) -> None:
    assert explain(RuntimeError(text)) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("exit", ["worker", "killed"]),
        ("no_space", ["No space left"]),
        ("no_such_file", ["no/such/file"]),
        ("too_much_memory", ["out of memory", f"{4 * 2**50}"]),
        ("too_much_memory_for_numpy", ["out of memory"]),
    ],
)
def test_a_failure_in_a_worker_of_a_loader_is_explained(how: str, words: list[str]) -> None:
    with pytest.raises((OSError, MemoryError, RuntimeError)) as raised:
        list(DataLoader(Failing(how), num_workers=1))
    sentence = explain(raised.value)
    assert sentence is not None
    assert all(word in sentence for word in words), sentence
    assert "\n" not in sentence
    assert "Traceback" not in sentence


def test_any_other_error_is_a_bug() -> None:
    assert explain(RuntimeError("shapes do not match")) is None
    assert explain(TypeError("no")) is None
    assert explain(ImportError("cannot import name", name="fixformer.cli")) is None
    assert explain(UserError("what, which value")) == "what, which value"
