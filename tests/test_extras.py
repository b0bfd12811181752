"""Every extra that an error, a text or a document names is in pyproject.toml, and every extra there has a use."""

import ast
import re
import tomllib
from pathlib import Path

import fixformer

ROOT = Path(__file__).parents[1]
SOURCES = sorted(Path(fixformer.__file__).parent.rglob("*.py"))
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return set(project["optional-dependencies"])


def named_in_text(text: str) -> set[str]:
    """`fixformer[plots,shards]` names two."""
    lists = re.findall(r"fixformer\[([\w, -]+)\]", text)
    return {name.strip() for names in lists for name in names.split(",")}


def named_in_errors(file: Path) -> set[str]:
    """The second argument of every `MissingExtra(need, extra)`, which must be a literal."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "MissingExtra":
            extra = node.args[1]
            assert isinstance(extra, ast.Constant), f"{file}: MissingExtra without a literal name"
            names.add(extra.value)
    return names


def test_every_extra_that_is_named_exists() -> None:
    for file in SOURCES:
        named = named_in_errors(file) | named_in_text(file.read_text(encoding="utf-8"))
        assert named <= declared(), f"{file} names {named - declared()}"
    for file in DOCUMENTS:
        text = file.read_text(encoding="utf-8")
        named = named_in_text(text) | set(re.findall(r"`(\w+)` extra", text))
        assert named <= declared(), f"{file} names {named - declared()}"


def test_every_extra_has_a_use() -> None:
    used = set().union(*(named_in_errors(file) for file in SOURCES))
    assert declared() - {"dev"} == used


def test_the_readme_lists_the_extras() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    [sentence] = [line for line in lines if line.startswith("Extras")]
    assert set(re.findall(r"`(\w+)`", sentence)) == declared() - {"dev"}
