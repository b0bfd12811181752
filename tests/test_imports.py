"""Imports point one way, and importing the package costs nothing."""

import ast
import subprocess
import sys
from pathlib import Path

import fixformer

ROOT = Path(fixformer.__file__).parent
# A room may use itself and what stands to its right.
ALLOWED = {
    "ops": {"ops"},
    "models": {"models", "ops", "model_config", "number_checks"},
    "data": {"data", "config"},
}
EVERYWHERE = {"errors", "files", "progress"}


def imported_rooms(file: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(file.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        rooms |= {name.split(".")[1] for name in names if name.startswith("fixformer.")}
    return rooms


def test_imports_point_one_way() -> None:
    for room, allowed in ALLOWED.items():
        for file in (ROOT / room).rglob("*.py"):
            assert imported_rooms(file) <= allowed | EVERYWHERE, file


def test_only_the_command_line_imports_the_command_line() -> None:
    for file in ROOT.rglob("*.py"):
        assert file.name in ("cli.py", "__main__.py") or "cli" not in imported_rooms(file), file


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(' '.join(sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_import_does_not_pay_for_torch() -> None:
    heavy = {"torch", "numpy", "av", "tyro", "rich"}
    assert not heavy & loaded_by("import fixformer; fixformer.__version__; dir(fixformer)")
    assert "torch" not in loaded_by("import fixformer.cli")
    assert "torch" in loaded_by("import fixformer; fixformer.create_model")
