"""The wheel holds the package and nothing else, and predicts outside of the checkout with its dependencies."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

from fixformer.evaluation.predictor import load
from tiny_run import train_tiny
from videos import encode, moving_square

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the backend that the `dev` extra installs, so that nothing is downloaded."""
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT))
    (built,) = folder.glob("fixformer-*.whl")
    return built


def pip(*args: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new virtual environment with the wheel in it.

    Its own packages come first; what fixformer depends on is found in the environment that runs the tests. A `.pth`
    file reads no further `.pth` files, so an editable fixformer over there stays unseen.
    """
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    (packages,) = home.glob("lib/python3*/site-packages")
    pip("--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
    dependencies = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (packages / "dependencies.pth").write_text("\n".join(dependencies) + "\n")
    return home / "bin"


def run(program: Path, *args: str, cwd: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run([program, *args], cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_the_typed_package_and_nothing_else(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    assert {"fixformer/py.typed", "fixformer/models/model_table.json"} <= set(names)
    shipped = {"model.safetensors", "config.json", "manifest.json", "README.md"}
    assert {f"fixformer/models/shipped/{name}" for name in shipped} <= set(names)
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"fixformer"}
    sources = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == sources


def test_the_installed_wheel_predicts(programs: Path, tmp_path: Path) -> None:
    checkpoint = train_tiny(tmp_path / "home").output / "last"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "clip.mp4").write_bytes(encode(moving_square(12)))
    imported = run(programs / "python", "-c", "import fixformer; print(fixformer.__file__)", cwd=elsewhere).strip()
    assert Path(imported).is_relative_to(programs.parent), imported
    (found,) = json.loads(run(programs / "fixformer", "predict", str(checkpoint), "clip.mp4", "--json", cwd=elsewhere))
    expected = load(checkpoint).predict(elsewhere / "clip.mp4")
    assert [guess["label"] for guess in found["top"]] == [guess.label for guess in expected.guesses]
    shares = [guess["probability"] for guess in found["top"]]
    assert shares == pytest.approx([guess.probability for guess in expected.guesses], abs=1e-4)
    (found,) = json.loads(run(programs / "fixformer", "predict", "clip.mp4", "--json", cwd=elsewhere))
    assert found["top"][0]["label"] == load().predict(elsewhere / "clip.mp4").label
