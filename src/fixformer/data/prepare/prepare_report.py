"""What `prepare` made, as files or as shards."""

from dataclasses import dataclass, field

CRASH = "the decoder crashed"
MISSING = "listed, but the file does not exist"


@dataclass
class PrepareReport:
    """What was encoded. `failed` holds (path, problem) of the videos that could not be."""

    src: str
    dst: str
    videos: int = 0
    bytes: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
