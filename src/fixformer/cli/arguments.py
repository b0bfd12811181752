"""Types of the commands' arguments, with the names `--help` shows for their values.

Those that may be None describe their default in words.
"""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

Text = Annotated[str | None, arg(metavar="TEXT", help_behavior_hint="")]
Number = Annotated[int | None, arg(metavar="INT", help_behavior_hint="")]
PathOption = Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="")]
Checkpoint = Positional[Annotated[str, arg(metavar="CHECKPOINT")]]
SettingWords = Positional[Annotated[tuple[str, ...], arg(metavar="[NAME=VALUE ...]", help_behavior_hint="")]]
