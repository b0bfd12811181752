"""A user's mistake is reported in one sentence, before any long work starts."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from fixformer.errors import SettingsConflict, UnknownName, UserError
from fixformer.training.initialise import check_batch_division
from fixformer.training.request import resolve_config
from fixformer.training.run import plan, train
from tiny_run import Run


def folder_set(root: Path, source: Path, classes: dict[str, list[str]]) -> Path:
    """Class folders with one copied video each."""
    video = next(source.rglob("*.webm"))
    for split, names in classes.items():
        for name in names:
            (root / split / name).mkdir(parents=True)
            shutil.copy(video, root / split / name / "a.webm")
    return root


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"recipe": "dmeo"}, UnknownName, ["'dmeo'", "demo"]),
        ({"lrr": 1}, UnknownName, ["'lrr'", "lr"]),
        ({"epochs": "two"}, UserError, ["epochs='two'", "int"]),
        ({"lr": -1.0}, UserError, ["lr=-1.0"]),
        ({"batch_size": 25}, UserError, ["batch_size=25", "24 videos"]),
        ({"stages": "4x16:3@30", "epochs": 3}, UserError, ["batch_size=30", "24 videos"]),
        ({"data": "no/such/folder"}, UserError, ["no/such/folder"]),
        ({"num_heads": 5}, SettingsConflict, ["num_heads=5", "embed_dim=32"]),
        ({"patch_size": 32}, SettingsConflict, ["image_size=16", "patch_size=32"]),
        ({"init": "no/such/weights"}, UserError, ["no/such/weights"]),
        ({"device": "abacus"}, UserError, ["'abacus'"]),
        ({"layer_decay": 0.0}, UserError, ["layer_decay=0.0"]),
        ({"stages": "4x4:1,4x16:2", "epochs": 3}, UserError, ["4", "8"]),
    ],
)
def test_mistakes(run: Run, tmp_path: Path, changed: dict[str, Any], error: type[UserError], words: list[str]) -> None:
    with pytest.raises(error) as raised:
        run(**changed)
    assert all(word in str(raised.value) for word in words), raised.value
    assert not (tmp_path / "run").exists()


def test_they_are_said_before_anything_is_decoded(run: Run, tmp_path: Path) -> None:
    """Also those that only the model knows of."""
    weights = tmp_path / "cut.safetensors"
    weights.write_bytes(b"\0" * 20)
    for changed, words in (({"stages": "4x4:1,4x16:2"}, "4x4"), ({"init": str(weights)}, r"cut\.safetensors")):
        with pytest.raises(UserError, match=words):
            run(**changed, cache=str(tmp_path / "cache"))
    assert not (tmp_path / "cache").exists()


def test_a_batch_that_processes_cannot_share() -> None:
    config = resolve_config("demo", data="motions", batch_size=6, mixup=0.0, cutmix=0.0)
    check_batch_division(config, 2)
    with pytest.raises(SettingsConflict, match=r"batch_size=6 .* 4 processes.*multiple of 4"):
        check_batch_division(config, 4)
    mixed = resolve_config("demo", data="motions", batch_size=6, mixup=0.2)
    check_batch_division(mixed, 1)
    with pytest.raises(SettingsConflict, match=r"mixup.*multiple of 4"):
        check_batch_division(mixed, 2)


def test_no_data(run: Run) -> None:
    with pytest.raises(UserError, match=r"demo .*--data"):
        train("demo")


def test_one_class(motions: Path, tmp_path: Path) -> None:
    data = folder_set(tmp_path / "set", motions, {"train": ["a"], "val": ["a"]})
    with pytest.raises(UserError, match="only one class"):
        train(str(data), output=tmp_path / "run", batch_size=1)


def test_an_empty_class(motions: Path, tmp_path: Path) -> None:
    data = folder_set(tmp_path / "set", motions, {"train": ["a", "b"], "val": ["a", "b"]})
    (data / "train" / "b" / "a.webm").unlink()
    with pytest.raises(UserError, match="'b' has no video in train"):
        train("folder", data=data, output=tmp_path / "run", batch_size=1)


def test_labels_that_differ_between_train_and_val(motions: Path, tmp_path: Path) -> None:
    data = folder_set(tmp_path / "set", motions, {"train": ["a", "b"], "val": ["a", "c"]})
    with pytest.raises(UserError, match=r"'c'.*train"):
        train("folder", data=data, output=tmp_path / "run", batch_size=1)


def test_an_output_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/run .*Not a directory"):
        run(output=tmp_path / "file" / "run")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_output_without_permission(run: Run, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match="Permission denied"):
        run()


def test_a_directory_is_the_recipe_auto(motions: Path, tmp_path: Path) -> None:
    data = folder_set(tmp_path / "set", motions, {"train": ["a", "b"], "val": ["a", "b"]})
    config = resolve_config(str(data))
    assert (config.recipe, config.data.path, config.output) == ("auto", str(data), "runs/auto")


def test_a_plan_sees_the_mistakes_that_a_run_would_meet(settings: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/run .*Not a directory"):
        plan(**settings, output=tmp_path / "file" / "run")
    with pytest.raises(UserError, match=r"init='.*none'"):
        plan(**settings, init=tmp_path / "none")
    with pytest.raises(UserError, match=r"init='.*file'"):
        plan(**settings, init=tmp_path / "file")
    with pytest.raises(UserError, match=r"data\.backend.*'ffmpg'.*pyav"):
        plan(**settings, backend="ffmpg")


def test_a_plan_starts_nothing(settings: dict[str, Any], tmp_path: Path) -> None:
    made = plan(**{**settings, "output": tmp_path / "run", "stages": "2x8:1@6,4x16:2", "epochs": 3})
    assert not (tmp_path / "run").exists()
    assert (made.steps, made.classes, made.train_videos, made.test_videos) == (4 + 6 + 6, 12, 24, 12)
    assert made.memory_mb > 0
    assert made.hours > 0
    text = str(made)
    assert "16 steps" in text
    assert '"lr": 0.002' in text


@pytest.mark.slow
def test_memory_grows_with_the_batch_and_shrinks_with_recomputing(settings: dict[str, Any]) -> None:
    deep = {**settings, "depth": 8}
    small, large = (plan(**{**deep, "batch_size": batch}).memory_mb for batch in (2, 16))
    assert large > 2 * small
    assert plan(**{**deep, "batch_size": 16, "checkpointing": True}).memory_mb < large / 2


def test_weights_of_another_run_start_this_one(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    first = run("first", epochs=1)
    capsys.readouterr()
    run("second", epochs=1, init=first.output, frames=8)
    assert "weights of fixformer" in capsys.readouterr().err


def test_a_classifier_of_other_labels_is_not_taken(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """As many classes of another meaning; by the run's directory or by its weight file."""
    first = run("first", epochs=1)
    info = first.output / "last" / "config.json"
    (first.output / "last" / "manifest.json").unlink()  # it would notice what is changed here
    values = json.loads(info.read_text())
    for labels, left in ((values["labels"], 0), (values["labels"][::-1], 2)):
        info.write_text(json.dumps({**values, "labels": labels}))
        for number, source in enumerate((first.output, first.output / "last" / "model.safetensors")):
            capsys.readouterr()
            run(f"{left}{number}", epochs=1, init=source)
            assert f"left at initial values {left:>5}" in capsys.readouterr().err


