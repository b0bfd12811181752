"""`--fork`: what can change in a resumed run, and the error for what cannot."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from fixformer.errors import UserError
from fixformer.training.learner import Learner
from tiny_run import Run


def restored(monkeypatch: pytest.MonkeyPatch) -> list[Learner]:
    """Learners as they were right after they were restored; their runs stop there."""
    found: list[Learner] = []
    restore = Learner.restore

    def stop(self: Learner, *arguments: Any) -> None:
        restore(self, *arguments)
        found.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(Learner, "restore", stop)
    return found


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"depth": 2}, ["depth", "blocks.1."]),
        ({"embed_dim": 64}, ["embed_dim"]),
        ({"frames": 8}, ["frames", "time_embed"]),
    ],
)
def test_what_cannot_be_resumed_is_one_sentence(run: Run, changed: dict[str, Any], words: list[str]) -> None:
    run(epochs=1)
    with pytest.raises(UserError) as raised:
        run(epochs=2, resume=True, fork=True, **changed)
    assert all(word in str(raised.value) for word in [*words, "--init"]), raised.value


def test_the_steps_of_another_batch_size_are_counted_from_here(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run(epochs=1)
    assert run(epochs=2, batch_size=8, resume=True, fork=True).steps == 9
    assert "step 9/9" in capsys.readouterr().err


def test_a_smaller_model_drops_nothing_silently(run: Run) -> None:
    run(epochs=1, depth=2)
    with pytest.raises(UserError, match=r"depth.*blocks\.1\..*absent in the model"):
        run(epochs=2, depth=1, resume=True, fork=True)


def test_an_average_that_is_switched_on_starts_from_the_weights(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = load_file(run(epochs=1, ema=None).output / "last" / "model.safetensors")
    found = restored(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        run(epochs=2, ema=0.9, resume=True, fork=True)
    assert found[0].ema is not None
    for name, value in found[0].model.state_dict().items():
        assert torch.equal(value, stored[name])
        assert torch.equal(found[0].ema.average[name], stored[name])


def test_without_its_average_a_run_resumes_from_the_trained_weights(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    last = run(epochs=1, ema=0.9).output / "last"
    trained = load_file(last / "train.safetensors")
    found = restored(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        run(epochs=2, ema=None, resume=True, fork=True)
    for name, value in found[0].model.state_dict().items():
        assert torch.equal(value, trained[f"model.{name}"])
    averaged = load_file(last / "model.safetensors")
    assert any(not torch.equal(value, averaged[name]) for name, value in found[0].model.state_dict().items())


def test_a_refused_change_leaves_the_run_as_it_was(run: Run, tmp_path: Path) -> None:
    before = (run(epochs=1).output / "run.json").read_text()
    with pytest.raises(UserError, match="depth"):
        run(epochs=2, resume=True, fork=True, depth=2)
    assert (tmp_path / "run" / "run.json").read_text() == before


@pytest.mark.parametrize("pair", [("sgd", "adamw"), ("adamw", "sgd")])
def test_another_optimiser_starts_without_state(run: Run, tmp_path: Path, pair: tuple[str, str]) -> None:
    run(epochs=1, optimiser=pair[0])
    assert run(epochs=2, optimiser=pair[1], resume=True, fork=True).steps == 12
