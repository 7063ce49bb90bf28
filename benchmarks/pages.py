"""The cost of a page: recording a run beside the same run without a recorder, and opening the page in Chromium.

The job has two sources, two maps, two counters of 20 keys each and a sink; every record is a batch of its own, and
checkpoints come every 50 records. The two runs have the same trace digest. A page is opened from a file with the
network off. It is open when its script says so and two frames have been drawn. A step is what the script does for it
and the layout after it, over steps in all parts of the run. Without Chromium, or without Playwright, these lines are
left out.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measure import Result, below, interleaved, now
from engine.explore.run import Subject
from engine.graph.job import Job
from engine.observe.trace import TraceDigest
from engine.runtime.config import CheckpointInterval, RunConfig
from engine.runtime.execution import Execution
from engine.view import Recorder, RunFace, run_page
from operators.log.connectors import LogSink
from operators.sources import CollectionSource

_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
_OPENS, _STEPS = 5, 60
_EVENTS_OF_A_RECORD = 11

_DRAWN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
_STEP = """(step) => {
  const begun = performance.now();
  weir.go(step);
  document.body.getBoundingClientRect();
  return performance.now() - begun;
}"""


def measure(quick: bool) -> list[Result]:
    """Recording, then opening."""
    records, rounds = (100, 3) if quick else (400, 7)
    plain, recorded = partial(_run, records), partial(_recorded_run, records)
    assert plain()[1] == recorded()[1], "a recorded run is the same run"
    paired = interleaved(lambda: plain()[0], {"recorded": lambda: recorded()[0]}, rounds)["recorded"]
    ratios = tuple(1 / speed for speed in paired.speed_ratios)
    recording = Result("pages, a recorded run", "× time of the run", ratios, None, {"records": 2 * records})
    return [recording, *_opening((2_000,) if quick else (20_000, 50_000))]


def _job(records: int) -> Job:
    job = Job("numbers", max_parallelism=16)
    sources = [
        job.source(CollectionSource(list(range(records))), name=name)
        .map(lambda number: (number % 40, number), name=f"{name}-pairs", chain=False)
        for name in ("left", "right")
    ]  # fmt: skip
    pairs = sources[0].union(sources[1]).key_by(lambda pair: pair[0])
    sums = pairs.reduce(lambda a, b: (a[0], a[1] + b[1]), name="sum", parallelism=2)
    sums.sink(LogSink("sums"), name="out", chain=False, parallelism=1)
    return job


_CONFIG = RunConfig(batch_size=1, checkpoint_interval=CheckpointInterval.parse("50rec"))


def _run(records: int) -> tuple[float, str]:
    """Seconds of the run, and its digest."""
    digest = TraceDigest()
    execution = Execution(_job(records).plan(), _CONFIG, instruments=[digest])
    start = now()
    execution.run()
    return now() - start, digest.hexdigest()


def _recorded_run(records: int) -> tuple[float, str]:
    digest = TraceDigest()
    recorder, execution = _recorded(records, digest)
    start = now()
    recorder.run(execution)
    return now() - start, digest.hexdigest()


def _recorded(records: int, digest: TraceDigest) -> tuple[Recorder, Execution]:
    recorder = Recorder(Subject(lambda _: _job(records), label="numbers"))
    plan = recorder.of_run(_job(records).plan(), "/nowhere")
    return recorder, Execution(plan, _CONFIG, instruments=[recorder.observe, digest])


def _opening(sizes: tuple[int, ...]) -> Iterator[Result]:
    chromium = next(filter(None, map(shutil.which, _CHROMIUM)), None)
    if chromium is None or find_spec("playwright") is None:
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, TemporaryDirectory() as place:
        browser = playwright.chromium.launch(executable_path=chromium, args=_FLAGS)
        for size in sizes:
            recorder, execution = _recorded(round(size / 2 / _EVENTS_OF_A_RECORD), TraceDigest())
            recorder.run(execution)
            path = Path(place) / f"{size}.html"
            text = run_page("numbers", recorder, RunFace("run", "weir run numbers.py --fault '@FAULT@'"))
            path.write_text(text, "utf-8")
            details = {"events": recorder.entries, "page_bytes": len(text.encode())}
            opened = [_open(browser, path) for _ in range(_OPENS)]
            seconds = tuple(one for one, _ in opened)
            name = f"pages, about {size:,} events"
            yield Result(f"{name}, opened", "s", seconds, below(1) if size <= 20_000 else None, details)
            yield Result(f"{name}, a step", "ms", tuple(one for _, steps in opened for one in steps), below(50))
        browser.close()


def _open(browser: Any, path: Path) -> tuple[float, list[float]]:
    """Seconds until the page is drawn, and the milliseconds of steps in each of three parts of the run: medians."""
    window = browser.new_context(viewport={"width": 1300, "height": 800}, offline=True)
    page = window.new_page()
    # The browser is another process, so its time is that of the wall clock.
    start = time.perf_counter()
    page.goto(f"file://{path}")
    page.wait_for_selector("html[data-ready]")
    page.evaluate(_DRAWN)
    seconds = time.perf_counter() - start
    last = page.evaluate("weir.rows.length") - 1
    parts = [range(first, first + _STEPS) for first in (0, last // 2, last - _STEPS)]
    steps = [median(page.evaluate(_STEP, step) for step in part) for part in parts]
    window.close()
    return seconds, steps
