"""Noise is the clip's own, however the batch is divided."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fixformer
from fixformer.models.layers.noise import Dropout, DropPath, clip_noise, share_of_batch


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(1, 3))
def test_the_parts_of_a_batch_draw_what_the_whole_draws(parts: list[int], each: int) -> None:
    total = sum(parts)
    drawn, start = [], 0
    for count in parts:
        torch.manual_seed(3)
        with share_of_batch(start, start + count, total):
            drawn.append(clip_noise(lambda rows: torch.rand(rows, 2), count * each))
        start += count
    torch.manual_seed(3)
    assert torch.cat(drawn).equal(torch.rand(total * each, 2))


def test_threads_take_turns() -> None:
    """Each of two threads that train at once draws for its own part."""

    def drawn(start: int) -> torch.Tensor:
        with share_of_batch(start, start + 1, 2):
            time.sleep(0.1)  # long enough for the other thread to enter, if it could
            return clip_noise(torch.arange, 1)

    with ThreadPoolExecutor(2) as pool:
        assert [x.tolist() for x in pool.map(drawn, (0, 1))] == [[0], [1]]


def test_a_part_ends_with_its_block_and_refuses_other_batches() -> None:
    with pytest.raises(AssertionError, match="3 rows of noise for 2 clips"), share_of_batch(0, 2, 4):
        Dropout(0.5)(torch.ones(3, 2))
    assert clip_noise(torch.arange, 3).tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", [Dropout, DropPath])
def test_what_is_kept_is_scaled_up(kind: type[Dropout | DropPath]) -> None:
    torch.manual_seed(0)
    layer = kind(0.25)
    x = torch.ones(4000, 3)
    kept = layer(x)
    assert set(kept.unique().tolist()) == {0.0, torch.tensor(1.0).div(0.75).item()}
    assert kept.mean().item() == pytest.approx(1, abs=0.05)
    whole_rows = (kept == kept[:, :1]).all(1).float().mean()
    assert whole_rows == 1 if kind is DropPath else whole_rows < 0.7
    assert layer.eval()(x) is x
    assert kind(0.0)(x) is x


@pytest.mark.parametrize("attention", ["linear", "lara", "orthoformer"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients_of_parts_add_up_with_everything_random_switched_on(attention: str, checkpointing: bool) -> None:
    plain = {} if attention == "linear" else {"fixation": "none", "association": "none"}
    torch.manual_seed(1)
    model = fixformer.create_model(
        "fixformer_tiny", depth=2, num_classes=3, num_frames=4, image_size=32, attention=attention, dropout=0.5,
        drop_path=0.5, **plain,
    )  # fmt: skip
    model.set_grad_checkpointing(checkpointing)
    video = torch.randn(4, 3, 4, 32, 32)
    found = []
    for parts in ([slice(0, 4)], [slice(0, 1), slice(1, 4)]):
        model.zero_grad()
        for part in parts:
            torch.manual_seed(7)
            with share_of_batch(part.start, part.stop, 4):
                model(video[part]).square().sum().backward()
        found.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
    for whole, divided in zip(*found, strict=True):
        torch.testing.assert_close(divided, whole, rtol=1e-3, atol=1e-5)
