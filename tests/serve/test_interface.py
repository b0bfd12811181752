"""The application without a process for its model: who is answered, with which headers, and what is refused at once."""

import asyncio
import socket
import time
from pathlib import Path

import pytest
import uvicorn
from starlette.testclient import TestClient

from fixformer.cli.app import main
from fixformer.errors import UserError
from fixformer.serve.data_urls import png_url
from fixformer.serve.interface import make_app
from fixformer.serve.messages import pack, receive, send
from fixformer.serve.patience import protocol
from fixformer.serve.server import find_token, listen
from fixformer.serve.settings import ServeSettings
from fixformer.serve.uploads import shown_name

TOKEN = "a-long-enough-token"


def client(token: str = "", base: str = "http://localhost:8000", **settings: object) -> TestClient:
    return TestClient(make_app(ServeSettings(**settings), token), base_url=base)  # type: ignore[arg-type]


def test_every_answer_has_strict_headers() -> None:
    for path in ("/", "/health", "/nowhere", "/page/main.js"):
        headers = client().get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


def test_the_page_loads_nothing_from_elsewhere_and_makes_no_html_of_text() -> None:
    page = client().get("/").text
    names = {name.strip('"') for name in page.replace(">", " ").split() if name.startswith(('src="', 'href="'))}
    assert names
    assert all(name.partition('"')[2].startswith("/") for name in names), names
    for name in Path(make_app.__code__.co_filename).with_name("page").iterdir():
        text = name.read_text(encoding="utf-8")
        assert not any(
            word in text for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(")
        )
        assert client().get("/" if name.name == "index.html" else f"/page/{name.name}").status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "", "127.0.0.1.evil.example"])
def test_a_private_server_is_not_reached_under_another_name(host: str) -> None:
    """A foreign page could have its own name point to 127.0.0.1."""
    answer = client().get("/v1/model", headers={"Host": host})
    assert (answer.status_code, answer.json()["error"]["code"]) == (421, "host")


def test_further_names_can_be_allowed() -> None:
    allowed = client(allow_hosts=("video.example",))
    assert allowed.get("/health", headers={"Host": "video.example"}).status_code == 200
    assert allowed.get("/health", headers={"Host": "[::1]:8000"}).status_code == 200
    assert allowed.get("/health", headers={"Host": "other.example"}).status_code == 421
    public = client(TOKEN, host="0.0.0.0")
    assert public.get("/health", headers={"Host": "any.example"}).status_code == 200
    named = client(TOKEN, host="0.0.0.0", allow_hosts=("video.example",))
    assert named.get("/health", headers={"Host": "any.example"}).status_code == 421


def test_pages_of_other_sites_are_not_answered() -> None:
    assert client().get("/health", headers={"Origin": "http://localhost:8000"}).status_code == 200
    for origin in ("https://evil.example", "null", "http://localhost:8001"):
        assert client().post("/v1/predict", headers={"Origin": origin}).status_code == 403


def test_a_token_is_asked_for_where_there_is_one() -> None:
    guarded = client(TOKEN, host="0.0.0.0")
    for path in ("/v1/model", "/metrics"):
        answer = guarded.get(path)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        for wrong in ("Bearer wrong", f"Basic {TOKEN}", TOKEN, "Bearer \xfc"):
            assert guarded.get(path, headers={"Authorization": wrong.encode("latin-1")}).status_code == 401
    assert guarded.post("/v1/predict", files={"file": b"x"}).status_code == 401
    assert guarded.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert guarded.get("/health").status_code == guarded.get("/").status_code == 200
    assert guarded.get("/openapi.json").json()["paths"]["/v1/predict"]["post"]["security"]


