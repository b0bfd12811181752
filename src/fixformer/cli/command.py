"""A command of the command line, made of a function: its parameters before `*` are positional, the others are options.

The annotations say how texts are read and checked, by the one schema of all settings (`config/schema.py`), and what a
value is called in the help; the docstring says the rest. A parameter of a command that takes settings may be written
as a setting, too (`init=FILE` for `--init FILE`), and a setting as an option (`--epochs 5` for `epochs=5`).
"""

import inspect
import os
import re
import textwrap
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fixformer.cli.help_text import fill, two_columns
from fixformer.config.schema import coerce, parse, unwrap
from fixformer.errors import UnknownName, UsageError, UserError, shown, suggestion

NAMED_VALUE = re.compile(r"([A-Za-z_][\w.]*)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class SettingWords:
    """Marks the parameter that collects settings as `name=value`; `names` lists those that can be expected."""

    names: Callable[[], Iterable[str]]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a command's function."""

    name: str
    hint: Any
    default: Any  # inspect.Parameter.empty if there is none
    is_option: bool
    about: str

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def label(self) -> str:
        """The name in errors."""
        return self.flag if self.is_option else self.value_name

    @property
    def kind(self) -> Any:
        return unwrap(self.hint)[0]

    @property
    def is_list(self) -> bool:
        return get_origin(self.kind) is tuple

    @property
    def is_required(self) -> bool:
        return self.default is inspect.Parameter.empty

    @property
    def is_switch(self) -> bool:
        return self.kind is bool

    @property
    def notes(self) -> tuple[Any, ...]:
        """What the annotation holds beside the type."""
        hint = get_args(self.hint)[0] if unwrap(self.hint)[2] else self.hint
        return getattr(hint, "__metadata__", ())

    @property
    def settings(self) -> SettingWords | None:
        return next((note for note in self.notes if isinstance(note, SettingWords)), None)

    @property
    def value_name(self) -> str:
        """What a value is called in the help: a text in the annotation, or the choices."""
        if get_origin(self.kind) is Literal:
            return "|".join(map(str, get_args(self.kind)))
        return next((note for note in self.notes if isinstance(note, str)), self.name.upper())

    @property
    def usage(self) -> str:
        """How it is written: `--size PIXELS`, `[MODEL]`, `VIDEO [VIDEO ...]`."""
        value = f"{self.value_name} [{self.value_name} ...]" if self.is_list else self.value_name
        if self.is_option:
            return self.flag if self.is_switch else f"{self.flag} {value}"
        return value if self.is_required else f"[{self.value_name}{' ...' * self.is_list}]"

    def read(self, texts: Sequence[str]) -> Any:
        """The checked value of the words that were given for it."""
        if self.is_list and not self.is_option:  # names of files may have commas
            return coerce(tuple(texts), self.hint, self.label)
        return coerce(parse(",".join(texts), self.hint), self.hint, self.label)


class Command:
    """A function that can be called with the words of a command line."""

    def __init__(self, name: str, function: Callable[..., None]) -> None:
        self.name, self.function = name, function
        text, _, described = (inspect.getdoc(function) or "").partition("\n\nArgs:\n")
        self.about = text
        abouts = _parse_descriptions(described)
        hints = get_type_hints(function, include_extras=True)
        self.parameters = [
            Parameter(name, hints[name], one.default, one.kind is one.KEYWORD_ONLY, abouts.get(name, ""))
            for name, one in inspect.signature(function).parameters.items()
        ]
        self.named = {one.name: one for one in self.parameters if one.settings is None}
        self.settings = next((one for one in self.parameters if one.settings is not None), None)

    def __call__(self, words: Sequence[str]) -> None:
        self.function(**self.read(words))

    def read(self, words: Iterable[str]) -> dict[str, Any]:
        """The arguments of the function; a `UsageError` for words that it does not take."""
        try:
            given, loose, settings = self._sort(words)
            for one in self.named.values():
                # a command with settings has one positional parameter, which no other word can be meant for
                if one.is_option or (one.name in given and not self.settings):
                    continue
                take = len(loose) if one.is_list else 1
                if loose or (one.is_list and one.is_required):  # the function says how many it needs
                    _add_once(given, one.name, loose[:take])
                    loose = loose[take:]
                elif one.is_required and one.name not in given:
                    paths = [word for word in settings if os.path.exists(word)]
                    written = f" (a path with = in it is written ./{paths[0]})" if paths else ""
                    raise UsageError(f"{one.value_name} is missing{written}: {self.usage}.")
            arguments = {name: self.named[name].read(texts) for name, texts in given.items()}
        except UserError as error:
            raise UsageError(str(error)) from None
        if self.settings:
            arguments[self.settings.name] = (*loose, *settings)
        elif loose:
            raise UsageError(f"unexpected {loose[0]!r}: {self.usage}.")
        return arguments

    def _sort(self, words: Iterable[str]) -> tuple[dict[str, list[str]], list[str], list[str]]:
        """The words of every parameter that is given by its name, the words without a name, and the settings."""
        given: dict[str, list[str]] = {}
        loose: list[str] = []
        settings: list[str] = []
        rest = deque(words)
        while rest:
            word = rest.popleft()
            if word == "--":  # all others are names of files, even with a dash in front
                loose += rest
                break
            found = NAMED_VALUE.fullmatch(word) if self.settings else None
            if word.startswith("-") and word != "-":
                name, texts = self._read_option(word, rest)
            elif found:
                name, texts = found[1], [found[2]]
            else:
                loose.append(word)
                continue
            if name in self.named:
                _add_once(given, name, texts)
            else:
                settings.append(f"{name}={','.join(texts)}")
        return given, loose, settings

    def _read_option(self, word: str, rest: deque[str]) -> tuple[str, list[str]]:
        """The name and the values of an option; the values are taken from `rest`."""
        flag, equals, text = word.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        off = self.named.get(name.removeprefix("no_"))
        if off and off.is_switch and name == f"no_{off.name}" and not equals:
            return off.name, ["false"]
        if name not in {*self.named, *self._setting_names()} or not flag.startswith("--"):
            raise self._unknown_option(flag)
        one = self.named.get(name)
        if equals:
            return name, [text]
        if one and one.is_switch:
            return name, ["true"]
        texts: list[str] = []
        while rest and not rest[0].startswith("--") and (not texts or (one and one.is_list)):
            texts.append(rest.popleft())
        if not texts:
            raise UsageError(f"{flag} needs a value: {self.usage}.")
        return name, texts

    def _setting_names(self) -> set[str]:
        words = self.settings.settings if self.settings else None
        return set(words.names()) if words else set()

    def _unknown_option(self, flag: str) -> UserError:
        if not flag.startswith("--"):
            return UsageError(f"unknown option {flag!r}; write -- before names that begin with a dash.")
        names = [f"--{name.replace('_', '-')}" for name in (*self.named, *self._setting_names())]
        if not self.settings:
            return UnknownName(f"option of fixformer {self.name}", flag, names)
        note = "settings that only some models have are written NAME=VALUE"
        return UsageError(f"unknown option {shown(flag)} ({note}); {suggestion(flag, names)}")

    @property
    def usage(self) -> str:
        return f"fixformer {self.name} {' '.join(one.usage for one in self.parameters if not one.is_option)}".rstrip()

    def help(self) -> str:
        """The text of `--help`."""
        positional = [one for one in self.parameters if not one.is_option]
        options = [one for one in self.parameters if one.is_option]
        rows = [(one.usage, _with_default(one)) for one in options]
        rows += [("--help", "show this text."), ("--traceback", "show where in the program an error came from.")]
        parts = [f"usage: {self.usage} [OPTIONS]", fill(self.about)]
        if positional:
            parts.append(two_columns([(one.value_name, _with_default(one)) for one in positional]))
        return "\n\n".join([*parts, f"options:\n{two_columns(rows)}"])


def _add_once(given: dict[str, list[str]], name: str, texts: list[str]) -> None:
    if given.setdefault(name, texts) != texts:
        values = f"as {' '.join(given[name])!r} and as {' '.join(texts)!r}"
        raise UsageError(f"{name} is given twice, {values}; give it once.")


def _parse_descriptions(text: str) -> dict[str, str]:
    """`name: description` of the lines after "Args:", which are indented, and more so where one goes on."""
    found: dict[str, str] = {}
    for line in textwrap.dedent(text).splitlines():
        if line.startswith(" "):
            found[next(reversed(found))] += f" {line.strip()}"
        elif line:
            name, _, about = line.partition(": ")
            found[name] = about
    return found


def _with_default(one: Parameter) -> str:
    is_told = one.default in (None, False, (), "", inspect.Parameter.empty)  # or described in words
    shown = " ".join(map(str, one.default)) if isinstance(one.default, tuple) else one.default
    return one.about if is_told else f"{one.about} Default: {shown}."
