"""Every command block (`sh`) and program block (`python`) of README and docs runs as a reader would run it.

Blocks marked `console` are for other machines, or would start this very test.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from torch.distributed.run import get_args_parser

from fixformer.bench.capacity import Place
from fixformer.bench.capacity_law import Clips, Counts
from fixformer.cli.app import main
from fixformer.config import TrainConfig
from fixformer.config.recipes import RECIPES, describe_recipe
from fixformer.data.synthetic import make_clip
from fixformer.experiments.studies import Study, find_study
from fixformer.experiments.study_plan import DEFAULT_RECIPE
from fixformer.training.request import resolve_config
from videos import encode

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(kind, text, id=f"{page.name}-{number}")
    for page in PAGES
    for number, (kind, text) in enumerate(BLOCK.findall(page.read_text()), 1)
]
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # while the other worker has the other core, two threads are slower than one
NEEDED = ("Makefile", "pyproject.toml", "constraints.txt", "README.md", "LICENSE", "src")


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that looks like the checkout, so that what the commands write goes elsewhere."""
    place = tmp_path_factory.mktemp("checkout")
    for name in NEEDED:
        (place / name).symlink_to(ROOT / name)
    (place / ".venv").symlink_to(sys.prefix)
    _make_class_folders(place / "videos")
    return place


def _make_class_folders(root: Path) -> None:
    """What the README's reader has: `root/{train,val}/CLASS/*.mp4`."""
    for number in range(36):
        split, name = "val" if number < 8 else "train", ("left", "right")[number % 2]
        scene, fps = make_clip(12 * number + number % 2, seed=0)
        file = root / split / name / f"{number:03}.mp4"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encode(np.stack([scene.render(i) for i in range(len(scene))]), rate=fps))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "text"), BLOCKS)
def test_block_runs(kind: str, text: str, place: Path) -> None:
    command = ["bash", "-euo", "pipefail", "-c", text] if kind == "sh" else [sys.executable, "-c", text]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=place, env={**os.environ, "PATH": path, **ONE_THREAD}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    if text == "make demo\n":
        evaluation = json.loads((place / "demo" / "evaluation" / "evaluation.json").read_text())
        assert evaluation["metrics"]["video_top1"] >= 0.9
        assert "data:image/png;base64" in (place / "demo" / "report.html").read_text()


def train_commands() -> list[str]:
    """Of all pages and recipes, also those for other machines; continued lines joined."""
    texts = [page.read_text() for page in PAGES] + [describe_recipe(name) for name in RECIPES]
    lines = [line.strip() for text in texts for line in text.replace("\\\n", " ").splitlines()]
    return sorted({line.removeprefix("Command: ") for line in lines if "fixformer train " in line and "`" not in line})


@pytest.mark.parametrize("command", train_commands())
def test_commands_for_other_machines_are_understood(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By torchrun and by the command line, up to the complete config; only the data and the machines are lacking."""
    launcher, _, words = command.removesuffix("&").partition("fixformer train ")
    monkeypatch.chdir(tmp_path)
    seen: list[TrainConfig] = []

    def resolve(recipe: str, *, resume: bool = False, fork: bool = False, **settings: Any) -> None:
        for option in ("folds", "minutes"):  # they do not belong to the config
            settings.pop(option, None)
        seen.append(resolve_config(recipe, **settings))
        raise SystemExit(0)

    (tmp_path / "videos").mkdir()
    monkeypatch.setattr("fixformer.training.cross_validation.cross_validate", resolve)
    monkeypatch.setattr("fixformer.training.run.train", resolve)
    monkeypatch.setattr("fixformer.training.run.plan", resolve)
    with pytest.raises(SystemExit) as stopped:
        main(["train", *shlex.split(words)])
    assert (stopped.value.code, len(seen)) == (0, 1)
    if "torchrun" in launcher:
        asked = get_args_parser().parse_args([*shlex.split(launcher.partition("torchrun ")[2]), "fixformer"])
        assert asked.module
        assert seen[0].batch_size % int(asked.nproc_per_node) == 0


def ablate_commands() -> list[str]:
    """Of all pages, also those that the results came from."""
    lines = [line.strip() for page in PAGES for line in page.read_text().replace("\\\n", " ").splitlines()]
    return sorted({line for line in lines if line.startswith("fixformer ablate ") and "STUDY" not in line})


@pytest.mark.parametrize("command", ablate_commands())
def test_studies_are_understood(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the study and the config of its base; only the data is lacking."""
    seen: list[tuple[Study, TrainConfig]] = []

    def resolve(study: str, *, recipe: str | None, data: str, overrides: dict[str, Any], **options: Any) -> None:
        seen.append((find_study(study), resolve_config(recipe or DEFAULT_RECIPE, data=data, **overrides)))
        raise SystemExit(0)

    monkeypatch.setattr("fixformer.experiments.ablate.plan_study", resolve)
    with pytest.raises(SystemExit) as stopped:
        main(shlex.split(command)[1:])
    assert (stopped.value.code, len(seen)) == (0, 1)


def plan_commands() -> list[str]:
    """Of all pages; they measure for minutes."""
    lines = [line.strip().removeprefix("$ ") for page in PAGES for line in page.read_text().splitlines()]
    return sorted({line for line in lines if line.startswith("fixformer plan ") and "`" not in line})


@pytest.mark.parametrize("command", plan_commands())
def test_plans_are_understood(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the memory, the recipe and the model, of which nothing is measured."""

    def stop(counts: Counts, own: Clips, place: Place, *rest: Any) -> None:
        assert place.memory > 1e9
        assert counts.at(own.frames, own.size) is not None
        raise SystemExit(0)

    monkeypatch.setattr("fixformer.bench.capacity.find_laws", stop)
    with pytest.raises(SystemExit) as stopped:
        main(shlex.split(command)[1:])
    assert stopped.value.code == 0


def test_the_first_screen_has_the_commands() -> None:
    first_screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:20])
    for command in ("make demo", "make check", "make test"):
        assert command in first_screen
        assert f"\n{command.removeprefix('make ')}: " in (ROOT / "Makefile").read_text()


def test_ci_runs_the_readmes_test_command() -> None:
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("make test")


def test_github_runs_the_readmes_test_command_on_every_python_and_builds_the_wheel() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    job = workflow["jobs"]["test"]
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands[0] == "make test"
    assert "pip wheel" in commands[1]
    supported = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert supported == f">={job['strategy']['matrix']['python'][0]}"
    # GitHub has no foreign data; there the tests that need it are skipped
    assert "FIXFORMER_REQUIRE_SHARED" not in str(workflow)


def test_tables_are_those_of_the_result_files() -> None:
    subprocess.run([sys.executable, str(ROOT / "tools" / "update_docs.py"), "--check"], check=True)


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"
