"""ClipSpec, Augment and DataConfig: stored as JSON, rebuilt equal, refused with the value when wrong."""

import json
from dataclasses import replace

import pytest

from fixformer.config import Augment, ClipSpec, DataConfig
from fixformer.config.schema import dump, load
from fixformer.errors import SettingsConflict, UnknownName, UserError


def test_a_spec_survives_json() -> None:
    spec = ClipSpec(frames=8, sampling="dense", stride=4, fps=30.0, size=48, keep_short_side=72)
    spec = replace(spec, augment=Augment(jitter=(52, 60), policy="rand", flip=0.5))
    spec.validate()
    assert load(ClipSpec, json.loads(json.dumps(dump(spec)))) == spec


def test_whole_numbers_are_accepted_as_floats() -> None:
    assert load(ClipSpec, {"sampling": "dense", "fps": 30}).fps == 30.0
    assert isinstance(load(ClipSpec, {"mean": [0, 0, 0]}).mean[0], float)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"frame": 8}, r"ClipSpec 'frame'.*frames"),
        ({"augment": {"mixupp": 1}}, r"augment 'mixupp'.*mixup"),
        ({"sampling": "unifrom"}, r"sampling 'unifrom'.*uniform"),
        ({"frames": "8"}, r"frames='8'.* int"),
        ({"frames": True}, r"frames=True.* int"),
        ({"frames": 0}, r"frames=0.*from 1 to"),
        ({"mean": [0.5]}, r"mean=\[0.5\].*three"),
        ({"std": [0.5, 0.5, 0.0]}, r"std=.*more than 0"),
        ({"augment": {"flip": 1.5}}, r"augment.flip=1.5.*\[0, 1\]"),
        ({"augment": {"jitter": [320, 256]}}, r"jitter=\(320, 256\)"),
        ({"augment": 3}, r"augment=3.*table"),
    ],
)
def test_bad_values_are_named(values: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(ClipSpec, values)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"short_side": 200}, ("short_side=200", "size=224")),
        ({"size": 300, "short_side": 300}, ("jitter", "size=300")),
        ({"clock": "seconds"}, ("clock='seconds'", "fps")),
        ({"stride": 2}, ("stride=2", "uniform")),
        ({"fps": 30.0}, ("fps=30.0", "uniform")),
        ({"sampling": "dense", "augment": {"span": 0.5}}, ("span=0.5", "dense")),
    ],
)
def test_meaningless_pairs_name_both_settings(values: dict[str, object], words: tuple[str, str]) -> None:
    with pytest.raises(SettingsConflict) as caught:
        load(ClipSpec, values)
    assert all(word in str(caught.value) for word in words)


def test_at_scales_what_depends_on_the_size() -> None:
    spec = ClipSpec(size=224, short_side=256, augment=Augment(jitter=(256, 320)))
    small = spec.at(frames=8, size=112)
    assert (small.frames, small.size, small.short_side, small.augment.jitter) == (8, 112, 128, (128, 160))
    small.validate()
    assert spec.at() == spec


def test_data_config_is_checked() -> None:
    assert load(DataConfig, {"path": "x", "workers": 0}).workers == 0
    with pytest.raises(UserError, match=r"workers=-1"):
        load(DataConfig, {"path": "x", "workers": -1})
    with pytest.raises(UserError, match=r"path=''"):
        load(DataConfig, {})
    with pytest.raises(UnknownName, match="damaged"):
        load(DataConfig, {"path": "x", "damaged": "maybe"})
