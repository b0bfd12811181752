"""Altered checkpoints, absurd sizes, scores that are no numbers, and files that are no videos."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import fixformer
from abuse.process import run
from fixformer.cli.app import main
from fixformer.config import EvalConfig
from fixformer.data.listing import load_index
from fixformer.data.video import open_video
from fixformer.errors import UserError
from fixformer.models.checkpoint import write_manifest
from fixformer.models.cost import cost
from fixformer.training.initialise import load_initial_weights
from tiny_run import TINY, motions, train_tiny
from videos import encode, moving_square

__all__ = ["motions"]


@pytest.fixture(scope="session")
def finished(motions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a finished run."""
    return train_tiny(tmp_path_factory.mktemp("integrity"), motions).output


@pytest.fixture
def run_copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run", symlinks=True))


@pytest.fixture
def checkpoint(run_copy: Path) -> Path:
    return (run_copy / "last").resolve()


@pytest.fixture
def video(motions: Path) -> str:
    return str(sorted(motions.rglob("*.webm"))[0])


def uses(checkpoint: Path, video: str, motions: Path) -> dict[str, Callable[[], object]]:
    """Every way to use the weights of a checkpoint, but for resuming its run."""
    model = fixformer.create_model("fixformer_tiny")
    return {
        "eval": lambda: fixformer.evaluate(checkpoint, views="1x1"),
        "predict": lambda: fixformer.predict(checkpoint, video),
        "load": lambda: fixformer.load(checkpoint),
        "init": lambda: load_initial_weights(model, str(checkpoint), []),
    }


@pytest.mark.parametrize(
    ("file", "place"),
    [
        *(("model.safetensors", place) for place in (3, 40, -5)),  # length of the header, header, data
        *(("config.json", place) for place in (3, -9)),
        *(("manifest.json", place) for place in (9, 30, 200)),  # a name, the digests of the other two
    ],
)
def test_an_altered_byte_is_refused_by_every_use(
    checkpoint: Path, video: str, motions: Path, file: str, place: int
) -> None:
    content = bytearray((checkpoint / file).read_bytes())
    content[place] ^= 1
    (checkpoint / file).write_bytes(content)
    for name, use in uses(checkpoint, video, motions).items():
        with pytest.raises(UserError, match=r"is damaged"):
            print(name, use())


def test_an_altered_byte_is_refused_when_a_run_is_resumed(run_copy: Path, checkpoint: Path, motions: Path) -> None:
    content = bytearray((checkpoint / "model.safetensors").read_bytes())
    content[-5] ^= 1
    (checkpoint / "model.safetensors").write_bytes(content)
    fixformer.train("demo", data=motions, output=run_copy, resume=True, **{**TINY, "epochs": 1})
    assert [path.name for path in run_copy.glob("checkpoints/damaged-*")] == [f"damaged-{checkpoint.name}"]


