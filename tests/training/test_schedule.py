"""The learning rate over a run, held against the released code's own values."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixformer.config import OptimConfig
from fixformer.config.recipes import get_recipe
from fixformer.training.schedule import cosine, learning_rate


def test_every_value_of_the_released_schedule(golden_sampling: dict) -> None:
    cases = golden_sampling["learning_rate"]["cases"]
    assert len(cases) == 5
    for case in cases:
        solver = case["solver"]
        config = OptimConfig(
            lr=solver["BASE_LR"],
            end_lr=solver["COSINE_END_LR"],
            warmup_epochs=solver["WARMUP_EPOCHS"],
            warmup_lr=solver["WARMUP_START_LR"],
        )
        for epoch, value in case["lr_at_epoch"]:
            assert learning_rate(config, solver["MAX_EPOCH"], epoch) == pytest.approx(value, rel=1e-12), case["recipe"]


@pytest.mark.parametrize(
    ("name", "case"), [("ssv2_released", 0), ("k400_released", 1), ("k600_released", 2), ("ssv2", 3), ("k400", 4)]
)
def test_recipes_have_the_schedule_of_their_case(golden_sampling: dict, name: str, case: int) -> None:
    golden = golden_sampling["learning_rate"]["cases"][case]
    config = get_recipe(name)
    for epoch, value in golden["lr_at_epoch"]:
        assert learning_rate(config.optim, config.epochs, epoch) == pytest.approx(value, rel=1e-12)


@settings(deadline=None)
@given(st.floats(0.1, 10), st.integers(11, 100), st.floats(0, 1), st.floats(0, 1))
def test_warm_up_meets_the_cosine_and_the_end_is_reached(warmup: float, epochs: int, start: float, end: float) -> None:
    config = OptimConfig(lr=1.0, warmup_epochs=warmup, warmup_lr=start, end_lr=end)
    assert learning_rate(config, epochs, 0) == pytest.approx(start)
    before = learning_rate(config, epochs, warmup * (1 - 1e-9))
    assert before == pytest.approx(cosine(config, epochs, warmup), abs=1e-6)
    assert learning_rate(config, epochs, epochs) == pytest.approx(end, abs=1e-9)
