"""Whole jobs with two inputs and with windows of every kind: killed, restored at another parallelism, in every mode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from engine.checkpoint.restore import FixedDelayRestart, NoRestart
from engine.graph.job import Job
from operators.basic import (
    CollectedResults,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessContext,
    aggregates,
)
from operators.basic.two_input_functions import KeyedBroadcastReadContext, KeyedBroadcastWriteContext
from operators.sources import CollectionSource
from operators.time import WatermarkStrategy
from operators.windows import (
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
)
from state_backends.files import MemoryFileSystem
from tests.cases import crossed
from tests.runtime.support import US, checked, every, execution, run

END_MS = 10**9
"""Later than all records: timers there fire when the inputs have ended."""

LEFT = [(number % 7, number) for number in range(60)]
RIGHT = [(number % 7, -number) for number in range(40)]
RULES = [(rule, rule * rule) for rule in range(5)]
MODES = ["aligned", "unaligned", "aligned-timeout"]


class Both(KeyedCoProcessFunction):
    """Sums each side per key and emits both sums at the end."""

    def open(self, ctx: KeyedProcessContext) -> None:
        self.sums = ctx.map_state("sums")

    def process_element1(self, value: Any, ctx: KeyedProcessContext) -> None:
        self._add("left", value, ctx)

    def process_element2(self, value: Any, ctx: KeyedProcessContext) -> None:
        self._add("right", value, ctx)

    def _add(self, side: str, value: Any, ctx: KeyedProcessContext) -> None:
        self.sums.put(side, (self.sums.get(side) or 0) + value[1])
        ctx.register_event_time_timer(END_MS)

    def on_timer(self, timestamp_ms: int, ctx: KeyedProcessContext) -> Iterable[Any]:
        return [(ctx.current_key, self.sums.entries())]


class WithRules(KeyedBroadcastProcessFunction):
    """Counts the data per key and emits the count with all rules at the end."""

    def open(self, ctx: KeyedBroadcastReadContext) -> None:
        self.count = ctx.value_state("count", 0)

    def process_element(self, value: Any, ctx: KeyedBroadcastReadContext) -> None:
        self.count.update(self.count.get() + 1)
        ctx.register_event_time_timer(END_MS)

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastWriteContext) -> None:
        ctx.broadcast_state("rules").put(*value)

    def on_timer(self, timestamp_ms: int, ctx: KeyedBroadcastReadContext) -> Iterable[Any]:
        return [(ctx.current_key, self.count.get(), ctx.broadcast_state("rules").entries())]


def key_of(record: Any) -> Any:
    return record[0]


def join_job(results: CollectedResults, parallelism: int) -> Job:
    job = Job("join", parallelism=parallelism, max_parallelism=16)
    left = job.source(CollectionSource(LEFT), name="left", parallelism=1)
    right = job.source(CollectionSource(RIGHT), name="right", parallelism=1)
    both = left.connect(right).key_by(key_of, key_of).process(Both, name="both")
    return both.collect(results, name="out", uid="out")


def broadcast_job(results: CollectedResults, parallelism: int) -> Job:
    job = Job("rules", parallelism=parallelism, max_parallelism=16)
    left = job.source(CollectionSource(LEFT), name="left", parallelism=1)
    right = job.source(CollectionSource(RULES), name="right", parallelism=1)
    both = left.key_by(key_of).connect(right.broadcast("rules")).process(WithRules, name="both")
    return both.collect(results, name="out", uid="out")


def windows_job(results: CollectedResults, parallelism: int) -> Job:
    """Sessions, sliding windows and count windows over one keyed stream, and windows over all of it."""
    job = Job("windows", parallelism=parallelism, max_parallelism=16)
    in_order = WatermarkStrategy.for_bounded_out_of_orderness(20, lambda record: record[1] * 5)
    readings = job.source(CollectionSource(LEFT), name="left", parallelism=1, watermarks=in_order)
    keyed = readings.key_by(key_of)
    total = aggregates.total(lambda record: record[1])
    streams = [
        keyed.window(EventTimeSessionWindows.with_gap(40)).aggregate(total, name="both"),
        keyed.window(SlidingEventTimeWindows.of(50, 25)).aggregate(total, name="sliding"),
        keyed.window(GlobalWindows.create())
        .trigger(PurgingTrigger.of(CountTrigger.of(3)))
        .aggregate(total, name="counted"),
        readings.window_all(EventTimeSessionWindows.with_gap(7)).aggregate(total, name="all"),
    ]
    return streams[0].union(*streams[1:]).collect(results, name="out", uid="out")


def sums_of(records: Iterable[Any], key: Any) -> int:
    return sum(value for record_key, value in records if record_key == key)


def expected(job: Callable[..., Job]) -> Counter[Any]:
    """The expected result, computed without the engine where that is short, else by an undisturbed run."""
    if job is join_job:
        return Counter(
            (key, (("left", sums_of(LEFT, key)), ("right", sums_of(RIGHT, key)))) for key in range(7)
        )
    if job is broadcast_job:
        counts = Counter(key for key, _ in LEFT)
        return Counter((key, count, tuple(RULES)) for key, count in counts.items())
    results = CollectedResults()
    run(job(results, 1))
    assert len(results.records) > 60
    return found(results)


def found(results: CollectedResults) -> Counter[Any]:
    return Counter(
        tuple(tuple(field) if isinstance(field, list) else field for field in record) for record in results.records
    )


JOBS = [join_job, broadcast_job, windows_job]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("job", JOBS)
def test_killed_again_and_again_every_record_counts_once(job: Callable[..., Job], mode: str) -> None:
    """Kills of either source and of the operator at many instants change nothing of what is committed."""
    wanted = expected(job)
    for number, target in enumerate(["left", "right" if job is not windows_job else "sliding", "both[0]", "both"]):
        results = CollectedResults()
        made = execution(
            job(results, 2),
            kills=[(target, (number * 5 + 7) * US), (target, (number * 3 + 31) * US)],
            seed=f"{target} {number}",
            mode=mode,
            batch_size=2,
            checkpoint_interval=every(ns=6 * US),
            restart=FixedDelayRestart(None, 1 * US),
        )
        made.run().raise_on_failure()

        assert found(results) == wanted, (target, number)


@crossed(quick=3, mode=MODES, parallelism=[(1, 3), (3, 2), (2, 5)], job=JOBS)
def test_restored_at_another_parallelism_every_record_counts_once(
    job: Callable[..., Job], parallelism: tuple[int, int], mode: str
) -> None:
    """A job that died goes on from its checkpoint with more or fewer subtasks: state, timers and broadcast state."""
    (before, after), files = parallelism, MemoryFileSystem()
    settings: dict[str, Any] = {
        "mode": mode,
        "batch_size": 2,
        "checkpoint_interval": every(ns=6 * US),
        "file_system": files,
    }
    results = CollectedResults()
    died = execution(job(results, before), kills=[("both", 45 * US)], restart=NoRestart(), **settings).run()
    assert died.state == "failed"
    assert died.checkpoints.completed > 0

    checked(execution(job(results, after), restore=True, incarnation=2, **settings)).raise_on_failure()

    assert found(results) == expected(job)
