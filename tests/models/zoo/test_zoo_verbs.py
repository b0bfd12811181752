"""What every network of the zoo must do, on the smallest of each class."""

import copy
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from fixformer.errors import InputError
from fixformer.models.registry import create_model, list_models, list_settings
from fixformer.models.zoo.common.pooled_classifier import PooledClassifier

Builder = Callable[..., PooledClassifier]
ZOO = (
    *("mvit_base_16x4", "mvit_base_32x3", "slowfast_r50_8x8", "slowfast_r101_8x8"),
    *("tsm_r50", "tsm_r101", "msnet_r50", "i3d", "x3d_m"),
)


def clip(batch: int = 2, frames: int = 4, height: int = 32, width: int = 32) -> Tensor:
    return torch.randn(batch, 3, frames, height, width, generator=torch.Generator().manual_seed(1))


def wake(model: PooledClassifier) -> PooledClassifier:
    """Residual branches that start at zero would hide what is in them."""
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.data.add_(0.3 * torch.rand(parameter.shape, generator=generator))
    return model


def test_all_names_are_registered() -> None:
    assert set(ZOO) <= set(list_models())
    for name in ZOO:
        assert {"num_classes", "num_frames", "image_size", "dropout"} <= set(list_settings(name))


def test_settings_arrive() -> None:
    with torch.device("meta"):
        model = create_model("tsm_r50", num_classes=3, num_frames=5, image_size=64, dropout=0.25)
    assert (model.num_classes, model.num_frames, model.image_size, model.dropout.rate) == (3, 5, 64, 0.25)


def test_features_then_head_is_forward(tiny: Builder) -> None:
    model = wake(tiny()).eval()
    features = model.forward_features(clip())
    pre_logits = model.forward_head(features, pre_logits=True)
    assert pre_logits.shape == (2, model.num_features)
    torch.testing.assert_close(model.forward_head(features), model(clip()))
    torch.testing.assert_close(model.head(pre_logits), model(clip()))


@pytest.mark.parametrize(("frames", "height", "width"), [(1, 32, 32), (3, 37, 29), (9, 48, 33), (2, 7, 5), (1, 1, 1)])
def test_runs_at_any_length_and_size(tiny: Builder, frames: int, height: int, width: int) -> None:
    model = tiny().eval()
    logits = model(clip(2, frames, height, width))
    assert logits.shape == (2, 5)
    assert logits.isfinite().all()


def test_clips_do_not_see_each_other(tiny: Builder) -> None:
    model = wake(tiny()).eval()
    video = clip(3)
    torch.testing.assert_close(model(video)[1:2], model(video[1:2]), atol=1e-5, rtol=1e-4)


def test_the_order_of_frames_matters(tiny: Builder) -> None:
    model = wake(tiny(num_frames=8)).eval()
    video = clip(1, 8)
    assert not torch.allclose(model(video), model(video.flip(2)), atol=1e-5)


def test_the_same_seed_gives_the_same_weights(tiny: Builder) -> None:
    first, second = tiny().state_dict(), tiny().state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_every_parameter_has_a_gradient(tiny: Builder) -> None:
    model = wake(tiny()).train()
    model(clip()).square().sum().backward()
    silent = [name for name, p in model.named_parameters() if p.grad is None]
    assert not silent


def test_reset_classifier(tiny: Builder) -> None:
    model = tiny().double()
    model.reset_classifier(9)
    assert model.num_classes == 9
    assert model(clip().double()).shape == (2, 9)
    with pytest.raises(InputError, match="num_classes=0"):
        model.reset_classifier(0)


@pytest.mark.parametrize("setting", ["num_frames", "image_size", "num_classes"])
def test_sizes_below_one_are_refused(tiny: Builder, setting: str) -> None:
    with pytest.raises(InputError, match=f"{setting}=0"):
        tiny(**{setting: 0})


def test_impossible_rates_are_refused(tiny: Builder) -> None:
    with pytest.raises(InputError, match=r"dropout=1\.5"):
        tiny(dropout=1.5)


def test_set_input_size(tiny: Builder) -> None:
    model = tiny()
    model.set_input_size(num_frames=6, image_size=48)
    assert (model.num_frames, model.image_size) == (6, 48)
    assert model.eval()(clip(1, 6, 48, 48)).shape == (1, 5)


def gradients(model: PooledClassifier) -> dict[str, Tensor]:
    torch.manual_seed(3)
    model.zero_grad()
    model(clip()).square().sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_checkpointing_changes_nothing_but_memory(tiny: Builder) -> None:
    plain = wake(tiny()).train()
    frugal = copy.deepcopy(plain)
    frugal.set_grad_checkpointing()
    expected, found = gradients(plain), gradients(frugal)
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    buffers = dict(frugal.named_buffers())
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in plain.named_buffers())


def test_checkpointing_recomputes(tiny: Builder) -> None:
    """The test above would also pass if nothing were recomputed."""

    def saved_bytes(model: PooledClassifier) -> int:
        total = 0

        def save(tensor: Tensor) -> Tensor:
            nonlocal total
            total += tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
            model(clip())
        return total

    model = tiny().train()
    plain = saved_bytes(model)
    model.set_grad_checkpointing()
    assert saved_bytes(model) < plain


def test_exports_for_any_batch(tiny: Builder) -> None:
    model = wake(tiny()).eval()
    batch = torch.export.Dim("batch", min=1, max=16)
    program = torch.export.export(model, (clip(),), dynamic_shapes=({0: batch},))
    torch.testing.assert_close(program.module()(clip(3)), model(clip(3)))


def test_state_dict_round_trip(tiny: Builder) -> None:
    model = wake(tiny()).eval()
    other = tiny().eval()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(clip()), model(clip()))


def test_bfloat16_autocast_is_near(tiny: Builder) -> None:
    model = tiny().eval()
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(clip())
    expected = model(clip())
    tolerance = 0.05 * expected.abs().max().item() + 1e-3
    torch.testing.assert_close(logits.float(), expected, atol=tolerance, rtol=0.05)


def test_no_weight_decay_names_parameters(tiny: Builder) -> None:
    model = tiny()
    assert model.no_weight_decay() <= {name for name, _ in model.named_parameters()}


@pytest.fixture
def process_group(tmp_path) -> object:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("process_group")
def test_trains_under_ddp(tiny: Builder) -> None:
    """DDP raises in the second step if a parameter had no gradient in the first."""
    model = wake(tiny()).train()
    wrapped = DistributedDataParallel(model)
    for _ in range(2):
        wrapped(clip()).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
