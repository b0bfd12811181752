"""What `GET /metrics` counts, for Prometheus."""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Metrics:
    """Counters of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        named: Any = {"registry": self.registry}
        self.requests = Counter("fixformer_requests", "Requests by path and status", ["path", "status"], **named)
        self.latency = Histogram(
            "fixformer_request_seconds", "From the request's headers to the last byte of the answer", ["path"],
            buckets=_SECONDS, **named,
        )  # fmt: skip
        self.seconds = Histogram(
            "fixformer_job_seconds", "Decoding and computing, without waiting", ["task"], buckets=_SECONDS, **named
        )
        self.running = Gauge("fixformer_running", "Jobs that are computed now", **named)
        self.places = Gauge("fixformer_places", "Requests that are uploaded, wait or run", **named)
        self.killed = Counter("fixformer_killed", "Processes that were killed or crashed", **named)
        self.bytes = Counter("fixformer_upload_bytes", "Bytes of uploads received", **named)

    def text(self) -> bytes:
        return generate_latest(self.registry)
