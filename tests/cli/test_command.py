"""Commands made of functions: what the words of a command line mean, and what the help says."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from fixformer.cli.app import commands, main
from fixformer.cli.command import Command, SettingWords
from fixformer.config.overrides import FLAGS, OTHERS
from fixformer.errors import UsageError


def verb(
    source: Annotated[str, "SOURCE"],
    settings: Annotated[tuple[str, ...], "NAME=VALUE", SettingWords(lambda: ["lr", "clip.size"])] = (),
    *,
    out: Annotated[Path, "DIRECTORY"] | None = None,
    short_side: Annotated[int, "PIXELS"] = 256,
    sides: Annotated[tuple[int, ...], "PIXELS"] = (1, 2),
    kind: Literal["files", "shards"] = "files",
    again: bool = False,
) -> None:
    """Do it.

    Args:
        source: where it comes from.
        out: where it goes, which may be
            far away.
        again: once more.
    """


def files(first: str, others: tuple[str, ...] = ()) -> None:
    """Read files."""


VERB, FILES = Command("verb", verb), Command("files", files)


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["a"], {}),
        (["a", "--short-side", "-4", "--out", "x"], {"short_side": -4, "out": Path("x")}),
        (["--short_side=8", "a"], {"short_side": 8}),
        (["a", "--again"], {"again": True}),
        (["a", "--no-again"], {"again": False}),
        (["a", "--sides", "3", "4", "--again"], {"sides": (3, 4), "again": True}),
        (["a", "--sides=3,4"], {"sides": (3, 4)}),
        (["a", "--kind", "shards", "--out", "none"], {"kind": "shards", "out": None}),
        # a parameter as a setting, and a setting as an option; the same twice is once
        (["a", "short_side=8", "again=1"], {"short_side": 8, "again": True}),
        (["a", "--short-side", "8", "short_side=8"], {"short_side": 8}),
        (["--source", "a", "--lr", "1e-3", "--clip.size=8"], {"settings": ("lr=1e-3", "clip.size=8")}),
        (["lr=1", "a", "--again", "depth=2"], {"settings": ("lr=1", "depth=2"), "again": True}),
        (["source=a", "a", "b"], {"settings": ("b",)}),
    ],
)
def test_words_become_arguments(words: list[str], arguments: dict[str, Any]) -> None:
    assert VERB.read(words) == {"source": "a", "settings": (), **arguments}


def test_names_of_files_may_look_like_anything() -> None:
    assert FILES.read(["a,b", "--", "--again", "-x", "c=d"]) == {"first": "a,b", "others": ("--again", "-x", "c=d")}
    assert FILES.read(["a=b", "-"]) == {"first": "a=b", "others": ("-",)}
    assert FILES.read(["--first", "a", "b"]) == {"first": "a", "others": ("b",)}


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ([], ["SOURCE", "missing"]),
        (["a", "--short-side", "x"], ["--short-side='x'", "an int"]),
        (["a", "--short-side"], ["--short-side", "value"]),
        (["a", "--short-side", "--again"], ["--short-side", "value"]),
        (["a", "--out", ""], ["--out=''", "a path"]),
        (["a", "--kind", "shard"], ["--kind 'shard'", "shards"]),
        (["a", "--agian"], ["'--agian'", "--again"]),
        (["a", "--clip.sizes", "3"], ["--clip.size"]),
        (["a", "-v"], ["'-v'", "dash"]),
        (["a", "--again=perhaps"], ["--again='perhaps'", "true or false"]),
        (["a", "--out", "x", "out=y"], ["out", "'x'", "'y'"]),
        (["a", "source=b"], ["source", "'a'", "'b'"]),
        (["a", "--short-side", str(2**70)], ["64 bits"]),
    ],
)
def test_wrong_words_are_bad_usage(words: list[str], parts: list[str]) -> None:
    with pytest.raises(UsageError) as raised:
        VERB.read(words)
    assert all(part in str(raised.value) for part in parts), raised.value


def test_words_that_nobody_takes() -> None:
    with pytest.raises(UsageError, match="'--short'"):
        FILES.read(["a", "--short", "3"])
    with pytest.raises(UsageError, match="'b'"):
        commands["models"].read(["a", "b"])


def test_help_shows_names_defaults_and_descriptions() -> None:
    text = VERB.help()
    assert text.startswith("usage: fixformer verb SOURCE [NAME=VALUE ...] [OPTIONS]\n\nDo it.")
    assert re.search(r"--out DIRECTORY +where it goes, which may be far away\.", text)
    assert re.search(r"--short-side PIXELS +Default: 256", text)
    assert "--kind files|shards" in text
    assert "--again " in text


@pytest.mark.parametrize("name", list(commands))
def test_every_help_names_its_values_in_words(name: str) -> None:
    """And describes every argument."""
    text = commands[name].help()
    assert not re.search(r"\b(STR|INT|FLOAT|BOOL|PATH|TUPLE)\b|None|\{|<", text), text
    assert [one.name for one in commands[name].parameters if not one.about] == []
    assert max(map(len, text.splitlines())) <= 110


def test_the_list_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--help"], ["-h"], ["help"]):
        main(words)
        shown = capsys.readouterr().out
        assert all(f"\n  {name} " in shown for name in ("models", "train", "predict", "bench"))
    for words in (["bench"], ["bench", "--help"], ["help", "bench"]):
        main(words)
        assert "bench chunked" in capsys.readouterr().out
    for words in (["help", "train"], ["train", "--help"], ["train", "demo", "-h"]):
        main(words)
        assert "[RECIPE] [NAME=VALUE ...]" in capsys.readouterr().out


def test_options_of_eval_are_offered_for_mistyped_settings() -> None:
    """`config/overrides.py` must know their names."""
    options = {one.name for one in commands["eval"].parameters} - {"settings", "json"}
    assert options == {*OTHERS, *(flag.removeprefix("--") for flag in FLAGS.values())}
