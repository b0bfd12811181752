"""The installed packages: what fixformer needs, and which of its extras are there. Nothing is imported for it."""

import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version

from fixformer.diagnosis.finding import Finding

_REQUIREMENT = re.compile(r"""(?P<name>[\w.-]+)\s*(?P<range>[^;]*?)\s*(;.*extra\s*==\s*['"](?P<extra>[\w-]+)['"].*)?""")
_AT_LEAST = re.compile(r"[>=]=\s*([\d.]+)")
FOR_DEVELOPERS = "dev"
USES = {
    "plots": "charts and tensorboard",
    "torchcodec": "the second decoder",
    "pretrained": "image weights for fixformer train DIR",
    "serve": "fixformer serve",
    "onnx": "fixformer export --to onnx, and .onnx files",
    "hf": "transformers and the Hugging Face Hub",
    "remote": "videos from URLs",
    "label": "fixformer label",
    "ray": "fixformer label --engine ray",
}


def package_findings() -> Iterator[Finding]:
    by_extra = _requirements()
    if not by_extra:
        detail = "not installed as a package, so that nobody knows what it needs"
        yield Finding("packages", "fixformer", "broken", detail, "pip install fixformer")
    for name, wanted in by_extra.pop("", {}).items():
        yield _required(name, wanted)
    for extra, packages in sorted(by_extra.items()):
        if extra != FOR_DEVELOPERS:
            yield _extra(extra, packages)


def _required(name: str, wanted: str) -> Finding:
    problem = _problem(name, wanted)
    if problem:
        return Finding("packages", name, "broken", problem, f'pip install "{name}{wanted}"')
    return Finding("packages", name, "ok", version(name))


def _extra(extra: str, packages: dict[str, str]) -> Finding:
    use = USES.get(extra, "")
    problems = [f"{name} {problem}" for name, wanted in packages.items() if (problem := _problem(name, wanted))]
    if problems:
        detail = f"{', '.join(problems)}{f'; for {use}' if use else ''}"
        return Finding("extras", extra, "absent", detail, f'pip install "fixformer[{extra}]"')
    return Finding("extras", extra, "ok", ", ".join(f"{name} {version(name)}" for name in packages))


def _problem(name: str, wanted: str) -> str:
    """Why an installed package does not do, or nothing."""
    try:
        found = version(name)
    except PackageNotFoundError:
        return "is not installed"
    least = _AT_LEAST.search(wanted)
    return f"is {found}, too old (needs {wanted})" if least and _numbers(found) < _numbers(least[1]) else ""


def _numbers(text: str) -> tuple[int, ...]:
    leading = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, leading[0].split("."))) if leading else ()


@cache
def _installed_requirements() -> tuple[str, ...]:
    try:
        return tuple(requires("fixformer") or ())
    except PackageNotFoundError:
        return ()


def _requirements() -> dict[str, dict[str, str]]:
    """Package -> versions, of each extra; those that are always needed are under the empty name."""
    found: dict[str, dict[str, str]] = {}
    for line in _installed_requirements():
        match = _REQUIREMENT.fullmatch(line)
        if match:
            found.setdefault(match["extra"] or "", {})[match["name"]] = match["range"]
    return found
