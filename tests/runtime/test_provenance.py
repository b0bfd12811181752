"""The commit stamp: only of this package's own checkout, and never a failure."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fixformer

PROGRAM = "from fixformer.runtime.provenance import source_commit; print(source_commit())"
VERSION = "import fixformer; print(fixformer.__version__)"
PACKAGE = Path(fixformer.__file__).parent
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def stamp(source: Path, program: str = PROGRAM, **environment: str) -> str:
    """What a process with the package in `source` stamps on its checkpoints."""
    variables = {**os.environ, "PYTHONPATH": str(source)} | environment
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout.strip()


def make_repository(root: Path) -> str:
    """Commit everything under `root`; returns the short commit."""

    def git(*arguments: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        command = ["git", "-C", str(root), *who, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    git("init", "--quiet")
    git("add", "--all")
    git("commit", "--quiet", "--allow-empty", "--message", "all")
    return git("describe", "--always")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The package in a checkout of its own."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "checkout" / "src" / "fixformer", ignore=ignored)
    (tmp_path / "checkout" / ".gitignore").write_text("__pycache__/\n")
    return tmp_path / "checkout"


@needs_git
def test_its_own_checkout_is_stamped(copied: Path) -> None:
    commit = make_repository(copied)
    assert stamp(copied / "src") == commit
    (copied / "src" / "fixformer" / "errors.py").open("a").write("\n")
    assert stamp(copied / "src") == f"{commit}-dirty"
    # git sets this in hooks of any repository
    assert stamp(copied / "src", GIT_DIR=str(copied / "elsewhere")) == f"{commit}-dirty"


@needs_git
def test_another_repository_around_it_is_not(copied: Path) -> None:
    """Neither one that ignores the package, as in a virtual environment, nor one that tracks it somewhere else."""
    outer = copied.parent
    (outer / "own.py").write_text("")
    (outer / ".gitignore").write_text("checkout/\n__pycache__/\n")
    make_repository(outer)
    assert stamp(copied / "src") == ""
    (outer / ".gitignore").write_text("__pycache__/\n")
    make_repository(outer)
    assert stamp(copied / "src") == ""


def test_no_git_is_no_stamp(copied: Path) -> None:
    assert stamp(copied / "src", PATH="/nonexistent") == ""


def test_the_version_is_that_of_this_copy(copied: Path) -> None:
    """Another copy may be installed, as in this environment; its version says nothing about this one."""
    assert stamp(copied / "src", VERSION) == "0+unknown"
    (info := copied / "src" / "fixformer-7.1.dist-info").mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fixformer\nVersion: 7.1\n")
    assert stamp(copied / "src", VERSION) == "7.1"
    (copied / "site" / info.name).mkdir(parents=True)
    shutil.move(info / "METADATA", copied / "site" / info.name / "METADATA")
    info.rmdir()
    origin = {"url": copied.as_uri(), "dir_info": {"editable": True}}
    (copied / "site" / info.name / "direct_url.json").write_text(json.dumps(origin))
    assert stamp(copied / "src", VERSION, PYTHONPATH=f"{copied / 'site'}:{copied / 'src'}") == "7.1"
