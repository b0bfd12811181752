"""Progress: lines where nobody watches, a bar on a terminal."""

import pytest

from fixformer.runtime import progress
from terminal import shown_on_a_terminal

WORK = """
from fixformer.runtime.progress import counting
with counting("counting sheep", 3) as counter:
    for _ in range(3):
        counter.begin("counting black sheep")
        counter.advance()
"""


def test_lines_now_and_then_and_one_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 100, 4))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress.progress("sheep") as report:
        for done in range(1, 6):
            report(done, 5)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["sheep: 3/5, 0.25/s, 8 s left", "sheep: 5/5, 0.25/s"]


def test_a_terminal_gets_a_bar() -> None:
    text = shown_on_a_terminal(WORK)
    assert "counting black sheep" in text
    assert "3/3" in text
    assert "━" in text


def test_a_name_in_the_description_is_not_markup() -> None:
    program = "from fixformer.runtime.progress import progress\nwith progress('[red]\\x1b[5m') as report: report(1, 1)"
    assert r"[red]\x1b[5m" in shown_on_a_terminal(program)
