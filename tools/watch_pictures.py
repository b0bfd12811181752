"""The pictures of docs/timeline.md and docs/explain.md: CHECKPOINT, trained on the motions data.

The videos are generated scenes that no training set holds.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from fixformer.data.synthetic.motions import encode, make_clip, motion_labels
from fixformer.evaluation.predictor import load

DOCS = Path(__file__).resolve().parents[1] / "docs"
FPS = 24
SCENES = range(100_000, 100_012)  # no training set is as large
EXPLAINED = 100_003
WIDTH, COLOURS = 1000, 96  # of the pictures in the docs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint")
    classifier = load(parser.parse_args().checkpoint)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        scenes = [frames_of(number) for number in SCENES]
        encode(home / "long.webm", [frame for scene in scenes for frame in scene], FPS)
        timeline = classifier.timeline(home / "long.webm")
        timeline.write(home / "timeline")
        ends = np.cumsum([len(scene) / FPS for scene in scenes])
        for number, end in zip(SCENES, ends, strict=True):
            print(f"until {end:5.2f}  {motion_labels()[number % len(motion_labels())]}")
        for segment in timeline.segments:
            print(segment)
        encode(home / "short.webm", frames_of(EXPLAINED), FPS)
        found = classifier.explain(home / "short.webm")
        found.write(home / "explain")
        print(found.label, found.probability, found.correlations, *found.table, sep="\n")
        publish(home / "timeline" / "timeline.png", "timeline.png")
        publish(home / "explain" / "overlay.png", "explain_overlay.png")
        publish(home / "explain" / "figure2.png", "explain_figure2.png")


def frames_of(number: int) -> list[np.ndarray]:
    """A scene at the common frame rate."""
    scene, fps = make_clip(number, 0)
    return [scene.render(int(tick * fps / FPS)) for tick in range(len(scene) * FPS // fps)]


def publish(source: Path, name: str) -> None:
    """A small copy in the docs."""
    picture = Image.open(source).convert("RGB")
    picture = picture.resize((WIDTH, picture.height * WIDTH // picture.width), Image.Resampling.LANCZOS)
    picture.quantize(COLOURS).save(DOCS / name, optimize=True)


if __name__ == "__main__":
    main()
