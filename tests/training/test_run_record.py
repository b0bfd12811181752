"""`run.json`: what identifies a run, rebuilt from the newest checkpoint when it is lost."""

import json
from pathlib import Path

import pytest

from fixformer.errors import UserError
from fixformer.training.checkpoint_store import STATE
from fixformer.training.run_record import RunRecord
from tiny_run import Run


@pytest.mark.parametrize("content", [None, "{", "{}", "[]", '{"config": {"lrr": 1}, "labels": [], "data": ""}'])
def test_a_lost_run_file_is_rebuilt(run: Run, capsys: pytest.CaptureFixture[str], content: str | None) -> None:
    home = run(epochs=1).output
    before = (home / "run.json").read_text()
    if content is None:
        (home / "run.json").unlink()
    else:
        (home / "run.json").write_text(content)
    assert run(epochs=1, resume=True).steps == 6
    assert (home / "run.json").read_text() == before
    messages = capsys.readouterr().err
    assert "run.json" in messages
    assert "step-00000006" in messages


def test_a_rebuilt_record_still_guards_the_run(run: Run, copied_data: Path) -> None:
    data = copied_data
    home = run(epochs=1, data=data).output
    (home / "run.json").unlink()
    with pytest.raises(UserError, match=r"optim\.lr: 0\.002 -> 0\.001.*--fork"):
        run(epochs=1, data=data, lr=0.001, resume=True)
    assert run(epochs=2, data=data, lr=0.001, resume=True, fork=True).steps == 12
    (home / "run.json").unlink()
    (listing,) = (data / "labels").glob("*train.json")
    listing.write_text(json.dumps(json.loads(listing.read_text())[::-1]))
    with pytest.raises(UserError, match=r"list of training videos.*--fork"):
        run(epochs=2, data=data, lr=0.001, resume=True)


def test_the_record_of_a_checkpoint_is_that_of_the_run(run: Run) -> None:
    result = run(epochs=1)
    home = result.output
    assert RunRecord.read(home) == RunRecord.from_checkpoint(home / "last", result.config)
    assert json.loads((home / "last" / STATE).read_text())["data"]
