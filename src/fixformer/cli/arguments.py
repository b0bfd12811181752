"""Types of the commands' arguments: what a value is, and what the help calls it.

Conditions on values belong to the functions that the commands call, which check them (`config/schema.py::checked`).
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from fixformer.cli.command import SettingWords
from fixformer.config.data import DataConfig
from fixformer.config.model import ModelConfig
from fixformer.config.schema import Expect, field_types, setting_types
from fixformer.config.train import TrainConfig

_GIVEN = Expect("a path", bool)  # an empty text, such as an unset variable of a shell, would mean this directory

Number = Annotated[int, "NUMBER"]
Pixels = Annotated[int, "PIXELS"]
Seconds = Annotated[float, "SECONDS"]
Minutes = Annotated[float, "MINUTES"]
Directory = Annotated[Path, "DIRECTORY"]
NewDirectory = Annotated[str, "DIRECTORY", _GIVEN]
File = Annotated[Path, "FILE"]
DataSet = Annotated[str, "DATA", _GIVEN]
Layout = Annotated[str, "LAYOUT"]
Model = Annotated[str, "MODEL"]
Checkpoint = Annotated[str, "CHECKPOINT", _GIVEN]
Videos = Annotated[tuple[str, ...], "VIDEO"]
Video = Annotated[str, "VIDEO", _GIVEN]
Views = Annotated[str, "CLIPSxCROPS"]
Device = Annotated[str, "DEVICE"]
Layers = Annotated[tuple[str, ...], "LAYER"]
Checkpoints = Annotated[tuple[str, ...], "CHECKPOINT"]
CellGrid = Annotated[str, "CELLS"]


def _names_of_training() -> Iterable[str]:
    """Full names and last words of the settings of a run, and the settings of our own models."""
    for name in setting_types(TrainConfig):
        yield name
        yield name.rpartition(".")[2]
    yield from field_types(ModelConfig)


RunSettings = Annotated[tuple[str, ...], "NAME=VALUE", SettingWords(_names_of_training)]
DataSettings = Annotated[tuple[str, ...], "NAME=VALUE", SettingWords(lambda: setting_types(DataConfig))]
ModelOverrides = Annotated[tuple[str, ...], "NAME=VALUE", SettingWords(lambda: field_types(ModelConfig))]
