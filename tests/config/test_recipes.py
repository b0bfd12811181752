"""Recipes are complete, say what they cost, and hold the numbers of the paper and of the released code."""

import re
from dataclasses import replace

import pytest

from fixformer.config.recipes import RECIPES, describe_recipe, get_recipe
from fixformer.errors import UnknownName
from fixformer.models.registry import create_model

ABLATIONS = {"ablate_frozen", "ablate_tuned", "ablate_patch", "ablate_motions"}
LSA64 = {"lsa64", "lsa64_all", "lsa64_lite"}
PAPER = {"ssv2", "k400", "k600", "ssv2_released", "k400_released", "k600_released"}
NAMES = {"auto", "demo", "folder", "images", *ABLATIONS, *LSA64, *PAPER}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_recipe_is_complete(name: str) -> None:
    config = get_recipe(name)
    replace(config, data=replace(config.data, path="x")).validate()
    assert config.recipe == name
    text = describe_recipe(name)
    assert all(word in text for word in ("Cost:", "Hardware:", "Expected:", "Command:"))
    # a data set stands in the place of the recipe "auto"
    assert re.search(rf"fixformer train {'videos' if name == 'auto' else name}\b", text)


def test_all_of_them_are_there() -> None:
    assert set(RECIPES) == NAMES
    with pytest.raises(UnknownName, match="did you mean lsa64"):
        get_recipe("lsa46")


@pytest.mark.parametrize("name", sorted(NAMES - {"images"}))
def test_the_settings_are_the_models(name: str) -> None:
    import torch

    config = get_recipe(name)
    with torch.device("meta"):
        create_model(config.model, num_frames=config.clip.frames, image_size=config.clip.size, **config.model_settings)


def test_the_papers_table() -> None:
    """Appendix, "Detailed training configuration"."""
    ssv2, k400 = get_recipe("ssv2"), get_recipe("k400")
    for config in (ssv2, k400):
        assert (config.batch_size, config.optim.lr, config.epochs, config.optim.weight_decay) == (32, 0.035, 35, 4e-4)
        assert (config.optim.optimiser, config.optim.warmup_epochs) == ("sgd", 5)
        assert config.model_settings["dropout"] == 0.5
        assert config.clip.augment.jitter == (256, 320)
        assert config.clip.augment.policy == "v0"
    assert (ssv2.optim.warmup_lr, k400.optim.warmup_lr) == (0.003, 0.01)
    assert ssv2.model_settings == {"shift_space": 1, "shift_time": 1, "shift_keep": 0.5, "dropout": 0.5}
    assert k400.model_settings == {"shift_space": 4, "shift_time": 1, "shift_keep": 0.75, "dropout": 0.5}
    assert (k400.clip.sampling, k400.clip.stride) == ("dense", 16)
    assert replace(get_recipe("k600"), recipe="k400") == k400


def test_the_released_configurations() -> None:
    """`specs/recipes.md`, section 1, the columns "code"."""
    ssv2, k400, k600 = (get_recipe(f"{name}_released") for name in ("ssv2", "k400", "k600"))
    assert (ssv2.optim.lr, ssv2.optim.weight_decay, ssv2.epochs) == (0.03, 1e-4, 35)
    assert (ssv2.smoothing, ssv2.clip.augment.mixup, ssv2.clip.augment.erase, ssv2.clip.augment.flip) == (0, 0, 0.5, 0)
    for config in (k400, k600):
        assert (config.optim.lr, config.optim.weight_decay, config.epochs) == (0.035, 1e-5, 40)
        augment = config.clip.augment
        assert (config.smoothing, augment.mixup, augment.erase, augment.flip) == (0.3, 0.4, 0, 0.5)
        assert augment.crop == "multiscale"
        assert config.model_settings["shift_segment"] == 8
    assert (k400.model_settings["fixation_shared"], k600.model_settings["fixation_shared"]) == (False, True)
    for config in (ssv2, k400, k600):
        assert config.model == "fixformer_base_released"
        assert config.clip.mean == config.clip.std == (0.5, 0.5, 0.5)
        assert config.optim.no_decay == "head_biases"
        assert (config.optim.clip_norm, config.ema, config.run.precision) == (None, None, "float32")
    assert (ssv2.eval.views, k400.eval.views, ssv2.eval.aggregate) == ("2x3", "4x3", "logits")


def test_lsa64_never_mirrors_and_its_model_fits_that_of_all_signs() -> None:
    some, every = (get_recipe(name) for name in ("lsa64", "lsa64_all"))
    assert some.clip.augment.flip == every.clip.augment.flip == 0
    assert (some.data.kind, some.data.recording_set) == ("lsa64", 1)
    assert (every.data.kind, every.data.recording_set) == ("lsa64", None)
    assert some.model_settings == every.model_settings


def test_the_base_of_the_studies_is_eight_frozen_epochs() -> None:
    """After eight, the score of the validation signers is at its plateau: results/own_videos.json, run p1."""
    config = get_recipe("ablate_frozen")
    assert (config.epochs, config.frozen_epochs, config.eval.every, config.eval.views) == (8, 8, 4, "2x1")
