"""The log of a run: one row per line, rewound when a run resumes."""

from pathlib import Path

import pytest

from fixformer.training.display import Lines, describe
from fixformer.training.log import RunLog, read_log
from terminal import shown_on_a_terminal


def test_a_continued_run_forgets_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    for step in (1, 2, 3, 4):
        log.write("step", step, loss=1.0 / step)
    log.close()
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"kind": "step", "step": 5, "lo')
    again = RunLog(tmp_path, from_step=2)
    again.write("step", 3, loss=7.0)
    again.close()
    assert [(row["step"], row["loss"]) for row in read_log(tmp_path / "log.jsonl")] == [(1, 1.0), (2, 0.5), (3, 7.0)]


def test_a_damaged_line_costs_no_other(tmp_path: Path) -> None:
    good = [b'{"kind": "step", "step": %d}' % step for step in (1, 2, 3)]
    bad = [b"\xff\xfe", b"[]", b'{"kind": "step"}', b'{"kind": 1, "step": 2}', b"[" * 99_999, b"7"]
    (tmp_path / "log.jsonl").write_bytes(b"\n".join([good[0], *bad, good[1], good[2], b'{"kind": "st']))
    assert [row["step"] for row in read_log(tmp_path / "log.jsonl")] == [1, 2, 3]


def test_a_new_run_begins_with_an_empty_log(tmp_path: Path) -> None:
    RunLog(tmp_path).close()
    assert read_log(tmp_path / "log.jsonl") == []
    assert read_log(tmp_path / "none.jsonl") == []


def test_tensorboard_has_the_numbers_of_the_rows(tmp_path: Path) -> None:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    log = RunLog(tmp_path)
    log.write("step", 1, loss=2.0)
    log.write("eval", 1, video_top1=0.5)
    log.write("problem", 1, path="a.mp4")
    log.close()
    found = accumulators.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert set(found.Tags()["scalars"]) == {"step/loss", "eval/video_top1"}
    assert [(event.step, event.value) for event in found.Scalars("step/loss")] == [(1, 2.0)]


def test_without_a_terminal_rows_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    row = {
        **{"kind": "step", "step": 1, "epoch": 0.5, "loss": 2.0, "lr": 1e-3},
        **{"clips_per_second": 10.0, "data_wait": 0.01, "memory_mb": 100.0},
    }
    display = Lines()
    display.begin(total=3, done=0)
    for step in (1, 2, 3):
        display.row({**row, "step": step})
    shown = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in shown] == ["1/3", "3/3"]  # the second follows too soon
    assert "loss 2.0000" in describe(row)
    assert "data wait 1.0%" in describe(row)


def test_an_evaluation_that_will_be_repeated_is_forgotten(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    log.write("step", 6, loss=1.0)
    log.write("eval", 6, video_top1=0.5)
    log.close()
    RunLog(tmp_path, from_step=6).close()
    assert [row["kind"] for row in read_log(tmp_path / "log.jsonl")] == ["step", "eval"]
    RunLog(tmp_path, from_step=6, unscored=True).close()
    assert [row["kind"] for row in read_log(tmp_path / "log.jsonl")] == ["step"]


LIVE = """
from fixformer.training.display import make_display
display = make_display(True)
display.begin(total=20, done=5)
step = {"kind": "step", "step": 10, "epoch": 0.5, "loss": 2.5, "lr": 1e-3}
display.row({**step, "clips_per_second": 10.0, "data_wait": 0.01, "memory_mb": 100.0})
report = display.scoring()
report(3, 12)
display._live.refresh()
report(12, 12)
display.note("a note")
display.close()
"""


def test_a_terminal_shows_the_newest_numbers_and_the_scoring() -> None:
    text = shown_on_a_terminal(LIVE)
    for word in ("training", "10/20", "ETA", "loss 2.5000", "lr 1.00e-03", "0.1 GB", "3/12", "a note"):
        assert word in text, word
