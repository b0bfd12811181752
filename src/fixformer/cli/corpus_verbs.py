"""The verb on corpora: label."""

from typing import Annotated, Literal

from fixformer.cli.arguments import Checkpoint, Corpus, Device, NewDirectory, Number, Views
from fixformer.errors import UsageError, UserError


def label(
    source: Corpus,
    *,
    checkpoint: Checkpoint | None = None,
    out: NewDirectory | None = None,
    engine: Literal["local", "ray"] = "local",
    format: Literal["parquet", "csv", "jsonl"] = "parquet",
    views: Views | None = None,
    top_k: Number = 5,
    logits: bool = False,
    features: bool = False,
    limit: Number | None = None,
    urls: Annotated[str, "PREFIX"] | None = None,
    batch_size: Number = 4,
    workers: Number | None = None,
    threads: Number | None = None,
    rows_per_file: Number = 256,
    device: Device = "auto",
    address: Annotated[str, "HOST:PORT"] | None = None,
    num_gpus: Annotated[float, "NUMBER"] = 0.0,
    concurrency: Number | None = None,
    json: bool = False,
) -> None:
    """Label every video of a corpus as one table, on this machine or on a Ray cluster. Resumable.

    A video that cannot be labelled is a row that says why; exit status 1 if that is all of them.

    Args:
        source: a folder, a pattern in quotes, a manifest (.csv or .parquet with a column path), tar shards, or a URL.
        checkpoint: a checkpoint, or the directory of a run.
        out: a new directory, or that of an interrupted `label` with the same settings.
        engine: local, or ray for a Ray cluster.
        format: of the result; csv and jsonl are joined into one file in the end.
        views: views of each video, such as 2x3; by default the recipe's.
        top_k: number of classes in a row.
        logits: also write the logit of every class.
        features: also write the input of the model's last layer.
        limit: label the first so many rows only; a later call may label more.
        urls: what the URLs in a manifest must begin with, such as s3://bucket/.
        batch_size: videos at a time.
        workers: decoding processes; by default one per available core, with Ray one per actor.
        threads: batches at a time on a CPU; by default one per available core, with Ray one per actor.
        rows_per_file: rows of each file of the result, which is what a kill may cost.
        device: auto, cpu, cuda or cuda:NUMBER.
        address: a running Ray cluster; by default Ray runs on this machine.
        num_gpus: GPUs of each actor of Ray.
        concurrency: actors of Ray; by default as many as the cluster has room for.
        json: print JSON.
    """
    from fixformer.labelling.corpus import label as run
    from fixformer.runtime.console import print_json, show
    from fixformer.runtime.progress import progress

    if checkpoint is None or out is None:
        missing = "--checkpoint CHECKPOINT" if checkpoint is None else "--out DIRECTORY"
        raise UsageError(f"{missing} is missing: fixformer label SOURCE --checkpoint CHECKPOINT --out DIRECTORY.")
    with progress("labelling videos") as report:
        result = run(
            source,
            checkpoint,
            out,
            engine=engine,
            format=format,
            views=views,
            top_k=top_k,
            logits=logits,
            features=features,
            limit=limit,
            urls=urls,
            batch_size=batch_size,
            workers=workers,
            threads=threads,
            rows_per_file=rows_per_file,
            device=device,
            address=address,
            num_gpus=num_gpus,
            concurrency=concurrency,
            progress=report,
        )
    print_json(result.to_json()) if json else show(str(result))
    if not result.summary.statuses.get("ok"):
        raise UserError(f"none of the {result.summary.labelled} videos could be labelled; {out}/report.html says why.")
