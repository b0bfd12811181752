"""The first phase on features of the frozen image network: the same scores as from pixels, resumable, bounded."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fixformer.data.loading.datasets import collate_train
from fixformer.data.loading.order import RandomAccess, Visit
from fixformer.errors import Interrupted, SettingsConflict
from fixformer.runtime.signals import StopRequest
from fixformer.training.frozen_features import FrozenFeatures, FrozenLoader
from fixformer.training.learner import FromFeatures
from fixformer.training.log import read_log
from fixformer.training.request import load_checked_index, resolve_config
from fixformer.training.run import TrainResult, build_model, train
from tiny_run import TINY, Run, loss_trace

LITE: dict[str, Any] = {
    **TINY,
    "model": "fixformer_lite",
    "stem": "lite0",
    "patch_size": 16,
    "size": 32,
    "pretrained": False,
    "epochs": 3,
    "frozen_epochs": 2,
    "frozen_draws": 2,
    "mixup": 0.0,
}
del LITE["patch_stride"], LITE["patch_padding"]


@pytest.fixture
def lite(motions: Path, tmp_path: Path) -> dict[str, Any]:
    return {**LITE, "recipe": "demo", "data": motions, "cache": str(tmp_path / "cache")}


def features_of(settings: dict[str, Any]) -> tuple[FrozenFeatures, torch.nn.Module]:
    config = resolve_config(**settings)
    index = load_checked_index(config)
    model = build_model(config, len(index.labels))
    from fixformer.data.loading import reader_for

    samples = index.split("train")
    features = FrozenFeatures(
        samples,
        config.clip,
        config.data,
        model.get_submodule("patch_embed"),  # type: ignore[arg-type]
        seed=config.seed,
        draws=config.frozen_draws,
        reader=reader_for(samples, config.clip, config.data),
        device=torch.device("cpu"),
    )
    return features, model.eval()


def test_features_and_pixels_give_the_same_scores(lite: dict[str, Any], tmp_path: Path) -> None:
    features, model = features_of({**lite, "output": tmp_path / "run"})
    features.fill(0, 1)
    loader = FrozenLoader(features, RandomAccess(len(features.samples)), batch_size=4, seed=0, rank=0, world=1)
    batch = next(loader.epoch(1))
    clips = [features.clips.item(1, visit) for visit in map(Visit, batch.index_B.tolist())]
    pixels = collate_train(clips).inputs(features.spec)
    with torch.no_grad():
        from_pixels, from_features = model(pixels), FromFeatures(model)(batch.features_BTHWC)  # type: ignore[arg-type]
    # half precision has 11 bits
    torch.testing.assert_close(from_features, from_pixels, rtol=5e-3, atol=5e-3)
    assert batch.labels_B.tolist() == [clip.label for clip in clips]


def test_every_draw_is_stored_once_and_found_again(lite: dict[str, Any], tmp_path: Path, monkeypatch: Any) -> None:
    features, _ = features_of({**lite, "output": tmp_path / "run"})
    features.fill(0, 1)
    first, _ = features.of(1, [0, 5])
    again, _ = features_of({**lite, "output": tmp_path / "run"})
    monkeypatch.setattr(again, "_compute", None)  # nothing is computed again
    again.fill(0, 1)
    assert torch.equal(again.of(1, [0, 5])[0], first)
    assert not torch.equal(again.of(0, [0, 5])[0], first)  # another draw is another clip


def test_a_damaged_shard_is_computed_again(lite: dict[str, Any], tmp_path: Path) -> None:
    features, _ = features_of({**lite, "output": tmp_path / "run"})
    features.fill(0, 1)
    before = [features.of(0, [index])[0] for index in range(4)]
    for path in features.home.glob("*.bin"):
        content = bytearray(path.read_bytes())
        content[100] ^= 1  # in the first clip of each shard
        path.write_bytes(content)
    again, _ = features_of({**lite, "output": tmp_path / "run"})
    after = [again.of(0, [index])[0] for index in range(4)]
    for one, two in zip(before, after, strict=True):  # computed alone instead of in a batch: the last bit may differ
        torch.testing.assert_close(one, two, rtol=2e-3, atol=2e-3)


def test_a_full_cache_keeps_fewer_draws(
    lite: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one_draw = 24 * (4 + 2 * 4 * 2 * 2 * 112) / 2**30
    features, _ = features_of({**lite, "output": tmp_path / "run", "cache_gb": 1.5 * one_draw})
    assert features.draws == 1
    assert "keeping 1" in capsys.readouterr().err
    none, _ = features_of({**lite, "output": tmp_path / "run", "cache_gb": 0.5 * one_draw})
    none.fill(0, 1)
    assert not none.home.exists() or not list(none.home.glob("*.bin"))
    assert none.of(0, [3])[0].shape == (1, 4, 2, 2, 112)


def test_the_image_network_changes_only_after_the_first_phase(lite: dict[str, Any], tmp_path: Path) -> None:
    frozen = train(**{**lite, "epochs": 2, "output": tmp_path / "frozen"})
    whole = train(**{**lite, "output": tmp_path / "whole"})
    config = resolve_config(**{**lite, "output": tmp_path / "other"})
    initial = build_model(config, 12).state_dict()
    name = "patch_embed.features.blocks.10.project.weight"
    assert torch.equal(_weights(frozen)[name], initial[name])
    assert not torch.equal(_weights(whole)[name], initial[name])
    assert not torch.equal(_weights(frozen)["patch_embed.proj.weight"], initial["patch_embed.proj.weight"])


def test_a_run_that_is_all_frozen_resumes_at_its_end(lite: dict[str, Any], tmp_path: Path) -> None:
    """Stopped in its last evaluation, all of its epochs are done."""
    given = {**lite, "epochs": 2, "output": tmp_path / "frozen"}
    first = train(**given)
    again = train(**given, resume=True)
    assert again.steps == first.steps
    assert again.evaluation.confusion == first.evaluation.confusion


def _weights(result: TrainResult) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(result.output / "last" / "model.safetensors")


@pytest.mark.parametrize("stop_at", [3, 9, 14])
def test_a_stopped_run_resumes_exactly(
    lite: dict[str, Any], tmp_path: Path, stop_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first phase, in its second epoch, and in the second phase; six steps an epoch."""
    alone = train(**{**lite, "output": tmp_path / "alone"})
    steps = iter(range(1, 1000))
    original = StopRequest.__bool__

    def stopping(self: StopRequest) -> bool:
        return next(steps) >= stop_at or original(self)

    with monkeypatch.context() as patch:
        patch.setattr(StopRequest, "__bool__", stopping)
        patch.setattr(StopRequest, "interruption", lambda self, text: Interrupted(15, text))
        patch.setattr("fixformer.training.run._make_features", _without_asking)
        with pytest.raises(Interrupted):
            train(**{**lite, "output": tmp_path / "stopped"})
    resumed = train(**{**lite, "output": tmp_path / "stopped", "resume": True})
    assert loss_trace(resumed.output) == loss_trace(alone.output)
    for name, value in _weights(alone).items():
        assert torch.equal(value, _weights(resumed)[name]), name


