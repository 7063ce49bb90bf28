"""The jobs that mutants are searched in: each small, each with what one kind of mistake needs to show."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from engine.explore.run import Subject
from engine.graph.job import Job
from engine.graph.stream import Stream
from operators.basic import CollectedResults
from operators.log.connectors.log_sink import LogSink
from operators.sources import SequenceSource
from operators.time import WatermarkStrategy
from operators.windows import TumblingEventTimeWindows
from tests.explore.search.sink_deaths import subject_of

RECORDS, KEYS = 40, 5


def _counts(job: Job, parallelism: int | None, records: int = RECORDS) -> Stream:
    """Two sources, counts in two subtasks."""
    numbers = job.source(SequenceSource(0, records, splits=2), name="numbers", parallelism=2)
    pairs = numbers.key_by(lambda number: number % KEYS, value=lambda number: (number % KEYS, 1))
    counted = pairs.reduce(lambda a, b: (a[0], a[1] + b[1]), name="count", parallelism=parallelism or 2)
    return counted.rebalance()


def _counting(parallelism: int | None, records: int = RECORDS) -> Job:
    job = Job("counting", max_parallelism=8)
    _counts(job, parallelism, records).collect(CollectedResults(), name="out", parallelism=1)
    return job


def counting() -> Subject:
    """Two sources, counts in two subtasks, a transactional sink."""
    return Subject(_counting, label="counting")


def _logged(parallelism: int | None) -> Job:
    job = Job("logged", max_parallelism=8)
    _counts(job, parallelism).sink(LogSink("out"), name="out", parallelism=1)
    return job


def logged() -> Subject:
    """The same counts, written to an external log in transactions."""
    return Subject(_logged, label="logged")


def writing_to(sink: str) -> Callable[[], Subject]:
    return partial(subject_of, sink, 48)


def _spread(parallelism: int | None) -> Job:
    """Records spread by hand over subtasks that pass them on."""
    job = Job("spread", max_parallelism=8)
    numbers = job.source(SequenceSource(0, RECORDS, splits=2), name="numbers", parallelism=2)
    spread = numbers.partition_custom(lambda number, channels: number % channels)
    passed = spread.map(lambda number: number, name="pass", parallelism=parallelism or 3)
    passed.rebalance().collect(CollectedResults(), name="out", parallelism=1)
    return job


def spread() -> Subject:
    """Records spread by hand over subtasks that pass them on."""
    return Subject(_spread, label="spread")


def _windowed(parallelism: int | None) -> Job:
    """Sums per key in event-time windows; a number is its own event time, and late ones are dropped."""
    job = Job("windowed", max_parallelism=8)
    by_number = WatermarkStrategy.for_monotonous_timestamps(lambda number: number).with_interval_ns(1_000)
    numbers = job.source(SequenceSource(0, RECORDS), name="numbers", watermarks=by_number)
    windows = numbers.key_by(lambda number: number % KEYS).window(TumblingEventTimeWindows.of(10))
    counted = windows.reduce(lambda a, b: a + b, name="count", parallelism=parallelism or 2)
    counted.rebalance().collect(CollectedResults(), name="out", parallelism=1)
    return job


def windowed() -> Subject:
    """Sums per key in event-time windows."""
    return Subject(_windowed, label="windowed")
