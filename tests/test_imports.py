"""Imports form a tree: `tools/rooms.py` lists every room and what it may import. Importing the package is cheap."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import fixformer

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = Path(fixformer.__file__).parent
sys.path.insert(0, str(REPOSITORY / "tools"))
from rooms import PICTURE, ROOMS, UPPER_FLOORS, draw  # noqa: E402

# Modules beside the rooms.
ROOT_MODULES = {"__init__", "__main__", "errors"}


def module_of(file: Path) -> str:
    return ".".join(["fixformer", *file.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__")


def room_of(module: str) -> str:
    """The innermost room of a dotted name: `fixformer.data.video.decoder` is in data/video."""
    parts = module.split(".")[1:]
    while parts and "/".join(parts) not in ROOMS:
        parts.pop()
    return "/".join(parts)


def imported_names(file: Path) -> set[str]:
    """Dotted names of everything imported from this package, at the top of the file or inside functions."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.startswith("fixformer.")}


def is_allowed(room: str, name: str) -> bool:
    target = room_of(name)
    if target == "":
        return name.split(".")[1] in ("errors", "__version__")
    rooms = {room, *ROOMS[room].imports}
    return target in rooms or (room in UPPER_FLOORS and any(target.startswith(f"{other}/") for other in rooms))


def test_every_file_is_in_a_room() -> None:
    for file in PACKAGE.rglob("*.py"):
        room = file.parent.relative_to(PACKAGE).as_posix()
        assert room in ROOMS or (room == "." and file.stem in ROOT_MODULES), file


def test_rooms_import_only_what_the_table_allows() -> None:
    wrong = [
        f"{file.relative_to(PACKAGE)} imports {name}"
        for file in PACKAGE.rglob("*.py")
        if file.parent != PACKAGE
        for name in imported_names(file)
        if not is_allowed(file.parent.relative_to(PACKAGE).as_posix(), name)
    ]
    assert not wrong, "\n".join(sorted(wrong))


def test_the_table_has_no_cycle() -> None:
    TopologicalSorter({name: room.imports for name, room in ROOMS.items()}).prepare()


def test_modules_have_no_import_cycle() -> None:
    """Also within a room, lazy imports included. `__init__` files only re-export: a name is traced to its origin."""
    files = {module_of(file): file for file in PACKAGE.rglob("*.py") if file.name not in ("__init__.py", "__main__.py")}
    packages = {module_of(file): imported_names(file) for file in PACKAGE.rglob("__init__.py")}
    origin = {f"{package}.{name.rpartition('.')[2]}": name for package, names in packages.items() for name in names}
    graph = {}
    for module, file in files.items():
        names = {origin.get(name, name) for name in imported_names(file)}
        graph[module] = {other for other in files for name in names if name == other or name.startswith(f"{other}.")}
    TopologicalSorter(graph).prepare()


def test_no_module_name_stands_for_two_things() -> None:
    stems = [file.stem for file in PACKAGE.rglob("*.py") if file.stem not in ("__init__", "__main__")]
    assert sorted(stems) == sorted(set(stems))


def test_the_picture_of_the_rooms_is_up_to_date() -> None:
    assert PICTURE.read_text() == draw(), "run `python tools/rooms.py`"


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_paths_and_names_on_the_page_exist(page: str) -> None:
    """`config/model.py` must be a file, `config/model.py::ModelConfig` a class or function in it."""
    found = re.findall(r"`([\w/]+(?:\.py|/))(?:::(\w+))?`", (REPOSITORY / page).read_text())
    assert len(found) > 5
    for path, name in found:
        file = next((root / path for root in (PACKAGE, REPOSITORY) if (root / path).exists()), None)
        assert file is not None, path
        assert not name or re.search(rf"^\s*(class|def) {name}\b|^{name}\b.*=", file.read_text(), re.M), (
            f"{path}::{name}"
        )


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(' '.join(sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_import_does_not_load_torch() -> None:
    heavy = {"torch", "numpy", "av", "rich"}
    assert not heavy & loaded_by("import fixformer; fixformer.__version__; dir(fixformer)")
    assert "torch" not in loaded_by("import fixformer.cli.app")
    assert "torch" not in loaded_by("import fixformer.config.recipes")
    assert "torch" not in loaded_by("from fixformer.cli.printing import print_models; print_models('*')")
    assert "torch" in loaded_by("import fixformer; fixformer.create_model")
