"""The page in a real browser, with the network off."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import CollectionSource, Job
from engine.explore.run import Subject
from engine.observe.cut_oracle import CutOracle
from engine.report.checkpoint_table import checkpoint_table
from engine.runtime.config import RunConfig
from engine.view import RunFace, compare_modes, comparison_page, run_page, watch
from examples.teaching import counting
from operators.log.connectors import LogSink
from tests.view.recorded import CASE, recorded, recorded_run, wide

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]

STATE = "JSON.stringify([weir.at, [...weir.runs[0].values].sort(), document.querySelector('.now').textContent])"

HEADS = "[...document.querySelectorAll('.head text')].map((one) => one.textContent)"
DRAWN = "document.querySelectorAll('.chart *, .picture *').length"


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
    page.get_by_role("button", name="count[0] dies").click()
    assert "count[0] dies" in page.inner_text(".now")
    assert page.locator(".chapters button[aria-current=step]").count() == 1
    assert page.locator("svg path.cut").count() > 0
    assert page.locator("svg rect.task.dead").count() == 1
    assert "count[0]: is dead" in page.locator("details li").all_text_contents()
    page.keyboard.press("Home")
    page.get_by_label("Step", exact=True).focus()
    page.keyboard.press("PageDown")
    assert opened.step() == 10
    assert opened.problems == []


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of two protocols, of which one counts a record twice."""
    path = tmp_path_factory.mktemp("page") / "pair.html"
    runs = compare_modes(Subject(lambda _: counting.job(), label="counting"), CASE, ["aligned", "at-least-once"])
    path.write_text(comparison_page("counting: two modes", runs), "utf-8")
    return path


def test_two_runs_go_in_step(browser: Any, pair: Path) -> None:
    """A key moves both runs, and what differs between them at this step is marked, in output and state."""
    opened = Opened(browser, pair, 1300, "light")
    page = opened.page

    page.keyboard.press("Home")
    assert page.locator("tr.differs").count() == 0
    for key in [*["ArrowRight"] * 5, "n", "PageDown", "ArrowLeft", "p", "End"]:
        page.keyboard.press(key)
        assert page.evaluate("weir.runs.map((run) => run.step)") == page.evaluate("weir.rows[weir.at]")
    texts = page.locator("tr.differs").all_text_contents()
    assert any("('b', 2)" in text for text in texts), texts
    assert page.evaluate("getComputedStyle(document.querySelector('tr.differs td:last-child'), '::after').content")
    assert opened.problems == []


def test_words_say_what_pictures_show(browser: Any, pair: Path) -> None:
    """The run in words names the orphan, and an output of the ledger leads by keyboard to the steps of its way."""
    opened = Opened(browser, pair, 1300, "light")
    page = opened.page

    page.get_by_text("The run in words").click()
    # They are written after the click is over.
    page.locator("pre").nth(1).filter(has_text="checkpoint").wait_for()
    words = page.locator("pre").nth(1).inner_text()
    assert "◎ an orphan of checkpoint 1" in words
    assert "here the cut of checkpoint 1 ends, with 1 orphan" in words
    ledger = page.locator("section[aria-label='mode at-least-once'] table button")
    ledger.last.focus()
    page.keyboard.press("Enter")
    way = page.locator("p.now button")
    names = [text.partition(":")[0] for text in way.all_text_contents()]
    assert names[0] == "read", names
    assert names[-1] == "it is complete", names
    for number in range(len(names)):
        way.nth(number).focus()
        page.keyboard.press("Enter")
        assert f"step {opened.page.evaluate('weir.runs[1].step') + 1}" in way.nth(number).inner_text()
    assert opened.problems == []


