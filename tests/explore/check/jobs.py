"""Jobs of a few records, small enough to try everything."""

from __future__ import annotations

import operator
from typing import Any

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError
from engine.elements.operator import Operator
from engine.explore.cases import FIFO, Case, Setting
from engine.explore.check import CheckOrder, Ending
from engine.explore.check.search import Search
from engine.explore.run import Subject
from engine.graph.job import Job
from operators.basic import CollectedResults, SinkOperator
from operators.sources import CollectionSource
from operators.time import WatermarkStrategy
from operators.windows import TumblingEventTimeWindows


def calm_case(checkpoints: int = 0, **settings: Setting) -> Case:
    """Everything at one instant, record by record, and checkpoints that begin at any moment."""
    config: dict[str, Setting] = {"batch_size": 1, "cost.source_record_ns": 0, **settings}
    return Case(scheduler=FIFO, config=config, checkpoints=(0,) * checkpoints)


def straight(records: int = 1, *, transactional: bool = True) -> Subject:
    """One source, one sink that shows rows when a checkpoint completes, or at once."""

    def build(_parallelism: int | None) -> Job:
        job = Job("straight", max_parallelism=2)
        numbers = job.source(CollectionSource(list(range(records))), name="numbers", uid="numbers", parallelism=1)
        numbers.collect(
            CollectedResults(transactional=transactional), name="out", uid="out", parallelism=1, chain=False
        )
        return job

    return Subject(build, label="straight")


def counting(left: int = 1, right: int = 1, *, parallelism: int = 2) -> Subject:
    """Two sources, a running count per key (``a`` for even numbers, on the first subtask, ``b`` for odd ones, on the
    second), one sink."""

    def build(_parallelism: int | None) -> Job:
        job = Job("counting", max_parallelism=8)
        ones = job.source(CollectionSource(list(range(left))), name="left", uid="left", parallelism=1)
        others = job.source(CollectionSource(list(range(right))), name="right", uid="right", parallelism=1)
        pairs = ones.union(others).key_by(lambda number: "ab"[number % 2], value=lambda number: ("ab"[number % 2], 1))
        counts = pairs.reduce(
            lambda total, one: (total[0], total[1] + one[1]), name="count", uid="count", parallelism=parallelism
        )
        counts.collect(CollectedResults(), name="out", uid="out", parallelism=1, chain=False)
        return job

    return Subject(build, label="counting")


def windowed() -> Subject:
    """One source, sums of the records of a key in windows of 10 ms, one sink."""

    def build(_parallelism: int | None) -> Job:
        job = Job("windowed", max_parallelism=2)
        times = WatermarkStrategy.for_monotonous_timestamps(lambda number: number * 5)
        source = CollectionSource([1, 2, 3])
        numbers = job.source(source, watermarks=times, name="numbers", uid="numbers", parallelism=1)
        windows = numbers.key_by(lambda number: "a").window(TumblingEventTimeWindows.of(10))
        windows.reduce(operator.add).map(lambda row: row[3]).collect(
            CollectedResults(), name="out", uid="out", parallelism=1
        )
        return job

    return Subject(build, label="windowed")


def merging() -> Subject:
    """Rows that say in which order the records of two sources came."""

    def build(_parallelism: int | None) -> Job:
        job = Job("merging", max_parallelism=2)
        one = job.source(CollectionSource(["a"]), name="left", uid="left", parallelism=1)
        other = job.source(CollectionSource(["b"]), name="right", uid="right", parallelism=1)
        keyed = one.union(other).key_by(lambda _letter: 0)
        keyed.reduce(lambda seen, letter: seen + letter, name="seen", uid="seen", parallelism=1).collect(
            CollectedResults(), name="out", uid="out", parallelism=1, chain=False
        )
        return job

    return Subject(build, label="merging")


class HastySink:
    """Shows rows as soon as a checkpoint begins: the mistake of committing on the barrier."""

    name = "hasty"

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def create_operator(self) -> Operator:
        """See :class:`operators.basic.simple_sinks.Sink`."""
        return _Hasty(self)

    def fresh(self) -> HastySink:
        return HastySink()

    def committed_rows(self) -> list[str]:
        return [repr(row) for row in self.rows]


class _Hasty(SinkOperator):
    def __init__(self, sink: HastySink) -> None:
        self._sink = sink
        self._waiting: list[Any] = []

    def process_batch(self, batch: Batch) -> None:
        self._waiting.extend(batch.values)

    def snapshot_state(self, checkpoint_id: int) -> None:
        self._sink.rows.extend(self._waiting)
        self._waiting = []

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Too late to do anything."""

    def fingerprint(self) -> object:
        return tuple(self._waiting)


def hasty() -> Subject:
    """One record, into the sink with the mistake."""

    def build(_parallelism: int | None) -> Job:
        job = Job("hasty", max_parallelism=2)
        numbers = job.source(CollectionSource([0]), name="numbers", uid="numbers", parallelism=1)
        numbers.sink(HastySink(), name="out", uid="out", parallelism=1, chain=False)
        return job

    return Subject(build, label="hasty")


class _FailsOnceRestored(Operator):
    """Hands records on; an attempt that starts from a checkpoint fails, and no restart can help."""

    def initialize_state(self) -> None:
        if self.context.restored_checkpoint_id() is not None:
            raise ConfigurationError("restored on purpose")

    def process_batch(self, batch: Batch) -> None:
        self.output.emit(batch)


def failing_once_restored(*, transactional: bool) -> Subject:
    """The same job with an operator that cannot be restored before its sink."""

    def build(_parallelism: int | None) -> Job:
        job = Job("failing-once-restored", max_parallelism=2)
        numbers = job.source(CollectionSource([0]), name="numbers", uid="numbers", parallelism=1)
        numbers.via(_FailsOnceRestored, name="through", uid="through").collect(
            CollectedResults(transactional=transactional), name="out", uid="out", parallelism=1, chain=False
        )
        return job

    return Subject(build, label="failing-once-restored")


def outcomes(subject: Subject, order: CheckOrder) -> tuple[set[tuple[str, object, bool]], Search]:
    """Every ending there is: state, what readers see, and whether a fault was needed."""
    search = Search(subject, order)
    found: list[Ending] = list(search.endings())
    return {(one.state, one.committed, one.faults > 0) for one in found}, search
