"""The command `fixformer export`."""

from typing import Annotated

from fixformer.cli.arguments import Checkpoint, Videos
from fixformer.config.schema import Expect
from fixformer.runtime.console import print_json, show

Format = Annotated[str, "onnx|onnx-int8|torch|hf"]
NewPath = Annotated[str, "FILE", Expect("a path", bool)]


def export(checkpoint: Checkpoint, videos: Videos = (), *, to: Format, out: NewPath, json: bool = False) -> None:
    """Write a checkpoint for other programs, preprocessing included, and measure how well it agrees with PyTorch.

    Args:
        checkpoint: a checkpoint, or the directory of a run.
        videos: to compare on, and to calibrate int8 with; by default some of the checkpoint's own test videos.
        to: onnx, for onnxruntime and others; onnx-int8, smaller and faster; torch, a program of torch.export (.pt2);
            hf, a directory for Hugging Face transformers.
        out: the new file, or directory for hf.
        json: print JSON.
    """
    from fixformer.export.export_model import export as run

    exported = run(checkpoint, to=to, out=out, videos=videos)  # type: ignore[arg-type] # which run checks
    print_json(exported.to_json()) if json else show(str(exported))
