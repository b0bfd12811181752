"""Every kind of source is the same video: the answer for it is that for the file."""

import io
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import av
import fsspec
import numpy as np
import pytest
import torch

from fixformer.data.video import open_video
from fixformer.errors import UserError
from fixformer.evaluation.answers import Prediction, PredictionError
from fixformer.evaluation.predictor import Classifier, load
from fixformer.evaluation.remote import is_url, shown_url
from fixformer.evaluation.sources import each_source, name_of, opened
from fixformer.runtime.files import Spool
from fixformer.training.run import TrainResult


@pytest.fixture(scope="module")
def classifier(trained: TrainResult) -> Classifier:
    return load(trained.output)


@pytest.fixture(scope="module")
def file(trained: TrainResult) -> Path:
    return Path(trained.evaluation.videos[0].path)


@pytest.fixture(scope="module")
def frames_THWC(file: Path) -> np.ndarray:
    with open_video(file) as video:
        return video.get_frames(range(len(video)))


def same(found: Prediction, classifier: Classifier, file: Path, **options: Any) -> bool:
    return torch.equal(found.scores_K, classifier.predict(file, **options).scores_K)


def test_a_clip_in_memory(classifier: Classifier, file: Path, frames_THWC: np.ndarray) -> None:
    for clip in (frames_THWC, torch.from_numpy(frames_THWC), np.asfortranarray(frames_THWC)):
        found = classifier.predict(clip)
        assert same(found, classifier, file)
        assert found.file == "the clip"
    assert torch.equal(classifier.features(frames_THWC), classifier.features(file))


def test_a_clip_has_times_if_its_rate_is_given(classifier: Classifier, file: Path, frames_THWC: np.ndarray) -> None:
    with open_video(file) as video:
        rate = video.info.fps
    part: dict[str, Any] = {"start": 0.4, "end": 0.9}
    assert same(classifier.predict(frames_THWC, fps=rate, **part), classifier, file, **part)
    with pytest.raises(UserError, match=r"the clip is an array of frames, which has no timestamps.*fps"):
        classifier.predict(frames_THWC, **part)


def test_a_clip_is_scaled_as_its_frames_in_files_are(frames_THWC: np.ndarray, tmp_path: Path) -> None:
    for number, picture in enumerate(frames_THWC[:3]):
        write_png(tmp_path / f"{number}.png", picture)
    with open_video(frames_THWC[:3], short_side=20) as clip, open_video(tmp_path, short_side=20) as pictures:
        assert np.array_equal(clip.get_frames([2, 0, 1]), pictures.get_frames([2, 0, 1]))
        assert clip.info.height == 20


def write_png(path: Path, picture_HWC: np.ndarray) -> None:
    codec = av.CodecContext.create("png", "w")
    assert isinstance(codec, av.VideoCodecContext)
    codec.height, codec.width, codec.pix_fmt = *picture_HWC.shape[:2], "rgb24"
    packets = [*codec.encode(av.VideoFrame.from_ndarray(picture_HWC, format="rgb24")), *codec.encode(None)]
    path.write_bytes(b"".join(map(bytes, packets)))


@pytest.mark.parametrize(
    ("clip", "match"),
    [
        (np.zeros((4, 8, 8, 3), np.float32), r"float32 .*\[4, 8, 8, 3\].*uint8"),
        (torch.zeros(4, 8, 8, 3, dtype=torch.bfloat16), r"bfloat16 .*convert them to uint8"),
        (np.zeros((4, 3, 8, 8), np.uint8), r"transpose\(0, 2, 3, 1\)"),
        (torch.zeros(3, 4, 8, 8, dtype=torch.uint8), r"permute\(1, 2, 3, 0\)"),
        (np.zeros((4, 8, 8, 1), np.uint8), r"repeat a grey picture"),
        (np.zeros((8, 8, 3), np.uint8), r"clip\[None\]"),
        (np.zeros((1, 4, 8, 8, 3), np.uint8), r"one clip at a time"),
        (np.zeros((0, 8, 8, 3), np.uint8), r"\[0, 8, 8, 3\]"),
        (None, r"None is no video"),
        ([1, 2], r"\[1, 2\] is no video"),
    ],
)
def test_a_clip_of_another_kind_is_refused(classifier: Classifier, clip: Any, match: str) -> None:
    with pytest.raises(UserError, match=match):
        classifier.predict(clip)


