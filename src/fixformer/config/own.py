"""The settings that are the user's own: they come from a command line, never from a file.

A checkpoint may come from anyone. Its config says what the model is and which data it was trained with. It must not
name a command, a URL, a file of weights or a directory that is written, so those settings are neither stored nor read.
"""

from dataclasses import replace
from typing import Any

from fixformer.config.train import TrainConfig

OWN = frozenset(("init", "output"))
OWN_OF_DATA = frozenset(("cache", "location"))


def without_own(values: dict[str, Any]) -> dict[str, Any]:
    """The JSON values of a `TrainConfig` without the user's own settings.

    `cache="auto"` stays: it names no directory, but the one of whoever reads it.
    """
    kept = {name: value for name, value in values.items() if name not in OWN}
    data = values.get("data")
    if isinstance(data, dict):
        is_kept = {name: name not in OWN_OF_DATA or (name, value) == ("cache", "auto") for name, value in data.items()}
        kept["data"] = {name: value for name, value in data.items() if is_kept[name]}
    return kept


def with_own(stored: TrainConfig, given: TrainConfig) -> TrainConfig:
    """A config from a file, with the user's own settings as they are now."""
    data = replace(stored.data, cache=given.data.cache, location=given.data.location)
    return replace(stored, init=given.init, output=given.output, data=data)
