"""Borders that `timeline` finds in files made of LSA64 clips of the test signers: RUN OUT.json --data LSA64.

Each file has one clip of every sign by one signer, in random order, so that no two neighbours are equal; its borders
are known. A border is found if a segment begins within half a second of it, each segment counting once.
"""

import argparse
import json
import random
import tempfile
import time
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av

from fixformer.data.listing import Sample, load_index
from fixformer.data.video.open_video import open_video
from fixformer.evaluation.predictor import load
from fixformer.evaluation.timeline.timeline import Segment

TOLERANCE = 0.5  # seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--files", type=int, default=10, help="one per signer and repetition")
    parser.add_argument("--stride", type=float)
    args = parser.parse_args()
    classifier = load(args.run)
    data = classifier.info.config.data
    index = load_index(args.data, kind="lsa64", recording_set=data.recording_set)
    groups: dict[tuple[str, str], list[Sample]] = {}
    for sample in index.split("test"):
        groups.setdefault((str(sample.group), Path(sample.path).stem[-3:]), []).append(sample)
    rng = random.Random(0)
    rows, seconds, began = [], 0.0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for key in sorted(groups)[: args.files]:
            clips = rng.sample(groups[key], len(groups[key]))
            file = Path(folder) / "long.mp4"
            borders = join(clips, file)
            start = time.monotonic()
            timeline = classifier.timeline(file, stride=args.stride)
            seconds += time.monotonic() - start
            labels = [index.labels[int(clip.label)] for clip in clips]
            rows.append({"signer": key[0], "repetition": key[1], **count(timeline.segments, borders, labels)})
            print(rows[-1], flush=True)
            used = {"window": timeline.window, "window_from": timeline.window_from, "stride": timeline.stride}
    total = {
        name: sum(row[name] for row in rows) for name in ("borders", "found", "segment_borders", "clips", "labelled")
    }
    summary = {
        "checkpoint": {"model": classifier.info.config.model, "step": classifier.info.step},
        "video_top1": classifier.info.metrics.get("video_top1"),
        "tolerance_seconds": TOLERANCE,
        **used,
        **total,
        "recall": total["found"] / total["borders"],
        "precision": total["found"] / max(total["segment_borders"], 1),
        "clips_labelled_right": total["labelled"] / total["clips"],
        "video_seconds": sum(row["seconds"] for row in rows),
        "timeline_seconds": round(seconds, 1),
        "files": rows,
    }
    args.out.write_text(json.dumps(summary, indent=1) + "\n")
    shown = ("borders", "found", "recall", "precision", "clips_labelled_right", "video_seconds", "timeline_seconds")
    print({name: summary[name] for name in shown}, f"in all {time.monotonic() - began:.0f} s")


def join(clips: list[Sample], file: Path) -> list[float]:
    """Write the clips one after the other; gives the seconds where each begins, and the end."""
    with open_video(clips[0].path) as video:
        info, rate = video.info, Fraction(video.info.fps or 25).limit_denominator(1001)
    count, starts = 0, []
    with av.open(str(file), "w") as output:
        stream = output.add_stream("libx264", rate=rate, options={"crf": "18", "preset": "veryfast"})
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height, stream.pix_fmt = info.width, info.height, "yuv420p"
        for clip in clips:
            starts.append(float(count / rate))
            with open_video(clip.path) as video:
                for picture in video.get_frames(range(len(video))):
                    frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
                    frame.pts, frame.time_base = count, 1 / rate
                    output.mux(stream.encode(frame))
                    count += 1
        output.mux(stream.encode(None))
    return [*starts, float(count / rate)]


def count(segments: list[Segment], borders: list[float], labels: list[str]) -> dict[str, Any]:
    """Borders found within the tolerance, and clips whose middle lies in a segment of their label."""
    free = [segment.start for segment in segments[1:]]
    found = 0
    for border in borders[1:-1]:
        near = [start for start in free if abs(start - border) <= TOLERANCE]
        if near:
            free.remove(min(near, key=lambda start: abs(start - border)))
            found += 1
    middles = [(start + end) / 2 for start, end in pairwise(borders)]
    shown = [next(s.label for s in segments if s.start <= middle <= s.end) for middle in middles]
    return {
        "seconds": borders[-1],
        "borders": len(borders) - 2,
        "found": found,
        "segment_borders": len(segments) - 1,
        "clips": len(labels),
        "labelled": sum(label == true for label, true in zip(shown, labels, strict=True)),
    }


if __name__ == "__main__":
    main()