def test_a_server_that_others_can_reach_always_has_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FIXFORMER_TOKEN", raising=False)
    for private in ("127.0.0.1", "127.5.0.1", "::1", "localhost"):
        assert find_token(ServeSettings(host=private), None) == ""
    for settings in (ServeSettings(host="0.0.0.0"), ServeSettings(host="box.lan"), ServeSettings(allow_hosts=("x",))):
        made = find_token(settings, None)
        assert len(made) >= 32
        assert made in capsys.readouterr().err
    monkeypatch.setenv("FIXFORMER_TOKEN", TOKEN)
    assert find_token(ServeSettings(), None) == TOKEN
    (tmp_path / "token").write_text("another-long-enough-token\n")
    assert find_token(ServeSettings(), str(tmp_path / "token")) == "another-long-enough-token"
    (tmp_path / "short").write_text("short")
    with pytest.raises(UserError, match="at least 16"):
        find_token(ServeSettings(), str(tmp_path / "short"))


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--port", "70000"], ["port=70000", "65535"]),
        (["--upload-mb", "0"], ["upload_mb=0", "more than 0"]),
        (["--concurrent", "0"], ["concurrent=0"]),
        (["--host", "256.256.256.256"], ["cannot listen", "256.256.256.256"]),
        (["--token-file", "absent"], ["absent", "No such file"]),
    ],
)
def test_wrong_settings_are_one_sentence(
    words: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["serve", "run", *words])
    shown = capsys.readouterr().err
    assert (stopped.value.code, shown.count("\n")) == (1, 1)
    assert all(part in shown for part in parts), shown


def test_a_port_that_is_taken_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SystemExit):
        main(["serve", "run", "--port", str(taken.getsockname()[1])])
    assert "choose another" in capsys.readouterr().err


@pytest.mark.slow
def test_a_wrong_checkpoint_ends_the_server_with_one_sentence(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["serve", str(tmp_path / "nothing"), "--port", "0"])
    shown = capfd.readouterr().err.splitlines()
    assert stopped.value.code == 1
    assert len(shown) == 2
    assert "nothing does not exist" in shown[1]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("clip.mp4", "clip.mp4"),
        ("../../etc/passwd", "passwd"),
        ("C:\\videos\\clip.mp4", "clip.mp4"),
        ("", "video"),
        ("..", ".."),
        ("a\x1b[31m\u202e.mp4", "a\\x1b[31m\\u202e.mp4"),
        ("x" * 1000, "x" * 200),
    ],
)
def test_names_of_files_are_shown_without_directories(name: str, shown: str) -> None:
    assert shown_name(name) == shown


def test_messages_arrive_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            send(theirs, {"text": "é" * 10})
            assert receive(ours) == {"text": "é" * 10}
            theirs.sendall(pack({"cut": "off"})[:-1])
        assert receive(ours) is None
    monkeypatch.setattr("fixformer.serve.messages.MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="bytes"):
        pack({"text": "x" * 1000})


def test_whoever_connects_before_the_server_runs_waits() -> None:
    """The address is announced when the port is taken, a moment before anything answers."""
    with listen(ServeSettings(port=0)) as listener, socket.create_connection(listener.getsockname(), timeout=5) as peer:
        assert peer.getpeername() == listener.getsockname()


def test_a_client_that_does_not_read_is_dropped() -> None:
    """It asks for the page again and again, and takes none of the answers."""

    async def talk() -> bool:
        config = uvicorn.Config(make_app(ServeSettings()), http=protocol(0.3), lifespan="off", log_level="critical")
        server = uvicorn.Server(config)
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            peer.connect(listener.getsockname())
            peer.setblocking(False)
            request = b"GET /page/style.css HTTP/1.1\r\nHost: localhost\r\n\r\n"
            is_dropped = False
            end = time.monotonic() + 20
            while time.monotonic() < end:
                try:
                    await asyncio.wait_for(asyncio.get_running_loop().sock_sendall(peer, request * 200), 0.05)
                except TimeoutError:
                    continue  # the server does not read more requests before its answers are read
                except (ConnectionResetError, BrokenPipeError):
                    is_dropped = True
                    break
            server.should_exit = True
            await serving
        return is_dropped

    assert asyncio.run(talk())


def test_an_overlay_must_be_a_picture() -> None:
    assert png_url(b"\x89PNG...").startswith("data:image/png;base64,")
    with pytest.raises(UserError, match="PNG"):
        png_url(b"<svg onload=alert(1)>")
