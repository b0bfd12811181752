"""Errors survive pickling, so a worker process can raise them."""

import pickle

import pytest

from fixformer.data.video import DecodeError
from fixformer.errors import Interrupted, MissingExtra, UnknownName, UserError


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
