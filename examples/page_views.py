"""Page views and unique visitors per app, from a partitioned log: the cost of each protocol, and the effect of a crash
on the numbers.

Views are counted per app and per page, in two branches after one task. Offsets and counts are in one checkpoint, so
they go back together. Record acking takes no checkpoint, so a repeated view is counted again. This changes a count, but
not a set of visitors. A task that dies loses both. Run it with::

    python -m examples.page_views
    weir explore examples/page_views.py --time 60s    # the same counters, fewer views, thousands of ways to go wrong
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine import (
    Batch,
    CollectedResults,
    ExecutionResult,
    Job,
    KeyedProcessContext,
    KeyedProcessFunction,
    MessageCounter,
    MessageCounts,
    SequenceSource,
    SinkOperator,
    Stream,
    message_counts,
)
from operators.log.connectors import LogSink, LogSource
from operators.log.disk import DiskLog
from state_backends import MemoryFileSystem

US = 1_000
LOG, TOPIC, PARTITIONS, PER_PARTITION = "/logs/site", "views", 3, 400
VIEWS = PARTITIONS * PER_PARTITION
APPS = ("mail", "maps", "news", "shop")
SOURCE_US, SLOW_LINK_US, CRASH_US = 5, 300, 1_300
MODES = ("aligned", "unaligned", "at-least-once", "acking")

SCENARIO = {"checkpoint_interval": "20rec", "cost.slow_links.views[2]": 3 * US, "params": {"views": "60"}}

View = dict[str, Any]


def view(number: int) -> View:
    """The view of a number: app, page and visitor follow from it, and some visitors come often."""
    mixed = number * 2_654_435_761 >> 7
    app = APPS[mixed % 4]
    return {
        "partition": number % PARTITIONS,
        "number": number // PARTITIONS,
        "app": app,
        "page": f"/{app}/{mixed // 4 % 5}",
        "visitor": mixed // 20 % (97 if mixed % 3 else 11),
    }


def write_log(files: MemoryFileSystem) -> None:
    """Write the views into the log."""
    job = Job("site")
    views = job.source(SequenceSource(0, VIEWS), name="numbers").map(view)
    sink = LogSink(TOPIC, log=DiskLog(LOG), partitions=PARTITIONS, partition=lambda one, _: int(one["partition"]))
    views.sink(sink, name="log")
    job.run(mode="none", file_system=files)


class PerApp(KeyedProcessFunction):
    """Views and unique visitors so far."""

    def open(self, ctx: KeyedProcessContext) -> None:
        """Get the state handles."""
        self._views = ctx.value_state("views", 0)
        self._unique = ctx.value_state("unique", 0)
        self._visitors = ctx.map_state("visitors")

    def process_element(self, value: View, ctx: KeyedProcessContext) -> Iterable[Any]:
        """Count one more view."""
        self._views.update(self._views.get() + 1)
        if not self._visitors.contains(value["visitor"]):
            self._visitors.put(value["visitor"], True)
            self._unique.update(self._unique.get() + 1)
        numbers = (self._views.get(), self._unique.get())
        return [((value["partition"], value["number"]), value["app"], numbers)]


class PerPage(KeyedProcessFunction):
    """Hits so far."""

    def open(self, ctx: KeyedProcessContext) -> None:
        """Get the state handle."""
        self._hits = ctx.value_state("hits", 0)

    def process_element(self, value: View, ctx: KeyedProcessContext) -> Iterable[Any]:
        """Count one more hit."""
        self._hits.update(self._hits.get() + 1)
        return [((value["partition"], value["number"]), value["page"], self._hits.get())]


@dataclass
class Board:
    """A sink that shows the newest numbers of each app, or page, and remembers when a view first showed in them."""

    name: str
    newest: dict[str, Any] = field(default_factory=dict)
    first_ns: dict[tuple[int, int], int] = field(default_factory=dict)

    def create_operator(self) -> SinkOperator:
        """One operator of one subtask."""
        return _BoardOperator(self)


class _BoardOperator(SinkOperator):
    def __init__(self, board: Board) -> None:
        self._board = board

    def process_batch(self, batch: Batch) -> None:
        now_ns = self.context.processing_time_ns()
        for one, key, numbers in batch.values:
            self._board.newest[key] = numbers
            self._board.first_ns.setdefault(one, now_ns)


def page_views(apps: Board, pages: Board) -> Job:
    """The job; the link of one source subtask is slow."""
    job = Job("page-views", parallelism=2)
    per_app, per_page = counted(job.source(LogSource(LOG, TOPIC), name="views", parallelism=PARTITIONS))
    per_app.sink(apps, name="app-board")
    per_page.sink(pages, name="page-board")
    return job


def counted(views: Stream) -> tuple[Stream, Stream]:
    """Two streams: the numbers of apps, and the numbers of pages."""
    clean = views.rebalance().map(lambda one: one, name="clean")
    per_app = clean.key_by(lambda one: one["app"]).process(PerApp(), name="apps")
    return per_app, clean.key_by(lambda one: one["page"]).process(PerPage(), name="pages")


def job(views: str = str(VIEWS)) -> Job:
    """The same without a log, for searches: rows are ``(app, views so far)`` and ``(page, hits so far)``, the same
    in any order of the views."""
    made = Job("page-views", parallelism=2)
    numbers = made.source(SequenceSource(0, int(views), splits=PARTITIONS), name="views", parallelism=PARTITIONS)
    per_app, per_page = counted(numbers.map(view, name="view", parallelism=PARTITIONS))
    per_app.map(lambda row: (row[1], row[2][0]), name="app-row").collect(CollectedResults(), name="app-board")
    per_page.map(lambda row: (row[1], row[2]), name="page-row").collect(CollectedResults(), name="page-board")
    return made


@dataclass
class Outcome:
    """One run."""

    result: ExecutionResult
    messages: MessageCounts
    apps: Board
    pages: Board

    @property
    def sent_twice(self) -> int:
        """How many repeats of views the sources have sent."""
        return self.result.source_records - VIEWS

    def latencies_us(self) -> tuple[float, float]:
        """Mean and longest time from the moment when an undisturbed source would send a view until the numbers of its
        app show it."""
        late = [
            (at_ns - self.result.started_ns - (number + 1) * SOURCE_US * US) / US
            for (_, number), at_ns in self.apps.first_ns.items()
        ]
        return sum(late) / len(late), max(late)


def run(mode: str, files: MemoryFileSystem, kill: str | None = None) -> Outcome:
    """The job in a mode; ``kill``: a task that dies in the middle."""
    apps, pages, counter = Board("apps"), Board("pages"), MessageCounter()
    result = page_views(apps, pages).run(
        mode=mode,
        batch_size=1,
        channel_capacity=200,
        checkpoint_interval="500us",
        restart="fixed:3:50us",
        cost={
            "source_record": f"{SOURCE_US}us",
            "link_latency": "20us",
            "slow_links": {"views[2]": f"{SLOW_LINK_US}us"},
        },
        acking={"timeout": "1ms"},
        kills=[] if kill is None else [f"{kill}@{CRASH_US}us"],
        file_system=files,
        instruments=[counter],
    ).execution
    return Outcome(result, message_counts(result, counter), apps, pages)


def truth() -> tuple[dict[str, tuple[int, int]], Counter[str]]:
    """For each app the views and unique visitors, for each page the hits, by plain Python."""
    views = list(map(view, range(VIEWS)))
    visitors = {app: {one["visitor"] for one in views if one["app"] == app} for app in APPS}
    counted = Counter(one["app"] for one in views)
    return {app: (counted[app], len(visitors[app])) for app in APPS}, Counter(one["page"] for one in views)


def errors(outcome: Outcome) -> tuple[int, int, int]:
    """The error of the final numbers, summed over apps (pages): views, unique visitors, hits of pages."""
    apps, pages = truth()
    newest: Mapping[str, tuple[int, int]] = outcome.apps.newest
    wrong_views = sum(newest[app][0] - apps[app][0] for app in apps)
    wrong_uniques = sum(newest[app][1] - apps[app][1] for app in apps)
    return wrong_views, wrong_uniques, sum(outcome.pages.newest[page] - pages[page] for page in pages)


def main() -> None:
    """Print the comparison."""
    files = MemoryFileSystem()
    write_log(files)
    print(f"{VIEWS:,} views in {PARTITIONS} partitions; views[2] sends over a link that takes {SLOW_LINK_US} us.")
    print("\nUndisturbed: messages, and how long a view takes to show.\n")
    print(f"{'mode':<14}  {'data':>6}{'control':>9}{'per view':>10}{'mean':>10}{'longest':>11}   control messages")
    for mode in MODES:
        outcome = run(mode, files)
        assert errors(outcome) == (0, 0, 0)
        messages, (mean_us, longest_us) = outcome.messages, outcome.latencies_us()
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in messages.by_kind.items())
        print(
            f"{mode:<14}  {messages.data:>6,}{messages.control:>9,}{messages.control / VIEWS:>10.2f}{mean_us:>7.0f} us"
            f"{longest_us:>8.0f} us   {kinds}"
        )
    for kill in ("pages[0]", "apps[0]"):
        print(f"\n{kill} dies after {CRASH_US:,} us: by how much the final numbers are wrong.\n")
        print(f"{'mode':<14}  {'sent again':>10}{'views':>8}{'uniques':>9}{'hits':>7}{'longest':>12}")
        for mode in MODES:
            outcome = run(mode, files, kill)
            views, uniques, hits = errors(outcome)
            longest_us = outcome.latencies_us()[1]
            print(f"{mode:<14}  {outcome.sent_twice:>10}{views:>+8}{uniques:>+9}{hits:>+7}{longest_us:>9,.0f} us")


if __name__ == "__main__":
    main()
