"""Whatever a name holds, printing it does not act on the terminal, and nothing prints in another way."""

import ast
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fixformer
from fixformer.runtime.console import console, note, note_once, print_json, printable, show

PACKAGE = Path(fixformer.__file__).parent
WORKERS = {"bench/process.py", "runtime/team.py"}  # print JSON for the process that started them


def test_nothing_else_prints() -> None:
    users = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                users.add(file.relative_to(PACKAGE).as_posix())
    assert users - WORKERS == {"runtime/console.py"}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain name.mp4", "plain name.mp4"),
        ("日本語 👩‍🚀 ñ می‌خواهم", "日本語 👩‍🚀 ñ می‌خواهم"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("two\nlines\r", r"two\nlines\r"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
        ("caf\udce9", r"caf\udce9"),
        ("\x9b31m", r"\x9b31m"),
    ],
)
def test_printable(name: str, shown: str) -> None:
    assert printable(name) == shown


@given(st.text(st.characters(codec=None, exclude_categories=())))
def test_any_text_becomes_one_line_without_commands(text: str) -> None:
    shown = printable(text)
    shown.encode()
    assert len(shown.splitlines()) <= 1
    assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in shown)
    assert printable(shown) == shown


def test_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    show("a\x1b\nb\udce9")
    note("c\r")
    print_json({"caf\udce9": "\x1b"})
    out, err = capsys.readouterr()
    assert out.startswith("a\\x1b\nb\\udce9\n")
    assert json.loads(out[len("a\\x1b\nb\\udce9\n") :]) == {"caf\udce9": "\x1b"}
    assert err == "c\\r\n"


def test_a_table_takes_no_name_for_markup(capsys: pytest.CaptureFixture[str]) -> None:
    console().print("[red]left[/red] :smile: [/]")
    assert capsys.readouterr().out == "[red]left[/red] :smile: [/]\n"


def test_once(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        note_once("said once in this process")
    assert capsys.readouterr().err == "said once in this process\n"
