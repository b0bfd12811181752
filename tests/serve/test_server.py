"""A real server process: right answers, and clear ones to whatever else is sent to it."""

import json
import os
import signal
import socket
import struct
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from running_server import Running, running, wait_until

from fixformer.evaluation.predictor import load
from videos import encode, moving_square

pytestmark = pytest.mark.slow


def uploads(server: Running) -> list[str]:
    """The files of uploads that exist now."""
    (folder,) = server.log.parent.glob("fixformer-serve-*")
    return os.listdir(folder)


def form(data: bytes, name: str = "clip.webm") -> dict[str, tuple[str, bytes]]:
    return {"file": (name, data)}


def test_the_answer_is_that_of_python(server: Running, checkpoint: Path, clip: bytes) -> None:
    """As a form, as a body and step by step."""
    expected = load(checkpoint).predict(clip, top_k=3)
    raw = {"Content-Type": "video/webm"}
    with server.client() as client:
        first = client.post("/v1/predict?top_k=3&frames=3&scores=true", files=form(clip)).json()
        second = client.post("/v1/predict?top_k=3", content=clip, headers=raw).json()
        steps = client.post("/v1/predict?top_k=3", files=form(clip), headers={"Accept": "application/x-ndjson"})
    lines = [json.loads(line) for line in steps.text.splitlines()]
    assert [list(line) for line in lines] == [["progress"]] * (len(lines) - 1) + [["result"]]
    assert len(lines) > 1
    for answer in (first, second, lines[-1]["result"]):
        assert [guess["label"] for guess in answer["top"]] == [guess.label for guess in expected.guesses]
        shares = [guess["probability"] for guess in answer["top"]]
        assert shares == pytest.approx([guess.probability for guess in expected.guesses], abs=1e-5)
        assert answer["views"] == expected.views
        assert answer["video"] == {**answer["video"], "frames": 48, "width": 160, "height": 120, "fps": 24}
        assert answer["video"]["seconds"] == pytest.approx(2, abs=0.01)
    assert first["scores"] == pytest.approx(expected.scores_K.tolist(), abs=1e-4)
    assert first["file"] == "clip.webm"
    assert [frame["image"][:23] for frame in first["frames"]] == ["data:image/jpeg;base64,"] * 3


def large(**kind: str) -> bytes:
    """A few kilobytes that unpack to pictures beyond the limit."""
    return encode(np.zeros((1, 1280, 1280, 3), np.uint8), **kind)  # type: ignore[arg-type]


