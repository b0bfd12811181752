"""The motions set: SSv2's layout, the same bytes per seed, and nothing to learn from the middle frame."""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from fixformer.data.listing import load_index
from fixformer.data.synthetic import frame_probe, linear_probe, make_clip, make_motions, motion_labels, picture_features
from fixformer.data.synthetic.motions import PAIRS, TEMPLATES, VIDEOS
from fixformer.data.synthetic.scene import make_scene
from fixformer.data.video import open_video
from fixformer.errors import UserError
from fixformer.runtime.pools import processors

SIZE = (48, 64)


@pytest.fixture(scope="module")
def motions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_motions(tmp_path_factory.mktemp("set") / "motions", 36, seed=3, size=SIZE, workers=2)


def digests(root: Path) -> dict[str, str]:
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_layout_is_that_of_something_something(motions: Path) -> None:
    index = load_index(motions)
    assert index.kind == "ssv2"
    assert index.labels == motion_labels()
    assert len(index.labels) == 2 * len(PAIRS) >= 12
    assert not index.missing
    assert set(index.counts("train").values()) == {2}
    assert set(index.counts("val").values()) == {1}
    row = json.loads((motions / "labels" / "train.json").read_text())[0]
    assert set(row) == {"id", "label", "template", "placeholders"}
    assert (motions / VIDEOS / f"{row['id']}.webm").is_file()


def test_the_same_seed_gives_the_same_bytes(motions: Path, tmp_path: Path) -> None:
    again = make_motions(tmp_path / "again", 36, seed=3, size=SIZE, workers=0)
    assert digests(again) == digests(motions)
    other = make_motions(tmp_path / "other", 24, seed=4, size=SIZE, workers=0)
    assert digests(other)[f"{VIDEOS}/1.webm"] != digests(motions)[f"{VIDEOS}/1.webm"]


def test_files_hold_the_rendered_frames(motions: Path) -> None:
    for number in (0, 5):
        scene, fps = make_clip(number, 3, SIZE)
        with open_video(motions / VIDEOS / f"{number + 1}.webm") as decoder:
            assert len(decoder) == len(scene)
            assert decoder.info.fps == pytest.approx(fps, rel=0.02)
            shown = decoder.get_frames(range(len(scene))).astype(float)
        drawn = np.stack([scene.render(i) for i in range(len(scene))])
        assert np.abs(shown - drawn).mean() < 12


def test_rates_and_lengths_vary() -> None:
    made = [make_clip(number, 0, SIZE) for number in range(48)]
    assert len({fps for _, fps in made}) >= 4
    assert len({len(scene) for scene, _ in made}) >= 15


@pytest.mark.parametrize("kind", [pair[0] for pair in PAIRS])
def test_the_second_of_a_pair_is_the_first_played_backwards(kind: str) -> None:
    scene = make_scene(kind, 21, *SIZE, np.random.default_rng(1))
    played = [scene.render(i) for i in range(21)]
    backwards = [scene.reversed().render(i) for i in range(21)]
    assert all((a == b).all() for a, b in zip(played, reversed(backwards), strict=True))
    assert any((a != b).any() for a, b in zip(played, backwards, strict=True))


def test_leftwards_is_leftwards() -> None:
    for number in range(0, 48, 12):
        scene, _ = make_clip(number, 0)
        xs = [pose.x for pose in scene.tracks[-1].poses]
        assert xs[-1] < xs[0] - 30
        assert (np.diff(xs) <= 0).all()
        reverse, _ = make_clip(number + 1, 0)
        assert reverse.tracks[-1].poses[-1].x > reverse.tracks[-1].poses[0].x + 30


def test_middle_frame_is_at_chance_and_ordered_frames_are_not() -> None:
    clips, train = 360, 220
    y = np.arange(clips) % len(TEMPLATES)
    deviation = (1 / 12 * 11 / 12 / (clips - train)) ** 0.5
    middle, ordered = [], []
    for number in range(clips):
        scene, _ = make_clip(number, 11, SIZE)
        pictures = np.stack([scene.render(round(share * (len(scene) - 1))) for share in (0, 0.25, 0.5, 0.75, 1)])
        middle.append(picture_features(pictures[2:3], 16))
        ordered.append(picture_features(pictures, 16))
    for features, above_chance in ((np.stack(middle), False), (np.stack(ordered), True)):
        probe = linear_probe(features[:train], y[:train], features[train:], y[train:])
        assert probe.chance == pytest.approx(1 / 12)
        assert (probe.accuracy > probe.chance + 3 * deviation) == above_chance


def test_probe_reads_the_files(motions: Path) -> None:
    index = load_index(motions)
    assert frame_probe(index).clips == 12
    assert 0 <= frame_probe(index, frames=5).accuracy <= 1


def test_probe_finds_what_is_there() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(200) % 4
    x = rng.normal(size=(200, 500)) + 4 * np.eye(500)[y]
    assert linear_probe(x[:100], y[:100], x[100:], y[100:]).accuracy > 0.6


def test_bad_requests(motions: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not empty"):
        make_motions(motions)
    with pytest.raises(UserError, match="clips=5"):
        make_motions(tmp_path / "a", 5)
    with pytest.raises(UserError, match="size="):
        make_motions(tmp_path / "a", size=(49, 64))
    with pytest.raises(UserError, match="val_fraction=1"):
        make_motions(tmp_path / "a", val_fraction=1)


def test_processors_are_counted_where_the_system_has_no_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert processors() == os.cpu_count()
