"""`fixformer predict`: what a word means, what is printed, and the exit status."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fixformer.cli.app import main
from fixformer.cli.use_verbs import choose_model, names_model
from fixformer.errors import UsageError
from fixformer.evaluation.predictor import load
from fixformer.models.shipped_model import SHIPPED
from videos import encode, moving_square


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with videos, checkpoints and their remains."""
    monkeypatch.chdir(tmp_path)
    for folder in ("clips", "run/checkpoints", "lost", "empty"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "shipped").symlink_to(SHIPPED)
    (tmp_path / "lost" / "config.json").write_text("{}")
    for name in ("clip.mp4", "clips/a.mp4", "noise", "odd.onnx.mp4"):
        (tmp_path / name).write_bytes(encode(moving_square(6, 32, 40)))
    return tmp_path


@pytest.mark.parametrize(
    ("word", "is_model"),
    [
        *(("shipped", True), ("run", True), ("lost", True), ("clips", False), ("empty", False)),
        *(("clip.mp4", False), ("noise", False), ("odd.onnx.mp4", False), ("/dev/zero", False)),
        *(("absent", True), ("no/such/run", True), ("absent.mp4", False), ("absent.WEBM", False)),
        *(("model.onnx", True), ("run/model.safetensors", True), ("clip.???", False), ("ab*", False)),
        *(("-", False), ("http://x/model", False), ("memory://a", False), ("a.tar::0+10", False)),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_the_first_word_means(word: str, is_model: bool) -> None:
    assert names_model(word) == is_model
    assert choose_model(word, ["x.mp4"]) == ((word, ["x.mp4"]) if is_model else (None, [word, "x.mp4"]))


@pytest.mark.parametrize("word", [None, "shipped"])
@pytest.mark.usefixtures("here")
def test_no_video_is_bad_usage(word: str | None) -> None:
    with pytest.raises(UsageError, match="no video files given"):
        choose_model(word, [])


def test_without_a_checkpoint_the_shipped_model_answers(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["predict", "clip.mp4", "clips", "--json", "--views", "1x1"])
    printed = capsys.readouterr()
    rows = json.loads(printed.out)
    assert [row["file"] for row in rows] == ["clip.mp4", "clips/a.mp4"]
    assert [line for line in printed.err.splitlines() if "generated motions" in line] == printed.err.splitlines()[:1]
    expected = load().predict(here / "clip.mp4", views="1x1")
    assert rows[0]["top"] == rows[1]["top"] == expected.to_json()["top"]
    main(["predict", "shipped", "clip.mp4", "--json", "--views", "1x1"])
    printed = capsys.readouterr()
    assert json.loads(printed.out) == rows[:1]
    assert "generated motions" not in printed.err


@pytest.mark.usefixtures("here")
def test_csv_has_a_row_for_each_guess(capsys: pytest.CaptureFixture[str]) -> None:
    os.rename("noise", "=noise,\n.mp4")
    with pytest.raises(SystemExit) as ended:
        main(["predict", "clip.mp4", "absent.mp4", "*noise*", "--csv", "--top-k", "2", "--views", "1x1"])
    assert ended.value.code == 1
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["rank"] for row in rows] == ["1", "2", "", "1", "2"]
    assert [row["file"] for row in rows] == ["clip.mp4"] * 2 + ["absent.mp4"] + ["\\x3dnoise,\\n.mp4"] * 2
    assert float(rows[0]["probability"]) > float(rows[1]["probability"]) > 0
    assert "no such file" in rows[2]["error"]
    assert rows[2]["label"] == rows[0]["error"] == ""


@pytest.mark.usefixtures("here")
def test_bars_and_the_sentence_of_what_cannot_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["predict", "shipped", "absent.mp4", "clip.mp4", "--views", "1x1"])
    printed = capsys.readouterr()
    assert ended.value.code == 1
    assert printed.err == "fixformer: absent.mp4: no such file\n"
    assert len(printed.out.splitlines()) == 6
    assert "█" in printed.out.splitlines()[1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--json", "--csv"], "exclude each other"),
        (["--top-k", "0"], "top_k=0"),
        (["--views", "3"], "views='3'"),
        (["--download-limit", "0"], "download_limit=0"),
        (["--device", "tpu"], "tpu"),
    ],
)
@pytest.mark.usefixtures("here")
def test_a_mistake_is_said_once(options: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["predict", "shipped", "clip.mp4", "clip.mp4", *options])
    printed = capsys.readouterr()
    assert ended.value.code == 1
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert words in printed.err


STUB = """
import sys, types
from pathlib import Path

class Answer:
    guesses = []
    file, views = "clip.mp4", "1x1"
    def __init__(self, size): self.size = size
    def to_json(self): return {"file": self.file, "views": self.views, "top": [], "size": self.size}

class Exported:
    labels = ["a"]
    def __init__(self, path): assert path == Path("model.onnx")
    def predict(self, file, *, top_k):
        return Answer(len(file.read() if hasattr(file, "read") else open(file, "rb").read()))

stub = types.ModuleType("fixformer.export.onnx_predict")
stub.load_onnx = Exported
sys.modules.update({"fixformer.export": types.ModuleType("fixformer.export"), stub.__name__: stub})
from fixformer.cli.app import main
main(["predict", "model.onnx", "clip.mp4", "-", "--json"])
assert "torch" not in sys.modules
"""


@pytest.mark.slow
def test_an_exported_model_answers_without_torch(here: Path) -> None:
    """Its class is a stub here; that the answers agree is tested where it is exported."""
    (here / "model.onnx").write_bytes(b"")
    content = (here / "clip.mp4").read_bytes()
    done = subprocess.run([sys.executable, "-c", STUB], input=content, capture_output=True, check=False, cwd=here)
    assert done.returncode == 0, done.stderr.decode()
    assert [row["size"] for row in json.loads(done.stdout)] == [len(content)] * 2