def _without_asking(config: Any, index: Any, learner: Any, reader: Any, world: Any, stop: Any) -> FrozenFeatures:
    """`_make_features`, which does not count as a step."""
    from fixformer.training.learner import stem_of

    options = {"seed": config.seed, "draws": config.frozen_draws, "reader": reader, "device": world.device}
    features = FrozenFeatures(index.split("train"), config.clip, config.data, stem_of(learner.model), **options)  # type: ignore[arg-type]
    features.fill(0, 1)
    return features


def test_each_phase_has_its_own_schedule(lite: dict[str, Any], tmp_path: Path) -> None:
    result = train(**{**lite, "output": tmp_path / "run", "warmup_epochs": 0.5})
    rates = [row["lr"] for row in read_log(result.output / "log.jsonl") if row["kind"] == "step"]
    assert rates[0] == rates[12] == 0  # each begins with the warm-up
    assert rates[11] < max(rates[:12])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"frozen_epochs": 4}, "frozen_epochs=4.*epochs=3"),
        ({"frozen_epochs": 3, "mixup": 0.2}, "mixup=0.2 mixes pixels.*frozen_epochs=3.*set mixup=0"),
        ({"frozen_epochs": 3, "cutmix": 1.0}, "cutmix=1 mixes pixels"),
        ({"cache": None}, "cache=auto"),
        ({"stages": "4x32:3"}, "stages"),
        ({"model": "fixformer_tiny", "stem": "conv"}, "fixformer_tiny.*fixformer_lite"),
    ],
)
def test_what_cannot_be_combined_is_refused(
    lite: dict[str, Any], tmp_path: Path, changed: dict[str, Any], words: str
) -> None:
    with pytest.raises(SettingsConflict, match=words):
        train(**{**lite, "output": tmp_path / "run", **changed})


def test_the_first_steps_of_the_demo_are_not_changed_by_all_this(run: Run) -> None:
    """A run without a frozen phase has one schedule."""
    rates = [row["lr"] for row in read_log(run().output / "log.jsonl") if row["kind"] == "step"]
    assert max(rates) > rates[-1]


@pytest.mark.slow
def test_two_processes_share_the_features_and_have_the_losses_of_one(lite: dict[str, Any], tmp_path: Path) -> None:
    """In both phases, each of which has its own gradients to exchange; micro-batches included."""
    alone = train(**{**lite, "epochs": 4, "output": tmp_path / "alone"})
    other = {"cache": str(tmp_path / "other"), "micro_batch": 1, "processes": 2}
    two = train(**{**lite, **other, "epochs": 4, "output": tmp_path / "two"})
    assert loss_trace(two.output) == pytest.approx(loss_trace(alone.output), rel=1e-4)
    assert two.evaluation.confusion == alone.evaluation.confusion
