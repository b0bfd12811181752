"""The verb that serves a model over HTTP; the limits are those of `serve/settings.py`."""

from typing import Annotated

from fixformer.cli.arguments import Checkpoint, Number, Seconds

Megabytes = Annotated[float, "MB"]
Gigabytes = Annotated[float, "GB"]
Megapixels = Annotated[float, "MEGAPIXELS"]
Host = Annotated[str, "HOST"]
Hosts = Annotated[tuple[str, ...], "HOST"]
TokenFile = Annotated[str, "FILE"]


def serve(
    checkpoint: Checkpoint | None = None,
    *,
    host: Host = "127.0.0.1",
    port: Number = 8000,
    allow_hosts: Hosts = (),
    token_file: TokenFile | None = None,
    upload_mb: Megabytes = 200.0,
    upload_seconds: Seconds = 120.0,
    header_seconds: Seconds = 10.0,
    duration: Seconds = 600.0,
    megapixels: Megapixels = 9.0,
    frames: Number = 100_000,
    concurrent: Number = 2,
    queue: Number = 16,
    queue_seconds: Seconds = 60.0,
    seconds: Seconds = 120.0,
    memory_gb: Gigabytes = 4.0,
    threads: Number = 1,
    connections: Number = 200,
) -> None:
    """Serve a model over HTTP, with a page for the browser, until Ctrl-C or SIGTERM.

    Args:
        checkpoint: a checkpoint, or the directory of a run; by default the model that comes with the package.
        host: where to listen; other machines can reach 0.0.0.0, and then need the token.
        port: where to listen; 0 takes a free one.
        allow_hosts: further names of this server, such as that of a proxy's site.
        token_file: a file with the bearer token; otherwise FIXFORMER_TOKEN, or one that is printed.
        upload_mb: largest upload.
        upload_seconds: longest upload.
        header_seconds: longest wait for the headers of a request.
        duration: longest video.
        megapixels: largest picture of a video.
        frames: most frames of a video.
        concurrent: requests computed at once, each in a process of its own.
        queue: requests that may wait beside them.
        queue_seconds: longest wait.
        seconds: longest computation of a request.
        memory_gb: memory of one such process, beside the model.
        threads: of one such process.
        connections: open at once.
    """
    from fixformer.serve.server import serve as run

    run(
        token_file=token_file,
        checkpoint=checkpoint or "",
        host=host,
        port=port,
        allow_hosts=allow_hosts,
        upload_mb=upload_mb,
        upload_seconds=upload_seconds,
        header_seconds=header_seconds,
        duration=duration,
        megapixels=megapixels,
        frames=frames,
        concurrent=concurrent,
        queue=queue,
        queue_seconds=queue_seconds,
        seconds=seconds,
        memory_gb=memory_gb,
        threads=threads,
        connections=connections,
    )
