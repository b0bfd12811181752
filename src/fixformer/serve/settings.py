"""What `fixformer serve` may be told: where it listens, what a request may cost, how much it does at once."""

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated

from fixformer.config.schema import Count, Expect, Positive, PositiveInt, Settings, int_between

LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class ServeSettings(Settings):
    """Every limit of the server.

    Args:
        checkpoint: a checkpoint or the directory of a run; empty for the model that comes with the package.
        host, port: where to listen; port 0 takes a free one.
        allow_hosts: further names under which a client may ask for this server, such as that of a proxy's site.
        upload_mb: largest upload.
        upload_seconds: longest time an upload may take.
        header_seconds: longest time a client may take for the headers of a request.
        duration: longest video in seconds.
        megapixels: largest picture of a video.
        frames: most frames of a video.
        concurrent: requests that are computed at once, each in a process of its own.
        queue: requests that may wait beside them; further ones get status 429.
        queue_seconds: longest wait, after which a request gets status 503.
        seconds: longest computation of a request, after which its process is killed and it gets status 504.
        memory_gb: memory of one such process beyond the model's.
        threads: of one such process.
        connections: open at once.
    """

    checkpoint: str = ""
    host: Annotated[str, Expect("a name or an address", bool)] = "127.0.0.1"
    port: Annotated[int, int_between(0, 65535)] = 8000
    allow_hosts: tuple[str, ...] = ()
    upload_mb: Positive = 200.0
    upload_seconds: Positive = 120.0
    header_seconds: Positive = 10.0
    duration: Positive = 600.0
    megapixels: Positive = 9.0
    frames: PositiveInt = 100_000
    concurrent: Annotated[int, int_between(1, 64)] = 2
    queue: Count = 16
    queue_seconds: Positive = 60.0
    seconds: Positive = 120.0
    memory_gb: Positive = 4.0
    threads: Annotated[int, int_between(1, 1024)] = 1
    connections: PositiveInt = 200

    @property
    def upload_bytes(self) -> int:
        return int(self.upload_mb * 1e6)

    @property
    def pixels(self) -> int:
        return int(self.megapixels * 1e6)

    @property
    def memory_bytes(self) -> int:
        return int(self.memory_gb * 1e9)

    @property
    def is_private(self) -> bool:
        """Whether only this machine can reach the server, hence may do so without a token."""
        return is_loopback(self.host) and not self.allow_hosts


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
