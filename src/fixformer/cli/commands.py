"""All commands by name: which one the words of a command line mean, and the help that lists them."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from fixformer.cli.command import Command
from fixformer.cli.help_text import fill, two_columns
from fixformer.errors import UnknownName, UsageError
from fixformer.runtime.console import show

HELP_WORDS = ("-h", "--help")
F = TypeVar("F", bound=Callable[..., None])


def before_files(words: Sequence[str]) -> Sequence[str]:
    """The words before `--`, after which all are names of files."""
    return words[: words.index("--")] if "--" in words else words


class Commands:
    """The functions of the commands; the name of one in a group has two words, such as `bench model`.

    Args:
        about: the first lines of the help.
        groups: what the commands of each group have in common, by the group's name.
    """

    def __init__(self, about: str, groups: dict[str, str]) -> None:
        self._about, self._groups = about, groups
        self._functions: dict[str, Callable[..., None]] = {}

    def add(self, name: str) -> Callable[[F], F]:
        """Make a command of the decorated function, which stays as it is."""

        def decorate(function: F) -> F:
            self._functions[name] = function
            return function

        return decorate

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __getitem__(self, name: str) -> Command:
        return Command(name, self._functions[name])

    def run(self, words: Sequence[str]) -> None:
        """Call the command that the first words name, or print its help."""
        words = [*words[1:], "--help"] if words[:1] == ["help"] else list(words)
        depth = 2 if words and words[0] in self._groups else 1
        path = [word for word in words[:depth] if word not in HELP_WORDS]
        name = " ".join(path)
        if not path or name in self._groups:
            show(self.help(name))
            return
        if name not in self._functions:
            group = words[0] if depth == 2 else ""
            raise UsageError(str(UnknownName("command", name, self._names_in(group))))
        if set(HELP_WORDS) & set(before_files(words)):
            show(self[name].help())
        else:
            self[name](words[depth:])

    def help(self, group: str = "") -> str:
        """The list of all commands, or of those in a group."""
        rows = [(name, self._groups.get(name) or self[name].about) for name in self._names_in(group)]
        command = " ".join(filter(None, ("fixformer", group, "COMMAND")))
        usage = f"usage: {command} ..." if group else f"usage: {command} ..., or fixformer --version"
        about = fill(self._groups.get(group, self._about))
        return f"{usage}\n\n{about}\n\ncommands:\n{two_columns(rows)}\n\n`{command} --help` explains one of them."

    def _names_in(self, group: str) -> list[str]:
        """The commands and groups on one level."""
        if group:
            return [name for name in self._functions if name.startswith(f"{group} ")]
        return [*(name for name in self._functions if " " not in name), *self._groups]