def test_settings_of_others_beside_a_weight_file_mean_nothing(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Public weights come with a config.json of their own."""
    (tmp_path / "public").mkdir()
    shutil.copy(run("first", epochs=1).output / "last" / "model.safetensors", tmp_path / "public")
    (tmp_path / "public" / "config.json").write_text('{"model_type": "vit"}')
    for number, source in enumerate((tmp_path / "public", tmp_path / "public" / "model.safetensors")):
        capsys.readouterr()
        run(f"{number}", epochs=1, init=source)
        assert "left at initial values     0" in capsys.readouterr().err


def test_a_run_may_pool_in_another_way_than_the_one_it_starts_from(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run("first", epochs=1, pool="mean")
    run("second", epochs=1, pool="grid", init=first.output)
    assert "pool.reduce.weight" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"init='.*first': .*blocks\.1\."):
        run("third", epochs=1, pool="mean", depth=2, init=first.output)


def test_a_run_resumes_without_the_weights_it_started_from(run: Run) -> None:
    first = run("first", epochs=1)
    run("second", epochs=2, init=first.output)
    shutil.rmtree(first.output)
    assert run("second", epochs=2, init=first.output, resume=True).steps == 12


def test_all_files_of_a_checkpoint_have_the_same_permissions(run: Run) -> None:
    modes = {path.stat().st_mode for path in (run("run", epochs=1).output / "last").iterdir()}
    assert len(modes) == 1


def test_a_test_video_without_a_label_is_named_before_training(run: Run, copied_data: Path) -> None:
    path = copied_data / "labels" / "validation.json"
    rows = json.loads(path.read_text())
    del rows[0]["template"]
    path.write_text(json.dumps(rows))
    with pytest.raises(UserError, match="1 of 12 videos of split 'val'"):
        run(data=str(copied_data))