_TEXTS_OUT_OF_SIGHT = """[...document.querySelectorAll(".chart")].flatMap((chart) => {
    const right = chart.getBoundingClientRect().right - 120;
    return [...chart.querySelectorAll(".rows text:not(.sign):not([text-anchor])")].filter(
        (one) => one.getBoundingClientRect().left > right
    ).map((one) => one.textContent);
})"""


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 800, 1300])
@pytest.mark.parametrize("kind", ["crashed", "judged", "pair"])
def test_nothing_is_cut_off(
    browser: Any, request: pytest.FixtureRequest, kind: str, width: int, theme: str
) -> None:
    """At each width and in both themes the page is as wide as the window, each row's text begins in sight, and nothing
    complains."""
    opened = Opened(browser, request.getfixturevalue(kind), width, theme)

    assert opened.overflow() <= 0
    assert opened.page.evaluate(_TEXTS_OUT_OF_SIGHT) == []
    assert opened.page.evaluate("document.documentElement.dataset.theme") == theme
    assert opened.problems == []


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with every kind of picture: the one run of ``crashed``, with its checkpoints and with endings."""
    path = tmp_path_factory.mktemp("page") / "judged.html"
    endings = {"state": "finished", "events": 9, "faults": 1, "rows": "('a', 1)"}
    listed = {"text": "2 endings, 1 wrong", "list": [endings | {"wrong": False}, endings | {"wrong": True}]}
    recorder, result = recorded_run(None, "crash:count[0]@after:ack.send#2")
    table = checkpoint_table(result.checkpoints, recorder.plan, RunConfig(mode="aligned"), CutOracle())
    path.write_text(run_page("judged", recorder, RunFace("run", None, table), endings=listed), "utf-8")
    return path


@pytest.mark.slow
def test_each_picture_can_be_saved(browser: Any, judged: Path, tmp_path: Path) -> None:
    """Above each picture are buttons; the SVG stands alone, with the colours of the page, and the PNG is an image."""
    opened = Opened(browser, judged, 1300, "light")
    page = opened.page
    buttons = page.locator("button[aria-label$=' as SVG']")
    assert buttons.count() == page.locator(".picture, .chart").count() == 7

    for number in range(buttons.count()):
        with page.expect_download() as download:
            buttons.nth(number).click()
        path = tmp_path / f"{number}.svg"
        download.value.save_as(path)
        assert "var(" not in path.read_text("utf-8")
        alone = browser.new_page()
        alone.goto(f"file://{path}")
        fills = alone.evaluate("[...document.querySelectorAll('text')].map((one) => getComputedStyle(one).fill)")
        assert "rgb(27, 36, 48)" in fills or "rgb(86, 97, 111)" in fills
        assert alone.evaluate("document.documentElement.tagName") == "svg"
        alone.close()
    with page.expect_download() as download:
        page.locator("button[aria-label$=' as PNG']").first.click()
    assert Path(download.value.path()).read_bytes().startswith(b"\x89PNG")
    assert opened.problems == []


_CUT_OFF = """[...document.querySelectorAll("main svg, main table, main pre, main p")].filter(
    (one) => one.checkVisibility() && one.getBoundingClientRect().right > innerWidth + 1
).map((one) => one.outerHTML.slice(0, 80))"""


def test_on_paper(browser: Any, judged: Path) -> None:
    """On paper the colours are light, rows around the step stand in pieces, tables are open, and nothing is cut off."""
    opened = Opened(browser, judged, 1032, "dark")
    page = opened.page
    page.emulate_media(media="print", color_scheme="dark")
    # The browser prints at once: what is made only when it is opened must be there by then.
    assert page.evaluate("dispatchEvent(new Event('beforeprint')), document.querySelectorAll('details td').length") > 50

    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(27, 36, 48)"
    assert page.locator(".paper svg").count() >= 3
    assert not page.locator(".chart").is_visible()
    assert not page.locator(".player").is_visible()
    assert page.locator(".chapters button").first.is_visible()
    assert page.locator("details:not([open])").count() == 0
    assert page.evaluate(_CUT_OFF) == []

    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator(".paper svg").count() == page.locator("details[open]").count() == 0
    # Not hundreds of empty pages, as high as all rows together.
    assert 2 <= page.pdf(prefer_css_page_size=True).count(b"/Type /Page\n") <= 30
    assert opened.problems == []


def test_a_job_without_records(browser: Any, tmp_path: Path) -> None:
    """The page of a job that reads nothing opens, says so, and can be stepped through."""
    job = Job("empty", max_parallelism=8)
    job.source(CollectionSource([]), name="nothing").sink(LogSink("out"), name="out", chain=False)
    path = tmp_path / "empty.html"
    watch(job, batch_size=1).save(str(path))

    opened = Opened(browser, path, 800, "light")
    opened.page.keyboard.press("End")

    assert "No record is in this part of the run." in opened.page.inner_text("main")
    assert opened.step() > 0
    assert opened.problems == []


def test_a_page_in_a_notebook(browser: Any, tmp_path: Path) -> None:
    """In the frame of a cell a page can be stepped through, too, and nothing complains."""
    path = tmp_path / "cell.html"
    path.write_text(f"<html data-ready><body>{watch(counting.job(), batch_size=1)._repr_html_()}", "utf-8")

    opened = Opened(browser, path, 800, "light")
    frame = opened.page.frames[1]
    frame.wait_for_selector("html[data-ready]")
    before = frame.evaluate("weir.at")
    frame.get_by_label("Step forward (right arrow)").click()
    # The address would be written a moment later.
    opened.page.wait_for_timeout(400)

    assert frame.evaluate("weir.at") == before + 1
    assert opened.problems == []


def test_many_subtasks(browser: Any, tmp_path: Path) -> None:
    """They are grouped by vertex. A vertex opens where it acts, a few subtasks at a time, and closes again."""
    path = tmp_path / "many.html"
    recorder, _ = recorded(wide(60))
    path.write_text(run_page("many", recorder, RunFace("run")), "utf-8")

    opened = Opened(browser, path, 1300, "light")
    page = opened.page

    assert page.evaluate(HEADS) == ["control", "numbers[0]", "most ×60", "out[0]"]
    acts = "weir.runs[0].actions.findIndex(([, who]) => weir.runs[0].lanes[who] === 'most[30]')"
    page.evaluate(f"weir.go(weir.runs[0].stepOfRow[{acts}])")
    page.get_by_role("button", name="Show subtasks of most").click()
    shown = page.evaluate(HEADS)
    assert shown[2:4] == ["most[0–23]", "most[24]"]
    assert shown[-3:-1] == ["most[47]", "most[48–59]"]
    assert page.locator(".picture rect.task").count() == len(shown) - 1
    page.get_by_role("button", name="Later subtasks of most").click()
    assert page.evaluate(HEADS)[2:4] == ["most[0–47]", "most[48]"]
    page.get_by_role("button", name="Show most as one column").click()
    assert len(page.evaluate(HEADS)) == 4
    assert opened.overflow() <= 0
    assert opened.problems == []


@pytest.mark.slow
def test_a_thousand_subtasks(browser: Any, tmp_path: Path) -> None:
    """They are recorded, and the page has one column for them. Opened, it draws a few of them; the table of a
    checkpoint has a row for some, their spread, and the number of the others."""
    recorder, result = recorded_run(wide(1000))
    table = checkpoint_table(result.checkpoints, recorder.plan, RunConfig(mode="aligned"), CutOracle())
    path = tmp_path / "thousand.html"
    path.write_text(run_page("thousand", recorder, RunFace("run", None, table)), "utf-8")

    opened = Opened(browser, path, 1300, "light")
    page = opened.page

    assert page.evaluate(HEADS) == ["control", "numbers[0]", "most ×1000", "out[0]"]
    assert page.evaluate(DRAWN) < 3000
    page.get_by_role("button", name="Show subtasks of most").click()
    assert len(page.evaluate(HEADS)) <= 3 + 24 + 2
    for key in ("Home", "End", "PageUp", "n", "p"):
        page.keyboard.press(key)
        assert page.evaluate(DRAWN) < 6000
    assert page.locator(".picture rect.task").count() <= 2 + 24 + 2
    page.get_by_text("by operator and subtask").first.click()
    page.wait_for_selector("details[open] tr")
    rows = page.locator("details[open] tr")
    assert rows.filter(has_text="and 936 more").count() == 1
    assert rows.filter(has_text="Maximum").count() == 1
    assert opened.overflow() <= 0
    assert opened.problems == []


def test_only_rows_in_sight_are_drawn(browser: Any, tmp_path: Path) -> None:
    """However long the run is: what is drawn stays the same at its beginning, in its middle, and at its end."""
    job = Job("long", max_parallelism=8)
    numbers = job.source(CollectionSource(list(range(150))), name="numbers")
    numbers.key_by(lambda one: one % 3).reduce(max, name="most").sink(LogSink("out"), name="out", chain=False)
    path = tmp_path / "long.html"
    path.write_text(run_page("long", recorded(job)[0], RunFace("run")), "utf-8")

    opened = Opened(browser, path, 1300, "light")
    page = opened.page
    assert page.evaluate("weir.runs[0].actions.length") > 1500
    for step in ("0", "weir.rows.length >> 1", "weir.rows.length - 1"):
        page.evaluate(f"weir.go({step})")
        assert 50 < page.evaluate(DRAWN) < 1500
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
