"""The page in a real browser: what a person sees after each thing they may do."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Route, expect, sync_playwright
from running_server import Running

from videos import encode, moving_square

pytestmark = pytest.mark.slow
FAKE_CAMERA = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
PATIENCE = 30_000  # milliseconds, for a machine with other things to do


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", *FAKE_CAMERA])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, server: Running) -> Iterator[Page]:
    """The page, with the model named; complaints of the browser, such as of a refused script, are errors."""
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    page.set_default_timeout(PATIENCE)
    yield from _opened(page, server)


def _opened(page: Page, server: Running) -> Iterator[Page]:
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if _is_complaint(message) else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(server.address)
    expect(page.locator("#model")).to_contain_text("12 classes", timeout=PATIENCE)
    yield page
    assert not complaints
    page.close()


def _is_complaint(message: ConsoleMessage) -> bool:
    """The browser also reports every answer that is not 200, which the page tells in its own words."""
    return message.type == "error" and "the server responded with a status of" not in message.text


@pytest.fixture
def files(tmp_path: Path, clip: bytes) -> list[Path]:
    paths = [tmp_path / "one.webm", tmp_path / "<img src=x onerror=alert(1)>.webm"]
    for path in paths:
        path.write_bytes(clip)
    return paths


def test_two_uploads_at_once_their_answers_timeline_and_overlay(page: Page, files: list[Path]) -> None:
    page.set_input_files("#file", files)
    cards = page.locator(".card")
    expect(cards).to_have_count(2)
    for card in cards.all():
        expect(card.locator(".bars li")).to_have_count(5, timeout=PATIENCE)
    assert sorted(cards.locator("h3").all_inner_texts()) == sorted(path.name for path in files)  # as text, not as HTML
    card = cards.filter(has_text="one.webm")
    expect(card.locator(".meta")).to_have_text("2.0 s · 160 × 120 · 24 frames/s")
    expect(card.locator(".verdict")).to_have_text(card.locator(".bars .name").first.inner_text())
    expect(card.locator(".strip img")).to_have_count(4)
    card.locator(".strip button").nth(2).click()
    assert card.locator("video").evaluate("video => video.currentTime") > 0.5

    card.get_by_role("button", name="Timeline").click()
    segments = card.locator(".track button")
    expect(segments.first).to_be_visible(timeout=PATIENCE)
    segments.last.click()
    times = card.locator("video").evaluate("video => video.currentTime")
    assert 0 < times < 2.1
    segments.first.focus()
    page.keyboard.press("Enter")  # with the keyboard: to the beginning of the segment
    page.wait_for_function("document.querySelector('.card video').currentTime < 2")

    card.get_by_role("button", name="Where it looked").click()
    overlay = card.locator(".explain .stage img").nth(1)
    expect(overlay).to_be_visible(timeout=PATIENCE)
    assert overlay.evaluate("picture => picture.decode().then(() => picture.naturalWidth)") > 0
    first = overlay.get_attribute("src")
    card.get_by_label("Frame", exact=True).focus()
    page.keyboard.press("End")
    assert overlay.get_attribute("src") != first
    card.get_by_label("Heat").focus()
    page.keyboard.press("Home")
    assert overlay.evaluate("picture => picture.style.opacity") == "0"

    card.get_by_label("Remove this result").click()
    expect(cards).to_have_count(1)


def test_what_goes_wrong_is_said_in_words(page: Page, tmp_path: Path) -> None:
    (tmp_path / "notes.mp4").write_text("these are only words\n" * 20)
    (tmp_path / "large.mp4").write_bytes(bytes(3_000_000))
    page.set_input_files("#file", [tmp_path / "notes.mp4", tmp_path / "large.mp4"])
    notes = page.locator(".card", has_text="notes.mp4").get_by_role("alert")
    expect(notes).to_contain_text("not a video", timeout=PATIENCE)
    large = page.locator(".card", has_text="large.mp4").get_by_role("alert")
    expect(large).to_have_text("It has 3 MB; this server takes up to 2 MB.")


def test_a_format_that_the_browser_cannot_play_is_shown_by_its_frames(page: Page, tmp_path: Path) -> None:
    frames = moving_square(24, 120, 160)
    (tmp_path / "old.avi").write_bytes(encode(frames, codec="mjpeg", container="avi", pixel_format="yuvj420p"))
    page.set_input_files("#file", tmp_path / "old.avi")
    still = page.get_by_role("img", name="a frame of old.avi")
    expect(still).to_be_visible(timeout=PATIENCE)
    first = still.get_attribute("src")
    page.get_by_role("button", name="Go to the frame at").last.click()
    assert still.get_attribute("src") != first


def test_a_busy_server_a_token_and_a_dropped_file(page: Page, clip: bytes) -> None:
    """The server is played by the test until it lets the request through."""
    seen: list[str | None] = []

    def play(route: Route) -> None:
        seen.append(route.request.headers.get("authorization"))
        answers = {1: (429, "busy"), 2: (401, "token")}
        if len(seen) not in answers:
            route.continue_()
            return
        status, code = answers[len(seen)]
        body = json.dumps({"error": {"code": code, "message": f"{code}."}})
        route.fulfill(status=status, body=body, headers={"Retry-After": "1"} if status == 429 else {})

    page.route("**/v1/predict*", play)
    dropped = page.evaluate_handle(
        """(text) => {
            const transfer = new DataTransfer();
            const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
            transfer.items.add(new File([bytes], "dropped.webm", { type: "video/webm" }));
            return transfer;
        }""",
        base64.b64encode(clip).decode(),
    )
    page.dispatch_event("#drop", "drop", {"dataTransfer": dropped})
    expect(page.locator(".card .step")).to_contain_text("busy", timeout=PATIENCE)
    page.get_by_label("Token", exact=True).fill("a-long-enough-token")
    page.get_by_role("button", name="Continue").click()
    expect(page.locator(".card .bars li")).to_have_count(5, timeout=PATIENCE)
    assert seen == [None, None, "Bearer a-long-enough-token"]


def test_camera(page: Page, server: Running) -> None:
    """Live answers with their lag; then a recording, which becomes a card."""
    page.get_by_role("button", name="Live camera").click()
    expect(page.locator("#camera-note")).to_contain_text("lag", timeout=PATIENCE)
    expect(page.locator("#camera-bars li")).to_have_count(3)
    with page.expect_response("**/v1/predict*", timeout=PATIENCE) as response:
        pass
    sent = json.loads(response.value.text().splitlines()[-1])["result"]
    assert 1 < sent["video"]["seconds"] < 3.5
    assert (sent["video"]["width"], sent["video"]["height"]) == (320, 240)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#camera")).to_be_hidden()

    page.get_by_role("button", name="Record").click()
    expect(page.locator("#camera-note")).to_contain_text("1 s", timeout=PATIENCE)
    page.get_by_role("button", name="Stop").click()
    card = page.locator(".card", has_text="recording.")
    expect(card.locator(".bars li")).to_have_count(5, timeout=PATIENCE)


def test_a_dark_phone(browser: Browser, server: Running, files: list[Path]) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 740}, color_scheme="dark", has_touch=True)
    for page in _opened(context.new_page(), server):
        page.set_input_files("#file", files[:1])
        expect(page.locator(".bars li")).to_have_count(5, timeout=PATIENCE)
        page.get_by_role("button", name="Timeline").tap()
        expect(page.locator(".track button").first).to_be_visible(timeout=PATIENCE)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        low = page.locator("button:visible, label.button").evaluate_all(
            "all => Math.min(...all.map(one => one.offsetHeight))"
        )
        assert low >= 40  # a finger's width
        shade = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert max(map(int, shade.removeprefix("rgb(").removesuffix(")").split(","))) < 60
    context.close()


def test_by_keyboard_and_for_a_screen_reader(page: Page, files: list[Path]) -> None:
    reached = []
    for _ in range(3):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id"))
    assert reached == ["file", "record", "live"]
    page.set_input_files("#file", files[:1])
    expect(page.locator(".bars li")).to_have_count(5, timeout=PATIENCE)
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, input, video, img:not([alt])")]
            .filter((one) => one.checkVisibility())
            .filter((one) => !(one.ariaLabel || one.textContent.trim() || one.labels?.length || one.controls))
            .map((one) => one.outerHTML)"""
    )
    assert unnamed == []
    regions = page.locator("[aria-live=polite], [role=alert]")
    assert regions.count() >= 4
    assert page.locator("h1").count() == 1
