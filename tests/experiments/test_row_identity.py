"""A finished row is known by what decides its weights, and by nothing else."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixformer.config import TrainConfig
from fixformer.config.data import DataConfig
from fixformer.config.overrides import apply_overrides
from fixformer.config.recipes import get_recipe
from fixformer.data.listing import Index, load_index
from fixformer.experiments.row_identity import (
    NUMERICS,
    Scoring,
    resolve_row,
    row_key,
    scoring_key,
    split_contents,
    training_config,
)
from fixformer.experiments.studies import OURS, PLAIN, Row
from fixformer.models.registry import model_setting_types
from fixformer.training.initialise import build_model

# The stored losses (tests/training/loss_trace.json) of each version of the numerics. They are stored again when a
# change of the numerics is meant: then NUMERICS is raised, and its line is added here.
TRACES = {1: "4b8da3bdfb34c2ec"}


CONTENTS = {"train": "a", "val": "b"}


@pytest.fixture(scope="module")
def index(motions: Path) -> Index:
    return load_index(motions, kind="ssv2")


def changed(**settings: Any) -> TrainConfig:
    return apply_overrides(get_recipe("ablate_motions"), {"data.path": "x", **settings}, model_setting_types)


def key(config: TrainConfig, index: Index) -> str:
    return row_key(training_config(config, index), changed(), index, CONTENTS)


@pytest.mark.parametrize(
    "settings",
    [
        {"output": "elsewhere"},
        {"data.path": "y"},
        {"eval.views": "2x3"},
        {"eval.every": 5},
        {"baselines": True},
        {"cache": None},
        {"workers": 2},
        {"threads": 1},
        {"save.minutes": 1},
        {"kernel": "relu"},
        {"association": "both"},
        {"shift_space": 1},
        {"attention_order": "space_time"},
        {"recipe": "other"},
    ],
    ids=str,
)
def test_what_does_not_decide_the_weights_does_not_matter(settings: dict[str, Any], index: Index) -> None:
    """Nor does a default that is written out."""
    assert key(changed(**settings), index) == key(changed(), index)


@pytest.mark.parametrize(
    "settings",
    [
        {"seed": 1},
        {"lr": 1e-4},
        {"epochs": 15},
        {"kernel": "elu1"},
        {"association": "time"},
        {"warp": 0.1},
        {"size": 40},
        {"balance": "classes"},
        {"dropout": 0.2},
        {"model": "fixformer_small"},
    ],
    ids=str,
)
def test_what_decides_the_weights_matters(settings: dict[str, Any], index: Index) -> None:
    assert key(changed(**settings), index) != key(changed(), index)


def test_videos_and_twin_matter(index: Index) -> None:
    fewer = replace(index, samples=index.samples[1:])
    assert index.samples[0].split == "train"
    assert key(changed(), fewer) != key(changed(), index)

    def key_of(contents: dict[str, str]) -> str:
        return row_key(changed(), changed(), index, contents)

    assert key_of({**CONTENTS, "train": "d"}) != key_of(CONTENTS) == key_of({**CONTENTS, "val": "d"})
    assert row_key(changed(), changed(embed_dim=64, num_heads=2), index, CONTENTS) != key_of(CONTENTS)


def test_contents_are_of_the_bytes_and_not_of_the_place(motions: Path, copied_data: Path, tmp_path: Path) -> None:
    """A set that was moved has the same, one whose videos were made again under the same names has not."""
    before = contents_of(motions)
    assert before == contents_of(copied_data) == contents_of(copied_data, str(tmp_path / "cache"))
    assert before.keys() == {"train", "val"}
    video = Path(load_index(copied_data, kind="ssv2").split("val")[0].path)
    video.write_bytes(video.read_bytes() + b"x")
    after = contents_of(copied_data)
    assert after["train"] == before["train"]
    assert after["val"] != before["val"]


def test_unchanged_videos_are_not_read_again(motions: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents_of(motions)
    monkeypatch.setattr("fixformer.data.loading.cache.content_digest", lambda path: pytest.fail(f"{path} is read"))
    assert contents_of(motions) == before


def contents_of(data: Path, cache: str | None = None) -> dict[str, str]:
    return dict(split_contents(load_index(data, kind="ssv2"), "val", DataConfig(cache=cache)))


def test_scorings_differ_by_split_views_and_videos(index: Index) -> None:
    scoring = Scoring("val", "1x1", "logits")
    keys = {
        scoring_key(scoring, index, CONTENTS),
        scoring_key(replace(scoring, views="2x1"), index, CONTENTS),
        scoring_key(replace(scoring, split="train"), index, CONTENTS),
        scoring_key(scoring, replace(index, samples=index.samples[:-1]), CONTENTS),
        scoring_key(scoring, index, {**CONTENTS, "val": "d"}),
    }
    assert len(keys) == 5


def test_rows_of_different_studies_are_one(index: Index) -> None:
    """The full method is in most studies, and is trained once."""
    names = ({}, OURS, {**OURS, "kernel": "relu"}, {**OURS, "order": "association_first"})
    assert len({key(resolve_row(changed(), Row("x", settings)), index) for settings in names}) == 1


def test_a_run_that_one_study_began_is_continued_by_another(index: Index) -> None:
    """To `resume`, which compares what is written in the config, they are one, too."""
    settings = {**OURS, "kernel": "relu", "fixation_sources": "qkv", "shift_space": 1, "pattern": "factorised"}
    one, other = (
        training_config(resolve_row(replace(changed(), recipe=recipe), Row("x", given)), index)
        for recipe, given in (("ablate_motions", settings), ("other", {}))
    )
    assert one == other
    assert one.model_settings == changed().model_settings
    separate = training_config(
        resolve_row(changed(), Row("x", {"fixation": "separate", "fixation_sources": "qk"})), index
    )
    assert separate.model_settings == {**changed().model_settings, "fixation": "separate"}


def test_the_version_of_the_numerics_is_that_of_the_stored_losses() -> None:
    trace = Path(__file__).parents[1] / "training" / "loss_trace.json"
    digest = hashlib.blake2b(trace.read_bytes(), digest_size=8).hexdigest()
    assert TRACES.get(NUMERICS) == digest, "training changed: raise NUMERICS and add its line to TRACES"


def test_models_begin_alike_wherever_shapes_allow() -> None:
    base = changed(depth=1)
    plain = resolve_row(base, Row("plain", PLAIN))
    full, shared, alone = (
        build_model(config, 12, twin).state_dict() for config, twin in ((base, None), (plain, base), (plain, None))
    )
    common = full.keys() & shared.keys()
    assert all(full[name].equal(shared[name]) for name in common)
    assert common == shared.keys() < full.keys()
    # which they would not by the seed alone: what the gate draws comes before the rest
    assert not all(full[name].equal(alone[name]) for name in common)
