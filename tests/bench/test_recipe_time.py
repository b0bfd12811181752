"""The time of a recipe follows from its epochs, its clips and the rates."""

from pathlib import Path
from typing import Any

import pytest

from fixformer.bench import recipe_time
from fixformer.bench.recipe_time import find_run, seconds_of, time_of
from fixformer.config import TrainConfig
from fixformer.errors import UserError
from fixformer.models.cost import cost
from fixformer.training.choose import Rates
from tiny_run import TINY, tiny_set

SMALL: dict[str, Any] = {"depth": 1, "size": 32, "frames": 4, "batch_size": 4}


def test_only_whole_batches_are_trained() -> None:
    run = find_run("demo", None, 11, {**SMALL, "epochs": 3})
    assert seconds_of(run, Rates(1.0, 1.0, 2.0)) == pytest.approx(3 * 8 / 2)


def test_stages_are_as_fast_as_they_have_operations() -> None:
    run = find_run("demo", None, 8, {**SMALL, "stages": "4x16:2,4x32:1"})
    small, own = (cost("fixformer_tiny", 4, size, **run.config.model_settings).executed_macs for size in (16, 32))
    assert seconds_of(run, Rates(1.0, 1.0, 1.0)) == pytest.approx(8 * (2 * small / own + 1), rel=0.01)


def test_frozen_epochs_train_on_features() -> None:
    run = find_run("lsa64", None, 16, {"model": "fixformer_lite", "epochs": 5, "frozen_epochs": 3, "stages": ""})
    config = run.config
    assert seconds_of(run, Rates(features=2.0, frozen=4.0, whole=1.0)) == pytest.approx(
        3 * 16 / 4 + 2 * 16 + min(config.frozen_draws, 3) * 16 / 2
    )


def test_devices_share_the_batch() -> None:
    run = find_run("demo", None, 100, {**SMALL, "batch_size": 10})
    assert [run.clips_on(devices) for devices in (1, 3, 20)] == [10, 4, 1]
    assert find_run("demo", None, 100, {**SMALL, "micro_batch": 2}).clips_on(1) == 2


def test_a_given_rate_is_divided_by_nothing_but_the_devices() -> None:
    run = find_run("demo", None, 8, {**SMALL, "epochs": 2})
    one, four = (time_of(run, devices, 2.0, "cpu", 1)["hours"] for devices in (1, 4))
    assert one == pytest.approx(2 * 8 / 2 / 3600) == 4 * four


def test_a_measured_rate_is_of_two_clips(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[TrainConfig] = []

    def measure(config: TrainConfig, classes: int) -> Rates:
        seen.append(config)
        return Rates(5.0, 5.0, 5.0)

    monkeypatch.setattr(recipe_time, "measure_rates", measure)
    run = find_run("demo", None, 8, SMALL)
    assert time_of(run, 1, None, "cpu", 100)["clips_per_second"] == 5.0
    assert (seen[0].batch_size, seen[0].run.device) == (2, "cpu")
    with pytest.raises(UserError, match="give rate"):
        time_of(run, 1, None, "cpu", 0)


def test_the_videos_of_a_data_set_are_counted(tmp_path: Path) -> None:
    run = find_run("demo", tiny_set(tmp_path / "motions"), None, {**TINY, "output": str(tmp_path / "run")})
    assert run.videos > 0
    assert run.model_settings["num_classes"] == run.classes
