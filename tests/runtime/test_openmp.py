"""Spinning is limited before torch is loaded, and never against what the user has set."""

import subprocess
import sys

import pytest

from fixformer.runtime.openmp import SPIN, limit_spinning, openmp_settings

SHOW = "import sys; sys.argv = ['fixformer', '--version']; from fixformer.__main__ import run; run(); import os; "


@pytest.mark.skipif(sys.platform != "linux", reason="other systems are left alone")
def test_only_what_the_user_left_open_is_set() -> None:
    environment = {"OMP_NUM_THREADS": "2"}
    limit_spinning(environment)
    assert environment == {"OMP_NUM_THREADS": "2", "GOMP_SPINCOUNT": SPIN}


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "GOMP_CPU_AFFINITY"])
def test_what_the_user_set_stands(name: str) -> None:
    environment = {name: "x"}
    limit_spinning(environment)
    assert environment == {name: "x"}


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    environment: dict[str, str] = {}
    limit_spinning(environment)
    assert not environment


def test_what_is_in_force_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    assert openmp_settings()["OMP_WAIT_POLICY"] == "passive"
    assert "PATH" not in openmp_settings()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems are left alone")
def test_the_command_sets_it_before_torch_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in openmp_settings():
        monkeypatch.delenv(name)
    show = SHOW + "print('torch' in sys.modules, os.environ['GOMP_SPINCOUNT'])"
    done = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"False {SPIN}"
