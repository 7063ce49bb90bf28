"""Jobs, healthy views and forged events for the tests of this directory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from engine.explore.cases import Case, Setting
from engine.explore.invariants import invariants_for
from engine.explore.run import CaseView, FinishedCase, Invariant, Subject, run_case
from engine.graph.job import Job
from engine.observe import trace_events
from operators.basic import CollectedResults, CollectSink
from operators.files.sinks import FileSink
from operators.log.connectors.log_sink import LogSink
from operators.sources import SequenceSource
from operators.time import WatermarkStrategy
from operators.windows import TumblingEventTimeWindows

US = 1_000
RECORDS, KEYS = 40, 5

USUAL: Mapping[str, Setting] = {
    "checkpoint_interval": "7us",
    "batch_size": 2,
    "cost.storage_latency_ns": 900,
    "inline_state_bytes": 0,
    "cost.link_latency_ns": 300,
    "cost.record_ns": 500,
    "tolerable_failures": 1_000_000,
}


def _counts(job: Job, parallelism: int | None) -> Any:
    numbers = job.source(SequenceSource(0, RECORDS, splits=2), name="numbers", parallelism=2)
    pairs = numbers.key_by(lambda number: number % KEYS, value=lambda number: (number % KEYS, 1))
    return pairs.reduce(lambda a, b: (a[0], a[1] + b[1]), name="count", parallelism=parallelism or 2)


def _counting(parallelism: int | None) -> Job:
    job = Job("counting", max_parallelism=8)
    _counts(job, parallelism).collect(CollectedResults(), name="out", parallelism=1, chain=False)
    return job


def _plain(parallelism: int | None) -> Job:
    job = Job("plain", max_parallelism=8)
    _counts(job, parallelism).sink(CollectSink(CollectedResults(transactional=False)), name="out")
    return job


def _logged(parallelism: int | None) -> Job:
    job = Job("logged", max_parallelism=8)
    _counts(job, parallelism).sink(LogSink("rows", partitions=2), name="out", parallelism=parallelism or 2)
    return job


def _windows(parallelism: int | None) -> Job:
    job = Job("windows", max_parallelism=8)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(3, lambda number: number).with_interval_ns(5 * US)
    numbers = job.source(SequenceSource(0, 60, splits=2), watermarks=strategy, name="numbers", parallelism=2)
    keyed = numbers.map(lambda number: (f"key {number % 4}", number)).key_by(lambda pair: pair[0])
    sums = keyed.window(TumblingEventTimeWindows.of(15)).reduce(
        lambda a, b: (a[0], a[1] + b[1]), name="sum", parallelism=parallelism or 2
    )
    sums.sink(FileSink("rows"), name="files")
    return job


def _spread(parallelism: int | None) -> Job:
    job = Job("spread", max_parallelism=8)
    numbers = job.source(SequenceSource(0, RECORDS, splits=2), name="numbers", parallelism=2)
    spread = numbers.partition_custom(lambda number, channels: number % channels)
    passed = spread.map(lambda number: number, name="pass", parallelism=parallelism or 3)
    passed.collect(CollectedResults(), name="out", parallelism=1, chain=False)
    return job


_BUILDERS = {"counting": _counting, "plain": _plain, "logged": _logged, "windows": _windows, "spread": _spread}
JOBS = tuple(_BUILDERS)


@cache
def subject(name: str) -> Subject:
    """One of ``JOBS``, shared by all tests: a job and its references are made once."""
    return Subject(_BUILDERS[name], label=name)


def carried_out(
    name: str = "counting", case: Case | None = None, *, promise: str | None = None, only: tuple[str, ...] | None = None
) -> tuple[FinishedCase, list[Invariant]]:
    """A case of one of the jobs under the invariants."""
    job = subject(name)
    job.reference()
    invariants = invariants_for(promise, only=only)
    return run_case(job, case or Case(config=USUAL), invariants), invariants


def usual(_seed: str = "0", /, **settings: Setting) -> Case:
    return Case(_seed, {**USUAL, **settings})


def found(finished: FinishedCase, name: str) -> list[str]:
    return [violation.text for violation in finished.violations if violation.invariant == name]


@cache
def healthy(name: str = "counting", mode: str = "aligned") -> FinishedCase:
    finished = run_case(subject(name), usual(mode=mode))
    assert finished.is_over, finished.error
    return finished


def told(name: str, *events: Any, view: CaseView | None = None) -> Invariant:
    """The invariant of that name, after some forged events of a healthy process."""
    (invariant,) = invariants_for(only=[name])
    invariant.process_started(healthy().view if view is None else view)
    handlers = invariant.handlers()
    for event in events:
        if getattr(event, "kind", None) != trace_events.RECORDS or event.channel in invariant.records_of:
            handlers[type(event)](event)
    return invariant


def texts(invariant: Invariant) -> list[str]:
    return [violation.text for violation in invariant.violations]
