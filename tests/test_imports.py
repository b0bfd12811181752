"""Imports form a tree: every room, and what it may import. Importing the package costs nothing."""

import ast
import subprocess
import sys
from pathlib import Path

import fixformer

ROOT = Path(fixformer.__file__).parent
BASE = {"errors"}
VIDEO = BASE | {"config", "runtime"}
# Room -> the rooms it may import beside itself. A room in a room has its own line.
ROOMS: dict[str, set[str]] = {
    "config": BASE,
    "ops": BASE,
    "runtime": BASE | {"config"},
    "models/layers": BASE,
    "models/attention": BASE | {"config", "ops", "models/layers"},
    "models": BASE | {"config", "ops", "runtime", "models/layers", "models/attention"},
    "models/zoo/common": BASE | {"config", "ops", "models", "models/layers", "models/attention"},
    "models/zoo": BASE | {"config", "ops", "models", "models/layers", "models/attention", "models/zoo/common"},
    "models/weights": BASE | {"models", "models/layers", "models/attention", "models/zoo"},
    "data": BASE,
    "data/video": VIDEO,
    "data/listing": VIDEO | {"data/video"},
    "data/clips": VIDEO | {"data/video", "data/listing"},
    "data/loading": VIDEO | {"data/video", "data/listing", "data/clips"},
    "data/audit": VIDEO | {"data/video", "data/listing", "data/clips"},
    "data/prepare": VIDEO | {"data/video", "data/listing", "data/clips"},
    "data/synthetic": VIDEO | {"data/video", "data/listing", "data/clips"},
    "evaluation": BASE | {"config", "runtime", "models", "data"},
    "training": BASE | {"config", "runtime", "models", "data", "evaluation"},
    "bench": BASE | {"config", "runtime", "models", "data", "evaluation", "training"},
    "cli": BASE | {"config", "runtime", "models", "data", "evaluation", "training", "bench"},
}
# Modules of the package itself: what every room may use of it, and the door to the command line.
DOORS = {"__init__", "__main__", "errors"}


def room_of(module: str) -> str:
    """The innermost room of a dotted name: `fixformer.data.video.decoder` is in data/video."""
    parts = module.split(".")[1:]
    while parts and "/".join(parts) not in ROOMS:
        parts.pop()
    return "/".join(parts)


def imported_modules(file: Path) -> set[str]:
    modules = set()
    for node in ast.walk(ast.parse(file.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        modules |= {name for name in names if name.startswith("fixformer.")}
    return modules


def is_allowed(room: str, module: str) -> bool:
    """A room may import itself and what its line names, rooms in a named room included where that is a leaf above."""
    target = room_of(module)
    if target == "":
        return module.split(".")[1] in (*BASE, "__version__")
    return any(target == name or (room in LEAVES and target.startswith(f"{name}/")) for name in (room, *ROOMS[room]))


# These stand on whole floors: `training` may use any room of `data`.
LEAVES = {"evaluation", "training", "bench", "cli"}


def test_every_file_is_in_a_room() -> None:
    for file in ROOT.rglob("*.py"):
        room = file.parent.relative_to(ROOT).as_posix()
        assert room in ROOMS or file.stem in DOORS, file


def test_imports_form_a_tree() -> None:
    wrong = [
        f"{file.relative_to(ROOT)} imports {module}"
        for file in ROOT.rglob("*.py")
        for module in imported_modules(file)
        if file.parent != ROOT and not is_allowed(file.parent.relative_to(ROOT).as_posix(), module)
    ]
    assert not wrong, "\n".join(sorted(wrong))


def test_no_two_rooms_import_each_other() -> None:
    for room, allowed in ROOMS.items():
        seen, waiting = set(), list(allowed & ROOMS.keys())
        while waiting:
            one = waiting.pop()
            seen.add(one)
            waiting += [name for name in ROOMS[one] if name in ROOMS and name not in seen]
        assert room not in seen, room


def test_no_module_name_stands_for_two_things() -> None:
    stems = [file.stem for file in ROOT.rglob("*.py") if file.stem not in ("__init__", "__main__")]
    assert sorted(stems) == sorted(set(stems))


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(' '.join(sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_import_does_not_pay_for_torch() -> None:
    heavy = {"torch", "numpy", "av", "tyro", "rich"}
    assert not heavy & loaded_by("import fixformer; fixformer.__version__; dir(fixformer)")
    assert "torch" not in loaded_by("import fixformer.cli.app")
    assert "torch" not in loaded_by("import fixformer.config.recipes")
    assert "torch" in loaded_by("import fixformer; fixformer.create_model")