def forge(checkpoint: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change `config.json` as someone would who also knows about the manifest."""
    content = json.loads((checkpoint / "config.json").read_text())
    change(content)
    (checkpoint / "config.json").write_text(json.dumps(content))
    (checkpoint / "manifest.json").unlink()
    write_manifest(checkpoint)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["a"] * 12, "'a' appears twice"),
        ([str(i) for i in range(11)], "head"),
        ([*map(str, range(11)), 7], "labels"),
        ([*map(str, range(11)), ""], "labels"),
        ([], "labels"),
        ({}, "labels"),
    ],
)
def test_labels_must_be_those_of_the_classifier(checkpoint: Path, labels: object, words: str) -> None:
    forge(checkpoint, lambda content: content.update(labels=labels))
    with pytest.raises(UserError, match=words):
        fixformer.load(checkpoint)


def test_more_labels_than_outputs(checkpoint: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        content["labels"].append("one more")
        content["config"]["model_settings"]["num_classes"] = 12

    forge(checkpoint, change)
    with pytest.raises(UserError, match=r"13 labels .*num_classes=12"):
        fixformer.load(checkpoint)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_weights_that_are_no_numbers_are_named(checkpoint: Path, video: str, motions: Path, value: str) -> None:
    weights = load_file(checkpoint / "model.safetensors")
    weights["blocks.0.mlp.body.fc1.bias"][3] = float(value)
    save_file(weights, checkpoint / "model.safetensors")
    (checkpoint / "manifest.json").unlink()  # as when it is shared
    for use in uses(checkpoint, video, motions).values():
        with pytest.raises(UserError, match=r"blocks\.0\.mlp\.body\.fc1\.bias .*NaN"):
            use()


@pytest.mark.parametrize("kind", [torch.int64, torch.bool, torch.complex64])
def test_weights_of_another_type_are_named(checkpoint: Path, kind: torch.dtype) -> None:
    weights = load_file(checkpoint / "model.safetensors")
    weights["norm.bias"] = weights["norm.bias"].to(kind)
    save_file(weights, checkpoint / "model.safetensors")
    (checkpoint / "manifest.json").unlink()
    with pytest.raises(UserError, match=rf"norm\.bias .*{kind}"):
        fixformer.load(checkpoint)


ABSURD: list[tuple[str, object]] = [
    *(("embed_dim", 10**9), ("depth", 10**7), ("num_heads", 10**9), ("mlp_ratio", 1e12), ("head_hidden_dim", 10**12)),
    *(("num_classes", 10**9), ("num_frames", 10**9), ("image_size", 10**6), ("patch_padding", 10**9), ("depth", True)),
    *(("time_slots", 10**15), ("patch_size", -1), ("shift_time", 10**9), ("depth", "4"), ("embed_dim", 2.5)),
]


@pytest.mark.parametrize(("setting", "value"), ABSURD)
def test_absurd_sizes_are_named_before_anything_is_allocated(checkpoint: Path, setting: str, value: object) -> None:
    """At the Python interface, for a cost, and in the config of a checkpoint."""
    for build in (fixformer.create_model, cost):
        with pytest.raises(UserError, match=f"{setting}={value!r}: expected"):
            build("fixformer_tiny", **{setting: value})  # type: ignore[operator]
    forge(checkpoint, lambda content: content["config"]["model_settings"].update({setting: value}))
    with pytest.raises(UserError, match=rf"config\.json .*{setting}={value!r}: expected"):
        fixformer.load(checkpoint)


def test_a_model_that_does_not_fit_is_one_sentence_and_its_cost_is_counted(checkpoint: Path) -> None:
    large = {"embed_dim": 65_536, "depth": 8}
    with pytest.raises(UserError, match=r"weights of fixformer_tiny .*need [\d,.]+ GB .* free"):
        fixformer.create_model("fixformer_tiny", **large)
    assert cost("fixformer_tiny", **large).params > 4e11
    forge(checkpoint, lambda content: content["config"]["model_settings"].update(large))
    with pytest.raises(UserError, match=r"config\.json .* GB"):
        fixformer.load(checkpoint)


def test_clips_that_do_not_fit_are_one_sentence(
    finished: Path, video: str, motions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = {"frames": 65_536, "size": 4096}
    with pytest.raises(UserError, match=r"frames=65536 and size=4096 need [\d,.]+ GB"):
        fixformer.train("demo", data=motions, output=tmp_path / "new", **{**TINY, **large})
    assert not (tmp_path / "new").exists()
    monkeypatch.setattr("fixformer.runtime.memory.free_memory", lambda: 5_000_000)
    views = "999x3"
    assert fixformer.predict(finished, video, views="1x3").views == "1x3"
    for use in (
        lambda: fixformer.predict(finished, video, views=views),
        lambda: fixformer.evaluate(finished, views=views),
    ):
        with pytest.raises(UserError, match=r"views=999x3.* need [\d,.]+ GB"):
            use()


@pytest.mark.parametrize("views", ["1000000x1", "9" * 30 + "x1", "0x1", "1x2", "-1x1", "1x1x1", "١x1", ""])
def test_absurd_views_are_named(checkpoint: Path, video: str, views: str) -> None:
    for use in (lambda: fixformer.predict(checkpoint, video, views=views), EvalConfig(views=views).validate):
        with pytest.raises(UserError, match=f"views='{views}': expected"):
            use()


@pytest.fixture
def overflowing(checkpoint: Path) -> Path:
    """A checkpoint whose weights are finite, and whose scores are not."""
    weights = load_file(checkpoint / "model.safetensors")
    weights["head.fc.weight"] = torch.full_like(weights["head.fc.weight"], 3e38)
    save_file(weights, checkpoint / "model.safetensors")
    (checkpoint / "manifest.json").unlink()
    return checkpoint


def test_scores_that_are_no_numbers_are_no_score(
    overflowing: Path, video: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match=rf"{video}: .*NaN"):
        fixformer.predict(overflowing, video)
    with pytest.raises(UserError, match=r"none of the 12 videos .*NaN"):
        fixformer.evaluate(overflowing)
    with pytest.raises(SystemExit) as stopped:
        main(["predict", str(overflowing), video, "--json"])
    assert stopped.value.code == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert row["file"] == video
    assert "NaN" in row["error"]


@pytest.fixture
def odd_files(tmp_path: Path) -> list[str]:
    """Files that cannot be classified, each for a reason of its own."""
    home = tmp_path / "odd"
    (home / "empty folder").mkdir(parents=True)
    (home / "empty.mp4").write_bytes(b"")
    (home / "text.mp4").write_text("not a video")
    (home / "wide.mp4").write_bytes(encode(moving_square(8, 8, 4096)))
    (home / "sound.mp4").write_bytes(encode(None, sound=True))
    (home / "cut.mp4").write_bytes(encode(moving_square(8))[:300])
    (home / "loop.mp4").symlink_to("loop.mp4")
    (home / "broken.jpg").mkdir()
    (home / "broken.jpg" / "0.jpg").write_bytes(b"\xff\xd8\xff")
    return [*map(str, sorted(home.iterdir())), "", "nothing.mp4", "a\nb.mp4", "x" * 300, "~", "-"]


def test_one_file_never_stops_the_others(
    finished: Path, video: str, odd_files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    files = [video, *odd_files, video]
    with pytest.raises(SystemExit) as stopped:
        main(["predict", str(finished), "--json", "--", *files])
    assert stopped.value.code == 1
    printed = capsys.readouterr()
    rows = json.loads(printed.out)
    files = [{"-": "standard input"}.get(file, file) for file in files]
    assert [row["file"] for row in rows] == files
    assert ["error" in row for row in rows] == [False, *[True] * len(odd_files), False]
    assert rows[0].keys() == rows[-1].keys() == {"file", "views", "top"}
    assert all(file in row["error"] for file, row in zip(files[1:-1], rows[1:-1], strict=True))


def test_check_finds_what_training_and_prediction_refuse(finished: Path, tmp_path: Path) -> None:
    from fixformer.data.audit.check import check

    good, wide = encode(moving_square(16)), encode(moving_square(16, 8, 4096))
    for split in ("train", "val"):
        for label in ("a", "b"):
            folder = tmp_path / "set" / split / label
            folder.mkdir(parents=True)
            (folder / "good.mp4").write_bytes(good)
    (tmp_path / "set/val/a/wide.mp4").write_bytes(wide)
    report = check(tmp_path / "set", workers=1)
    (issue,) = [issue for issue in report.issues if issue.kind == "unusable"]
    assert "wide.mp4" in issue.items[0]
    assert "4096 x 8" in issue.items[0]
    with pytest.raises(UserError, match=r"4096 x 8"):
        fixformer.predict(finished, tmp_path / "set/val/a/wide.mp4")


NAN = float("nan")
WRONG: list[tuple[str, dict[str, Any], str]] = [
    *(("evaluate", {"aggregate": value}, "aggregate") for value in ("max", 5)),
    *(("evaluate", {"batch_size": value}, "batch_size=") for value in (0, "4", 2.5, 10**12, True)),
    *(("evaluate", {"workers": value}, "workers=") for value in (-1, "1")),
    *(("evaluate", {"views": value}, "views=") for value in (5, "3", "2x2")),
    *(("evaluate", {"device": value}, "device=") for value in (5, "gpu9", "cuda:x")),
    ("evaluate", {"split": "vall"}, "'vall'"),
    ("evaluate", {"damaged": "lax"}, "damaged 'lax'"),
    ("evaluate", {"backend": "gstreamer"}, "backend 'gstreamer'"),
    ("evaluate", {"kind": "foldrs"}, "'foldrs'"),
    ("evaluate", {"data": 5}, "data=5"),
    ("evaluate", {"output": 5}, "output=5"),
    *(("predict", {"top_k": value}, "top_k=") for value in (0, -1, "5", 2.5, None)),
    *(("predict", {"start": value}, "start=") for value in ("x", NAN, float("inf"))),
    *(("predict", {"end": value}, "end=") for value in ("x", NAN)),
    ("predict", {"start": 5, "end": 1}, "start=5.0 and end=1.0"),
    ("predict", {"views": 3}, "views=3"),
    *(("open_video", {"policy": value}, "policy") for value in ("lax", 5, ["x"], None)),
    *(("open_video", {"backend": value}, "backend") for value in ("x", None)),
    *(("open_video", {"short_side": value}, "short_side=") for value in (-4, 0, "x", 10**9)),
    *(("open_video", {"threads": value}, "threads=") for value in (-1, "x", 10**6)),
    *(("load_index", {"kind": value}, "kind") for value in (5, ["x"], "foldrs")),
    *(("load_index", {"val_fraction": value}, "val_fraction=") for value in ("x", NAN, 0, 1)),
    *(("load_index", {name: "x"}, f"{name}='x'") for name in ("seed", "recording_set")),
    *(("load_index", {name: 5}, f"{name}=5") for name in ("videos", "labels")),
]


@pytest.mark.parametrize(("function", "arguments", "words"), WRONG)
def test_every_argument_is_checked_at_the_python_interface(
    finished: Path, video: str, motions: Path, function: str, arguments: dict[str, Any], words: str
) -> None:
    call: Any = {
        "evaluate": lambda **given: fixformer.evaluate(finished, **given),
        "predict": lambda **given: fixformer.load(finished).predict(video, **given),
        "open_video": lambda **given: open_video(video, **given),
        "load_index": lambda **given: load_index(motions, **given),
    }[function]
    with pytest.raises(UserError) as error:
        call(**arguments)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("source", [None, 5, "", b"", ["x"], "a\0b"])
def test_what_is_no_file_is_one_sentence(finished: Path, source: Any) -> None:
    for call in (open_video, fixformer.load(finished).predict):
        with pytest.raises(UserError):
            call(source)
    if source is not None:  # which means the model in the package
        with pytest.raises(UserError):
            fixformer.load(source)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["eval", "run", "--views", "1000000x1"],
        ["predict", "run", "video.webm", "--views", "1000000x1"],
        ["cost", "fixformer_base", "embed_dim=1000000000"],
        ["cost", "fixformer_base", "depth=10000000"],
        ["cost", "fixformer_base", "attention=softmax", "pattern=joint", "--frames", "65536", "--size", "8192"],
        ["train", "demo", "--data", "motions", "embed_dim=1000000000"],
        ["train", "demo", "--data", "motions", "frames=1000000000"],
        ["train", "demo", "--data", "motions", "size=1000000"],
        ["train", "demo", "--data", "motions", "embed_dim=65536", "num_heads=1"],
    ],
)
def test_absurd_commands_end_with_a_sentence(
    run_copy: Path, motions: Path, video: str, tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "motions").symlink_to(motions)
    shutil.copy(video, tmp_path / "video.webm")
    ended = run(words, tmp_path)
    assert ended.status == 1
    assert ended.sentence.endswith(".")
    assert not (tmp_path / "runs").exists()
