"""Memory and speed of `timeline` on a file of hours: OUT.json [--hours 2] [--run RUN] [--stride SECONDS].

The file is made of generated scenes, encoded once and repeated packet by packet, in about a minute. Without --run the
model is fixformer_tiny as in the recipe `demo`, untrained: as fast and as large as a trained one.
"""

import argparse
import json
import os
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import av
import torch

from fixformer.config.recipes import demo
from fixformer.data.synthetic.motions import make_clip, motion_labels
from fixformer.evaluation.predictor import Classifier, load
from fixformer.models.checkpoint import CheckpointInfo
from fixformer.models.registry import create_model
from fixformer.runtime.memory import peak_memory, reset_peak_memory
from fixformer.runtime.progress import progress

FPS, SCENES = 25, 48
SIZE = (240, 320)  # of the scenes: as the smallest videos of the web


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--hours", type=float, default=2)
    parser.add_argument("--run")
    parser.add_argument("--stride", type=float)
    args = parser.parse_args()
    torch.set_num_threads(1)
    classifier = load(args.run) if args.run else untrained()
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        file = write_long(Path(folder), args.hours * 3600)
        made, size = time.monotonic() - begin, file.stat().st_size
        before = reset_peak_memory()
        began = time.monotonic(), time.process_time()
        with progress("windows") as report:
            timeline = classifier.timeline(file, stride=args.stride, progress=report)
        wall, processor = time.monotonic() - began[0], time.process_time() - began[1]
    summary = {
        "model": classifier.info.config.model,
        "trained": classifier.info.is_trained,
        "frames_per_window": classifier.info.config.clip.frames,
        "size": classifier.info.config.clip.size,
        "video": {"seconds": timeline.seconds, "fps": FPS, "pixels": SIZE[::-1], "megabytes": size / 1e6},
        "made_in_seconds": made,
        "window": timeline.window,
        "stride": timeline.stride,
        "windows": len(timeline.times),
        "segments": len(timeline.segments),
        "memory_before_mb": before / 1e6,
        "peak_memory_mb": peak_memory() / 1e6,
        "wall_seconds": wall,
        "processor_seconds": processor,
        "times_real_time": timeline.seconds / wall,
        "load_average": os.getloadavg(),
    }
    args.out.write_text(json.dumps(summary, indent=1) + "\n")
    print(json.dumps(summary, indent=1))


def untrained() -> Classifier:
    """The demo's model with fresh weights."""
    config, labels = demo(), motion_labels()
    sizes = {"num_classes": len(labels), "num_frames": config.clip.frames, "image_size": config.clip.size}
    model = create_model(config.model, **sizes, **config.model_settings)
    return Classifier(model, CheckpointInfo(config, labels), torch.device("cpu"))


def write_long(folder: Path, seconds: float) -> Path:
    """A file of at least so many seconds: one of a few minutes, its packets repeated with later timestamps."""
    short, long = folder / "short.mp4", folder / "long.mp4"
    frames = write_short(short)
    tick = Fraction(1, FPS)
    with av.open(str(long), "w") as output, av.open(str(short)) as source:
        stream = output.add_stream_from_template(source.streams.video[0])
        packets = [packet for packet in source.demux(video=0) if packet.size]
        times = [(packet.pts, packet.dts) for packet in packets]
        shift = int(frames * tick / source.streams.video[0].time_base)  # type: ignore[operator]
        for number in range(-(-int(seconds * FPS) // frames)):
            for packet, (pts, dts) in zip(packets, times, strict=True):
                assert pts is not None
                assert dts is not None
                packet.pts, packet.dts = pts + number * shift, dts + number * shift
                packet.stream = stream
                output.mux_one(packet)
    return long


def write_short(file: Path) -> int:
    """Scenes one after the other; gives the number of frames."""
    count = 0
    with av.open(str(file), "w") as output:
        options = {"crf": "23", "preset": "veryfast", "g": "50"}
        stream = output.add_stream("libx264", rate=FPS, options=options)
        assert isinstance(stream, av.VideoStream)
        stream.height, stream.width = SIZE
        stream.pix_fmt = "yuv420p"
        for scene in range(SCENES):
            clip, _ = make_clip(scene, 0, SIZE)
            for i in range(len(clip)):
                frame = av.VideoFrame.from_ndarray(clip.render(i), format="rgb24")
                frame.pts, frame.time_base = count, Fraction(1, FPS)
                output.mux(stream.encode(frame))
                count += 1
        output.mux(stream.encode(None))
    return count


if __name__ == "__main__":
    main()