@pytest.fixture
def tree(file: Path, tmp_path: Path) -> Path:
    """Two videos at different depths, a folder of frames, and what is neither."""
    root = tmp_path / "tree"
    (root / "deep" / "er").mkdir(parents=True)
    (root / "frames").mkdir()
    (root / "empty").mkdir()
    for name in ("b.webm", "deep/er/a.webm", "deep/.hidden.webm"):
        (root / name).write_bytes(file.read_bytes())
    (root / "notes.txt").write_text("no video")
    with open_video(file) as video:
        for number, picture in enumerate(video.get_frames(range(len(video)))):
            write_png(root / "frames" / f"{number}.png", picture)
    return root


def listed(sources: Any) -> list[Any]:
    return list(each_source(sources))


def test_a_folder_and_a_pattern_stand_for_what_they_hold(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = [tree / name for name in ("b.webm", "deep/er/a.webm", "frames")]
    assert listed(tree) == everything
    assert listed([str(tree / "frames"), tree / "deep"]) == [tree / "frames", everything[1]]
    assert listed(f"{tree}/*.webm") == everything[:1]
    assert listed(f"{tree}/**/*.webm") == [everything[0], everything[1]]
    assert listed([f"{tree}/de*", f"{tree}/x*"]) == [everything[1], f"{tree}/x*"]
    monkeypatch.chdir(tree)
    (tree / "-").write_text("a file")
    (tree / "[1].webm").write_text("a file")
    assert listed(["-", "http://x/y*", "[1].webm"]) == ["-", "http://x/y*", "[1].webm"]
    assert listed("-*") == [Path("-")]
    assert name_of(Path("-")) == "-"


def test_one_source_is_a_list_of_one() -> None:
    clip, stream = np.zeros((2, 8, 8, 3), np.uint8), io.BytesIO()
    for one in (clip, stream, b"bytes", "name", Path("name"), None):
        assert [id(found) for found in each_source(one)] == [id(one)]
    endless = each_source(clip for _ in iter(int, 1))
    assert next(endless) is next(endless) is clip


def test_each_of_many(classifier: Classifier, file: Path, tree: Path) -> None:
    found = list(classifier.predict_each([tree, file.read_bytes(), tree / "notes.txt", f"{tree}/x*", tree / "empty"]))
    expected = classifier.predict(file)
    assert all(isinstance(one, Prediction) and torch.equal(one.scores_K, expected.scores_K) for one in found[:4])
    reasons = [str(one) for one in found[4:] if isinstance(one, PredictionError)]
    assert [reason.partition(str(tree))[2].partition(":")[0] for reason in reasons[:2]] == ["/notes.txt", "/x*"]
    assert "empty is a folder without videos and images" in reasons[2]
    with pytest.raises(UserError, match=r"tree holds 3 videos.*predict_each"):
        classifier.predict(tree)


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def test_standard_input(classifier: Classifier, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def give(data: bytes, kind: type[io.TextIOWrapper] = io.TextIOWrapper) -> None:
        monkeypatch.setattr(sys, "stdin", kind(io.BytesIO(data)))

    give(file.read_bytes())
    found = classifier.predict("-")
    assert found.file == "standard input"
    assert same(found, classifier, file)
    with pytest.raises(UserError, match="standard input is empty"):  # all of it has been read
        classifier.predict("-")
    give(bytes(1_000_001))
    with pytest.raises(UserError, match=r"standard input: more than 1 MB.*--download-limit"):
        load(None, download_limit=1).predict("-")
    give(b"", Terminal)
    with pytest.raises(UserError, match="no file or pipe"):
        classifier.predict("-")


def test_a_url_of_fsspec(classifier: Classifier, file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also when it does not stay in memory, and nothing of it is left."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    fsspec.filesystem("memory").pipe("/clips/a.webm", file.read_bytes())
    for in_memory in (Spool.IN_MEMORY, 100):
        monkeypatch.setattr(Spool, "IN_MEMORY", in_memory)
        assert same(classifier.predict("memory://clips/a.webm"), classifier, file)
        with opened("memory://clips/a.webm"):
            assert list(tmp_path.iterdir()) == []  # it has no name
    assert same(classifier.predict(f"file://{file}"), classifier, file)
    with pytest.raises(UserError, match=r"memory://clips/b\.webm cannot be read \(there is no such file\)"):
        classifier.predict("memory://clips/b.webm")
    with pytest.raises(UserError, match=r"nosuch://x cannot be read \(.*nosuch"):
        classifier.predict("nosuch://x")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(UserError, match=r'pip install "fixformer\[remote\]"'):
        classifier.predict("memory://clips/a.webm")


class Server(BaseHTTPRequestHandler):
    """Gives a video at /clip, and trouble anywhere else."""

    clip = b""
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path.startswith("/missing"):
            self.send_error(404)
            return
        self.send_response(200)
        if self.path.startswith("/cut"):
            self.send_header("Content-Length", str(2 * len(self.clip)))
        self.end_headers()
        endless = self.path.startswith("/endless")
        try:
            for block in [bytes(1 << 20)] * 100 if endless else [self.clip]:
                self.wfile.write(block)
        except OSError:  # the other side has had enough
            return

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def server(file: Path) -> Iterator[str]:
    Server.clip = file.read_bytes()
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_http(trained: TrainResult, file: Path, server: str) -> None:
    classifier = load(trained.output, download_limit=3)
    found = classifier.predict(f"http://me:secret@{server}/clip?signature=secret")
    assert same(found, classifier, file)
    assert found.file == f"http://{server}/clip"
    for path, sent in {"clip a?x=1": "/clip%20a?x=1", "clip%2Fa?sig=a%2Fb%3D": "/clip%2Fa?sig=a%2Fb%3D"}.items():
        assert same(classifier.predict(f"http://{server}/{path}"), classifier, file)
        assert Server.asked[-1] == sent
    for path, reason in {
        "missing": "there is no such file|answers 404",
        "cut": "cannot be read",
        "endless": "more than 3 MB",
    }.items():
        with pytest.raises(UserError, match=rf"^http://{server}/{path}.*({reason})") as raised:
            classifier.predict(f"http://me:secret@{server}/{path}?key=secret")
        assert "secret" not in str(raised.value)
    with pytest.raises(UserError, match=r"^http://127\.0\.0\.1:9/x cannot be read"):
        classifier.predict("http://127.0.0.1:9/x")


@pytest.mark.parametrize(
    ("text", "is_one", "shown"),
    [
        ("https://me:pass@x.org:8/a%20b.mp4?token=1#t", True, "https://x.org:8/a%20b.mp4"),
        ("s3://bucket/key.mp4", True, "s3://bucket/key.mp4"),
        ("zip://a.mp4::https://u:p@x/y.zip?k=1", True, "zip://a.mp4::https://x/y.zip"),
        ("simplecache::s3://b/k", True, "simplecache::s3://b/k"),
        ("http://[bad/x?k", True, "http://[bad/x"),
        ("a.tar::0+10", False, ""),
        ("C:\\clip.mp4", False, ""),
        ("pipe:cat", False, ""),
        ("clips/http://x", False, ""),
    ],
)
def test_what_is_a_url_and_how_it_is_shown(text: str, is_one: bool, shown: str) -> None:
    assert is_url(text) == is_one
    assert not is_one or shown_url(text) == shown
