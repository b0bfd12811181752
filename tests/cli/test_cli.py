"""The command line as a user sees it: real processes, exit status, one sentence for an error."""

import json
import os
import subprocess
import sys

import pytest

from fixformer.cli.app import ERROR_DELAY, main
from fixformer.config.recipes import RECIPES
from fixformer.errors import Interrupted

pytestmark = pytest.mark.slow


def fixformer(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "fixformer", *args], capture_output=True, text=True, check=False)


def test_help_names_the_verbs() -> None:
    done = fixformer("--help")
    assert done.returncode == 0
    assert all(verb in done.stdout for verb in ("models", "cost", "bench"))


def test_models_as_json() -> None:
    done = fixformer("models", "fixformer_base*", "--json")
    rows = {row["model"]: row for row in json.loads(done.stdout)}
    assert rows["fixformer_base_released"]["params"] == 52008540 - 89262
    assert done.stderr == ""


def test_recipes_say_what_they_are() -> None:
    rows = fixformer("recipes").stdout.splitlines()
    assert [row.split()[0] for row in rows] == list(RECIPES)
    assert "signers 9-10" in next(row for row in rows if row.startswith("lsa64"))
    assert "Expected: at least 90 %" in fixformer("recipes", "demo").stdout


def test_cost_shows_the_papers_number_beside_ours() -> None:
    done = fixformer("cost", "fixformer_base_released", "--frames", "32")
    assert "530.233" in done.stdout
    assert "530.2" in done.stdout.split("the paper prints")[1]


def test_cost_with_settings_as_json() -> None:
    done = fixformer("cost", "fixformer_base_released", "fixation=none", "association=none", "--json")
    assert json.loads(done.stdout)["macs"] == 243297801216


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("cost", "fixformer_bse"), ["fixformer_bse", "fixformer_base"]),
        (("cost", "fixformer_base", "attention=sofmax"), ["sofmax", "softmax"]),
        (("cost", "fixformer_base", "depth"), ["depth", "name=value"]),
        (
            ("cost", "fixformer_base", "fixation=none", "fixation_merge=add"),
            ["fixation_merge='add'", "fixation='none'"],
        ),
        (("cost", "fixformer_base", "--size", "8"), ["image_size=8", "patch_size=16"]),
        (("train", "dmeo", "--data", "nowhere"), ["dmeo", "demo"]),
        (("train", "demo", "--data", "no/such/place"), ["no/such/place"]),
        (("train", "demo", "device=mps", "--data", "nowhere"), ["device='mps'", "cpu"]),
        (("eval", "no/such/run"), ["no/such/run", "does not exist"]),
        (("eval", "no/such/run", "lables=x"), ["lables", "labels"]),
        (("predict", "no/such/run", "clip.mp4"), ["no/such/run", "does not exist"]),
    ],
)
def test_a_user_error_is_one_sentence_and_status_1(args: tuple[str, ...], words: list[str]) -> None:
    done = fixformer(*args)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert all(word in done.stderr for word in words)


def test_predict_without_videos_is_bad_usage() -> None:
    done = fixformer("predict", "no/such/run")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "no video files" in done.stderr


def test_settings_may_stand_on_both_sides_of_options() -> None:
    """The mistake is in the last of them; the value of an option is not taken for a setting."""
    done = fixformer("train", "demo", "epochs=3", "--data", "a=b", "--dry-run", "size=64", "--no-resume", "epocs=4")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "epocs" in done.stderr
    done = fixformer("eval", "no/such/run", "labels=x", "--views", "2x3", "kind=csv", "--json")
    assert "no/such/run does not exist" in done.stderr


def test_names_that_do_not_fit_the_terminal_are_printed_all_the_same() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fixformer", "recipes", "ssv2"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "\\u03be 1" in done.stdout


def test_an_error_of_another_process_alone_is_printed_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After it has waited to be terminated, which it would be if the main process had met the same error."""
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    monkeypatch.setenv("RANK", "9")
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(SystemExit) as stopped:
        main(["predict", "no/such/run", "clip.mp4"])
    assert stopped.value.code == 1
    assert waits == [ERROR_DELAY + 1]
    assert capsys.readouterr().err.count("no/such/run") == 1


@pytest.mark.parametrize(("rank", "lines"), [("0", 1), ("1", 0)])
def test_an_interruption_is_printed_by_the_main_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rank: str, lines: int
) -> None:
    def interrupted(*arguments: object, **settings: object) -> None:
        raise Interrupted(15, "stopped and saved at step 3")

    monkeypatch.setenv("RANK", rank)
    monkeypatch.setattr("fixformer.training.run.train", interrupted)
    with pytest.raises(SystemExit) as stopped:
        main(["train", "demo", "--data", "x"])
    assert stopped.value.code == 143
    assert capsys.readouterr().err.count("step 3") == lines


def test_bad_usage_is_status_2() -> None:
    assert fixformer("no-such-verb").returncode == 2
    assert fixformer("cost", "--frames", "many").returncode == 2
