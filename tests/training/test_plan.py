"""What a run is estimated to take, against a run that was measured."""

from typing import Any

import pytest

from fixformer.config.overrides import apply_overrides
from fixformer.config.recipes import get_recipe
from fixformer.errors import SettingsConflict
from fixformer.models.registry import model_setting_types
from fixformer.training.plan import Plan, make_plan


class Videos:
    """As many videos as recording set 1 of LSA64 has; nothing else is asked of an index."""

    labels = tuple(map(str, range(23)))
    eval_split = "val"

    def split(self, name: str) -> range:
        return range(920 if name == "train" else 230)


def planned(**settings: Any) -> Plan:
    fixed = {"data.path": "x", "cache": "y", "warmup_epochs": 0, "patch_size": 8, "keep_short_side": 72}
    config = apply_overrides(get_recipe("lsa64"), {**fixed, **settings}, model_setting_types)
    return make_plan(config, Videos())  # type: ignore[arg-type]


def test_memory_of_lsa64_is_what_was_measured() -> None:
    """3.2 GB at most, a gigabyte of it the process and the mapped cache."""
    plan = planned(stages="8x48:3,12x64:2", batch_size=16)
    assert 2.7 < (plan.memory_mb + plan.host_mb) / 1024 < 3.7
    assert "estimated" in str(plan)


def test_frozen_epochs_need_an_image_network() -> None:
    given = {"data.path": "x", "cache": "y", "model": "x3d_m", "frozen_epochs": 2}
    config = apply_overrides(get_recipe("folder"), given, model_setting_types)
    with pytest.raises(SettingsConflict, match="frozen_epochs=2 needs stem=lite0, which x3d_m has not"):
        make_plan(config, Videos())  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_largest_stage_counts() -> None:
    small = planned(stages="8x48:2", batch_size=16).memory_mb
    assert planned(stages="8x48:1,12x64:1", batch_size=16).memory_mb > 2 * small
    assert planned(stages="8x48:1,8x48:1@64", batch_size=16).memory_mb > 2 * small


def test_evaluations_take_time() -> None:
    few, many = (planned(stages="8x48:4", **{"eval.every": every, "eval.views": "1x1"}) for every in (0, 1))
    assert many.hours * many.gmacs > 1.03 * few.hours * few.gmacs


def test_frozen_epochs_cost_no_pass_through_the_image_network() -> None:
    """It runs once for each draw, keeps no activations, and is two thirds of the model."""
    plans = []
    for frozen in (16, 0):
        settings = {"data.path": "x", "epochs": 16, "frozen_epochs": frozen, "frozen_draws": 4, "eval.every": 0}
        config = apply_overrides(get_recipe("ablate_frozen"), settings, model_setting_types)
        plans.append(make_plan(config, Videos()))  # type: ignore[arg-type]
    frozen_plan, whole = plans
    assert 0.3 < frozen_plan.hours * frozen_plan.gmacs / (whole.hours * whole.gmacs) < 0.5
    assert frozen_plan.memory_mb < 0.4 * whole.memory_mb