def enormous() -> bytes:
    """A picture of 900 megapixels in a hundred kilobytes, which even the headers' reader must not unpack."""
    side = 30_000
    rows = zlib.compress(bytes((1 + side // 8) * side), 1)
    head = struct.pack("!IIBBBBB", side, side, 1, 0, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", rows), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack("!I", len(data)) + name + data + struct.pack("!I", zlib.crc32(name + data)) for name, data in chunks
    )


def endless() -> bytes:
    """A small file that says it lasts for hours."""
    return encode(moving_square(3), rate=1, times=[0, 1, 40_000])


BAD: dict[str, tuple[Callable[[], bytes], int, str]] = {
    "empty": (lambda: b"", 400, "empty"),
    "text": (lambda: b"just words\n" * 50, 422, "unreadable"),
    "random": (lambda: np.random.default_rng(0).bytes(50_000), 422, "unreadable"),
    "cut off": (lambda: encode(moving_square(48))[:-900], 422, "unreadable"),
    "playlist": (lambda: b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n", 422, "unreadable"),
    "too large": (lambda: bytes(2_500_000), 413, "too_large"),
    "large in h264": (lambda: large(codec="libx264"), 422, "too_many_pixels"),
    "large in mjpeg": (lambda: large(codec="mjpeg", container="avi", pixel_format="yuvj420p"), 422, "too_many_pixels"),
    "enormous": (enormous, 422, "too_many_pixels"),
    "too long": (endless, 422, "too_long"),
}


@pytest.mark.parametrize("name", list(BAD))
def test_what_cannot_be_answered_is_said_in_words(server: Running, name: str) -> None:
    make, status, code = BAD[name]
    data = make()
    with server.client() as client:
        answer = client.post("/v1/predict", files=form(data, f"{name}.mp4"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    assert str(server.log.parent) not in answer.text
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ({"content": b"x", "headers": {"Content-Type": "text/plain"}}, 415),
        ({"content": b"x", "headers": {"Content-Type": "multipart/form-data"}}, 400),
        ({"content": b"--b\r\nno header", "headers": {"Content-Type": "multipart/form-data; boundary=b"}}, 400),
        ({"files": {"other": ("clip.mp4", b"x")}}, 400),
        ({"files": [("file", ("a.mp4", b"x")), ("file", ("b.mp4", b"x"))]}, 400),
        ({"files": {"file": ("clip.mp4", b"x")}, "params": {"top_k": "0"}}, 422),
        ({"files": {"file": ("clip.mp4", b"x")}, "params": {"views": "many"}}, 422),
    ],
)
def test_wrong_requests(server: Running, words: dict[str, object], status: int) -> None:
    with server.client() as client:
        answer = client.post("/v1/predict", **words)  # type: ignore[arg-type]
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["message"].endswith(".")


@pytest.mark.parametrize(
    "name", ["../../../../tmp/evil.webm", "/etc/cron.d/evil", "..\\..\\evil.webm", "a\x00b\u202e.webm"]
)
def test_a_file_name_is_shown_and_never_a_path(server: Running, clip: bytes, name: str) -> None:
    with server.client() as client:
        answer = client.post("/v1/predict", files=form(clip, name))
    assert answer.status_code == 200
    assert answer.json()["file"] in ("evil.webm", "evil", "a\\x00b\\u202e.webm", "a%00b\\u202e.webm")
    assert not uploads(server)


@pytest.mark.parametrize(
    "path", ["/page/../settings.py", "/page/%2e%2e/settings.py", "/..%2f..%2fetc/passwd", "/page/"]
)
def test_no_path_leads_out_of_the_page(server: Running, path: str) -> None:
    with connected(server) as peer:
        peer.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        assert read_all(peer).startswith(b"HTTP/1.1 404")


def connected(server: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=20)


def read_all(peer: socket.socket) -> bytes:
    data = b""
    try:
        while part := peer.recv(1 << 16):
            data += part
    except ConnectionResetError:
        pass
    return data


HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\n"


def test_abuse_of_http(server: Running, clip: bytes) -> None:
    """Together, because most of it is waiting: the server ends each of them, and answers others meanwhile."""

    def endless_headers() -> None:
        with connected(server) as peer:
            try:
                for number in range(100_000):
                    peer.sendall(f"X-{number}: {'x' * 100}\r\n".encode() if number else HEAD)
            except (BrokenPipeError, ConnectionResetError):
                return
            raise AssertionError("a megabyte of headers was read")

    def slow_headers() -> None:
        begin = time.monotonic()
        with connected(server) as peer:
            peer.sendall(HEAD)
            assert read_all(peer) == b""  # closed
        assert time.monotonic() - begin < 15

    def slow_upload() -> None:
        with connected(server) as peer:
            peer.sendall(HEAD + b"Content-Type: video/webm\r\nContent-Length: 100000\r\n\r\nbegin")
            assert b" 408 " in peer.recv(1000)

    def cut_connection() -> None:
        with connected(server) as peer:
            peer.sendall(HEAD + b"Content-Type: video/webm\r\nContent-Length: 100000\r\n\r\n" + clip[:500])

    def not_http() -> None:
        with connected(server) as peer:
            peer.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n")
            assert b" 400 " in read_all(peer)

    def wrong_length() -> None:
        with connected(server) as peer:
            peer.sendall(HEAD + b"Content-Length: 5\r\nContent-Length: 50\r\n\r\nhello")
            assert b" 400 " in read_all(peer)

    def large_by_chunks() -> None:
        with server.client() as client:
            answer = client.post("/v1/predict", content=(bytes(100_000) for _ in range(30)))
        assert answer.status_code == 413

    abuses = (endless_headers, slow_headers, slow_upload, cut_connection, not_http, wrong_length, large_by_chunks)
    with ThreadPoolExecutor(len(abuses)) as pool:
        running_abuses = [pool.submit(abuse) for abuse in abuses]
        with server.client() as client:
            assert client.post("/v1/predict", files=form(clip)).status_code == 200
        for one in running_abuses:
            one.result()
    wait_until(lambda: not uploads(server), "the uploads to be deleted", 10)
    assert server.process.poll() is None
    assert "Traceback" not in server.log.read_text()


def test_two_clients_at_once_get_their_own_answers(server: Running, checkpoint: Path) -> None:
    clips = [encode(moving_square(24 + 6 * seed, seed=seed)) for seed in range(6)]
    classifier = load(checkpoint)

    def ask(data: bytes) -> list[float]:
        with server.client() as client:
            return [guess["probability"] for guess in client.post("/v1/predict", files=form(data)).json()["top"]]

    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(ask, clips))
    for data, shares in zip(clips, answers, strict=True):
        assert shares == pytest.approx([guess.probability for guess in classifier.predict(data).guesses], abs=1e-5)


def test_metrics_count(server: Running, clip: bytes) -> None:
    def count(client: httpx.Client) -> float:
        lines = client.get("/metrics").text.splitlines()
        name = 'fixformer_requests_total{path="/v1/predict",status="200"} '
        return next((float(line.removeprefix(name)) for line in lines if line.startswith(name)), 0)

    with server.client() as client:
        before = count(client)
        client.post("/v1/predict", files=form(clip))
        assert count(client) == before + 1


def test_queue_time_limit_and_end(checkpoint: Path, clip: bytes, tmp_path: Path) -> None:
    """Requests whose processes are suspended, so that all of this is certain to happen in this order."""
    limits = ("--concurrent", "1", "--queue", "1", "--queue-seconds", "3", "--seconds", "5")
    with (
        running(checkpoint, tmp_path / "home", *limits) as server,
        ThreadPoolExecutor(4) as pool,
        server.client() as client,
    ):
        nursery, *workers = server.descendants()
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)

        def ask() -> httpx.Response:
            return client.post("/v1/predict", files=form(clip))

        slow = pool.submit(ask)
        wait_until(lambda: "fixformer_running 1.0" in client.get("/metrics").text, "the first to run")
        waiting = pool.submit(ask)
        wait_until(lambda: "fixformer_places 2.0" in client.get("/metrics").text, "the second to wait")
        refused = ask()
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "busy")
        assert int(refused.headers["retry-after"]) >= 1
        assert waiting.result().status_code == 503
        assert int(waiting.result().headers["retry-after"]) >= 1
        assert (slow.result().status_code, slow.result().json()["error"]["code"]) == (504, "too_slow")
        wait_until(lambda: not uploads(server), "the uploads to be deleted", 10)
        wait_until(lambda: not set(workers) & set(server.descendants()), "the suspended process to be killed", 10)

        # a client that goes away takes its process with it
        (held,) = held_workers(server, nursery)
        os.kill(held, signal.SIGSTOP)
        with connected(server) as peer:
            peer.sendall(HEAD + f"Content-Type: video/webm\r\nContent-Length: {len(clip)}\r\n\r\n".encode() + clip)
            wait_until(lambda: "fixformer_running 1.0" in client.get("/metrics").text, "it to run")
        wait_until(lambda: "fixformer_running 0.0" in client.get("/metrics").text, "it to be stopped")
        wait_until(lambda: not is_alive(held), "its process to end", 10)

        # the model's process dies: it is started again
        os.kill(nursery, signal.SIGKILL)
        wait_until(lambda: client.get("/ready").status_code == 503, "the loss to be noticed")
        assert ask().status_code == 503
        assert "started again" in server.log.read_text()
        wait_until(lambda: client.get("/ready").status_code == 200, "the model to be loaded again")

        # SIGTERM lets a request finish
        (held,) = held_workers(server, server.descendants()[0])
        os.kill(held, signal.SIGSTOP)
        last = pool.submit(ask)
        wait_until(lambda: "fixformer_running 1.0" in client.get("/metrics").text, "the last to run")
        everything = server.descendants()
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: refuses_connections(server), "the listener to be closed")
        os.kill(held, signal.SIGCONT)
        assert last.result().status_code == 200
        server.process.wait(20)
    wait_until(lambda: not any(map(is_alive, everything)), "all processes to end", 10)
    assert [path.name for path in server.log.parent.iterdir()] == ["log.txt"]
    assert "Traceback" not in server.log.read_text()


def held_workers(server: Running, nursery: int) -> list[int]:
    wait_until(lambda: len(server.descendants()) == 2, "one process to be ready")
    return [pid for pid in server.descendants() if pid != nursery]


def refuses_connections(server: Running) -> bool:
    try:
        with connected(server):
            return False
    except ConnectionRefusedError:
        return True


def is_alive(pid: int) -> bool:
    """Not a zombie, which only waits for somebody to ask."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_killed_server_leaves_nothing(checkpoint: Path, clip: bytes, tmp_path: Path) -> None:
    with running(checkpoint, tmp_path / "home") as server, connected(server) as peer:
        peer.sendall(HEAD + b"Content-Type: video/webm\r\nContent-Length: 100000\r\n\r\n" + clip[:500])
        wait_until(lambda: bool(uploads(server)), "the upload to begin")
        everything = server.descendants()
        server.process.kill()
        wait_until(lambda: not any(map(is_alive, everything)), "all processes to end", 10)
        wait_until(lambda: os.listdir(server.log.parent) == ["log.txt"], "the uploads to be deleted", 10)
