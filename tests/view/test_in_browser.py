"""The page in a real browser, with the network off."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import CollectionSource, Job
from engine.view import RunFace, run_page, watch
from operators.log.connectors import LogSink
from tests.view.recorded import recorded

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]

STATE = "JSON.stringify([weir.at, [...weir.runs[0].values].sort(), document.querySelector('.now').textContent])"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("chromium is missing; .ci/run installs it")
        pytest.skip("needs chromium (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


class Opened:
    """One page in one window. ``problems``: what the console said, and every request beside the file itself."""

    def __init__(self, browser: Any, path: Path, width: int, theme: str) -> None:
        self.problems: list[str] = []
        window = browser.new_context(viewport={"width": width, "height": 800}, offline=True, color_scheme=theme)
        self.page = window.new_page()
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self._asked(request.url))
        self.page.goto(f"file://{path}")
        self.page.wait_for_selector("html[data-ready]")

    def _asked(self, url: str) -> None:
        if not url.startswith(("file:", "blob:", "data:")):
            self.problems.append(url)

    def step(self) -> int:
        return int(self.page.evaluate("weir.at"))

    def overflow(self) -> int:
        return int(self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "run.html"
    recorder, _ = recorded(None, "crash:count[0]@after:ack.send#2")
    path.write_text(run_page("counting", recorder, RunFace("run", crash="weir run x --fault @FAULT@")), "utf-8")
    return path


def test_stepping_by_keys(browser: Any, crashed: Path) -> None:
    """The page opens at the crash without an error; keys go forward and back, and state follows both ways."""
    opened = Opened(browser, crashed, 1300, "light")
    page = opened.page

    assert "dies" in page.inner_text(".now")
    page.keyboard.press("Home")
    assert opened.step() == 0
    states = []
    for _ in range(12):
        states.append(page.evaluate(STATE))
        page.keyboard.press("ArrowRight")
    for state in reversed(states):
        page.keyboard.press("ArrowLeft")
        assert page.evaluate(STATE) == state
    page.keyboard.press("End")
    assert "the job is finished" in page.inner_text(".now")
    assert page.locator("svg path.cut").count() > 0
    assert opened.problems == []


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 800, 1300])
def test_nothing_is_cut_off(browser: Any, crashed: Path, width: int, theme: str) -> None:
    """At each width and in both themes the page is as wide as the window, and nothing complains."""
    opened = Opened(browser, crashed, width, theme)

    assert opened.overflow() <= 0
    assert opened.page.evaluate("document.documentElement.dataset.theme") == theme
    assert opened.problems == []


HOSTILE = ["</script><script>document.title='broken'</script>", "<img src=x onerror=alert(1)>", "\u202egnirts"]


@pytest.mark.slow
def test_hostile_records_stay_text(browser: Any, tmp_path: Path) -> None:
    """Markup, marks of direction and huge values in records are text, and short; nothing of them acts."""
    job = Job("<b>hostile", max_parallelism=8)
    records = CollectionSource([*HOSTILE, "x" * 10_000_000])
    job.source(records, name="<i>in</i>").sink(LogSink("out"), name="out", chain=False)
    path = tmp_path / "hostile.html"
    watch(job, batch_size=1).save(str(path))

    opened = Opened(browser, path, 800, "light")
    opened.page.keyboard.press("End")

    assert path.stat().st_size < 1_000_000
    assert opened.page.title() == "<b>hostile: mode aligned"
    assert opened.page.locator("main img, main script, main i").count() == 0
    assert "\u202e" not in opened.page.content()
    assert opened.overflow() <= 0
    assert opened.problems == []
