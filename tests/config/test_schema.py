"""The schema: text and JSON to typed values, and one sentence for what does not fit."""

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from fixformer.config import DataConfig, OptimConfig, RunConfig, Stage, TrainConfig
from fixformer.config.model import ModelConfig
from fixformer.config.schema import (
    Count,
    Expect,
    Positive,
    PositiveInt,
    PositiveInts,
    Rate,
    check_path,
    checked,
    coerce,
    parse,
)
from fixformer.errors import InputError, UnknownName
from fixformer.models.registry import create_model, parse_settings

DATA = DataConfig(path="somewhere")


@pytest.mark.parametrize(
    ("text", "hint", "value"),
    [
        ("8", PositiveInt, 8),
        ("8", Rate, 8.0),
        ("1e-3", float, 1e-3),
        ("True", bool, True),
        ("0", bool, False),
        ("none", PositiveInt | None, None),
        ("none", Literal["none", "time"], "none"),
        ("0.9,0.98", tuple[float, float], (0.9, 0.98)),
        ("", tuple[Stage, ...], ()),
        ("4x32:3,", tuple[Stage, ...], (Stage(3, 4, 32),)),
        ("4x32:3,8x48:2@8", tuple[Stage, ...], (Stage(3, 4, 32), Stage(2, 8, 48, 8))),
        ("7", str, "7"),
        ("many", int, "many"),
        ("9" * 5000, int, "9" * 5000),
        ("a/b", Path, Path("a/b")),
        ("", Path, ""),
        ("3", Annotated[PositiveInt, "FRAMES"], 3),
    ],
)
def test_text_is_read_as_the_type_of_its_setting(text: str, hint: Any, value: object) -> None:
    found = parse(text, hint)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (np.zeros(2), bool),
        (np.zeros(2), Literal["a", "b"]),
        (["a"], Literal["a", "b"]),
        (1.0, bool),
        (10**400, float),
        (np.zeros(2), PositiveInt),
        (2**63, int),
        (float("inf"), Positive),
        ("a\0b", str),
        ("a", Path),
        (0, Annotated[int, "FRAMES", Expect("more than 0", lambda value: value > 0)]),
    ],
)
def test_a_value_of_another_kind_is_one_sentence(value: object, hint: Any) -> None:
    with pytest.raises((InputError, UnknownName), match="setting"):
        coerce(value, hint, "setting")


def test_numbers_of_numpy_are_numbers() -> None:
    assert type(coerce(np.int64(3), PositiveInt, "depth")) is int
    assert type(coerce(np.float32(0.5), Rate, "dropout")) is float


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (OptimConfig(betas=(1.0, 2.0)), ["betas=(1.0, 2.0)", "expected two values in [0, 1)"]),
        (OptimConfig(betas=0.9), ["betas=0.9", "expected two values in [0, 1)"]),
        (OptimConfig(lr=float("nan")), ["lr=nan", "more than 0"]),
        (RunConfig(compile="yes"), ["compile='yes'", "true or false"]),
        (ModelConfig(depth=2.5), ["depth=2.5", "int from 0 to"]),
        (ModelConfig(depth=None), ["depth=None", "int from 0 to"]),
        (TrainConfig(data=DATA, stages=(Stage(1, 0, 8),)), ["stages.frames=0"]),
        (TrainConfig(data=DATA, stages="x"), ["stages='x'", "a list"]),
        (TrainConfig(data=DATA, stages=({"epochs": 3, "size": 8},)), ["stages=", "expected frames"]),
        (TrainConfig(data=DATA, model_settings=[]), ["model_settings=[]", "table"]),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(config: Any, words: list[str]) -> None:
    with pytest.raises(InputError) as error:
        config.validate()
    assert all(word in str(error.value) for word in words), error.value
    assert "\n" not in str(error.value)


def test_models_and_commands_read_settings_by_one_schema() -> None:
    words = ["fixation=none", "depth=4", "mlp_ratio=2", "mlp_conv=false", "shift_segment=none"]
    typed = {"fixation": "none", "depth": 4, "mlp_ratio": 2.0, "mlp_conv": False, "shift_segment": None}
    assert parse_settings("fixformer_tiny", words) == typed
    with pytest.raises(UnknownName, match=r"fixformer_tiny 'fixatoin'.*fixation"):
        parse_settings("fixformer_tiny", ["fixatoin=none"])
    for refused in (parse_settings, lambda name, words: create_model(name, **dict(word.split("=") for word in words))):
        with pytest.raises(UnknownName, match=r"attention 'sofmax'.*softmax"):
            refused("fixformer_tiny", ["attention=sofmax"])
        with pytest.raises(InputError, match=r"depth='x'.*int from 0 to"):
            refused("fixformer_tiny", ["depth=x"])
        with pytest.raises(UnknownName, match=r"setting of tsm_r50 'depth'"):
            refused("tsm_r50", ["depth=4"])


@checked
def measure(
    path: str | Path,
    sizes: PositiveInts = (8,),
    *,
    kind: Literal["a", "b"] = "a",
    workers: Count | None = None,
    **others: Any,
) -> dict[str, Any]:
    """A function behind a command."""
    return {"path": path, "sizes": sizes, "kind": kind, "workers": workers, **others}


def test_arguments_are_checked_like_settings() -> None:
    assert measure("x") == {"path": "x", "sizes": (8,), "kind": "a", "workers": None}
    assert measure(Path("x"), [np.int64(3)], kind="b", workers=0, more=1) == {  # type: ignore[arg-type]
        **{"path": Path("x"), "sizes": (3,), "kind": "b", "workers": 0, "more": 1}
    }
    assert measure.__name__ == "measure"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sizes": []}, ["sizes=()", "one or more"]),
        ({"sizes": [0]}, ["sizes=0", "at least 1"]),
        ({"sizes": 3}, ["sizes=3"]),
        ({"kind": "c"}, ["kind 'c'", "a, b"]),
        ({"kind": ["a"]}, ["kind"]),
        ({"workers": -1}, ["workers=-1", "at least 0"]),
        ({"workers": 2.5}, ["workers=2.5"]),
        ({"workers": "4"}, ["workers='4'"]),
        ({"workers": True}, ["workers=True"]),
    ],
)
def test_a_wrong_argument_is_one_sentence(arguments: dict[str, Any], words: list[str]) -> None:
    with pytest.raises((InputError, UnknownName)) as raised:
        measure("x", **arguments)
    assert all(word in str(raised.value) for word in words), raised.value


def test_errors_show_the_beginning_of_long_values() -> None:
    cases: list[tuple[object, Any]] = [("x" * 10**7, int), ("x" * 10**7, Literal["a"]), ([0] * 10**6, PositiveInt)]
    for value, hint in cases:
        with pytest.raises((InputError, UnknownName), match=r"\.\.\.") as raised:
            coerce(value, hint, "setting")
        assert len(str(raised.value)) < 400


@pytest.mark.parametrize("value", ["", "a\0b", 5, None, b"x"])
def test_what_cannot_be_a_path(value: Any) -> None:
    with pytest.raises(InputError, match=r"where=.*expected a path"):
        check_path(value, "where")
