"""Workload W2, counts in event-time windows, and its yardstick: one bare Python loop over a dict.

Record ``i`` has the key of W1 and the event time ``i // 100`` ms. The job counts records per key in tumbling windows of
a second, with watermarks that follow the records, on real files, with five periodic checkpoints and one at the end. The
yardstick computes key and second and counts in a dict: no function is called, nothing is emitted, nothing survives.
*Sliding* is the same with windows of ten seconds that begin every second; its yardstick counts each record ten times.

*Columns* is the same on arrays. There watermarks come once per batch, because a source with watermarks does not emit
more than an interval's records at a time; results are turned into rows.

After each run the results are compared: every window of every key, and its count.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from benchmarks.keyed_sum import KEYS, scratch_directory
from benchmarks.measure import Goal, Paired, Result, Trial, at_least, interleaved, now, per_second
from engine.graph.job import Job
from engine.graph.plan import ExecutionPlan
from engine.runtime.config import CheckpointInterval, RunConfig
from engine.runtime.execution import Execution
from engine.runtime.storage import open_storage
from operators.basic import CollectedResults, CollectSink, aggregates
from operators.columns import ColumnGeneratorSource
from operators.sources import GeneratorSource
from operators.time import WatermarkStrategy
from operators.windows import SlidingEventTimeWindows, TumblingEventTimeWindows

_SECOND_MS = 1_000
_WINDOWS_OF_SLIDING = 10
_CHECKPOINTS = 5
_SOURCE_RECORD_NS = 1_000  # the cost model's default: what an interval in virtual time counts

Window = tuple[int, int]
"""Key and start in ms."""


def bare_loop(count: int) -> dict[Window, int]:
    """The yardstick's work: how many records each window of a second has."""
    counts: dict[Window, int] = {}
    for i in range(count):
        window = (i * 2654435761 & 0xFFFFFFFF) // 128 % 10000, i // 100_000
        counts[window] = counts.get(window, 0) + 1
    return counts


def bare_sliding_loop(count: int) -> dict[Window, int]:
    """The yardstick's work for sliding windows: a record counts in each of its ten windows."""
    counts: dict[Window, int] = {}
    for i in range(count):
        key, second = (i * 2654435761 & 0xFFFFFFFF) // 128 % 10000, i // 100_000
        for start in range(second - _WINDOWS_OF_SLIDING + 1, second + 1):
            counts[key, start] = counts.get((key, start), 0) + 1
    return counts


@cache
def expected_counts(count: int, sliding: bool) -> dict[Window, int]:
    """The counts that the job must find, computed in another way than the yardstick's."""
    counts = Counter((key, at_ms // _SECOND_MS) for key, at_ms in make_records(0, count))
    if not sliding:
        return dict(counts)
    panes: Counter[Window] = Counter()
    for (key, second), records in counts.items():
        for earlier in range(_WINDOWS_OF_SLIDING):
            panes[key, second - earlier] += records
    return dict(panes)


def make_records(start: int, stop: int) -> list[tuple[int, int]]:
    """Records ``start .. stop - 1`` as (key, event time in ms)."""
    return [((i * 2654435761 & 0xFFFFFFFF) // 128 % KEYS, i // 100) for i in range(start, stop)]


@dataclass(frozen=True, slots=True)
class KeyedWindows:
    """One way to run the job."""

    count: int
    sliding: bool = False
    batch_size: int = 1_024
    mode: str = "exactly-once"

    def bare(self) -> float:
        """Seconds of one run of the yardstick."""
        loop = bare_sliding_loop if self.sliding else bare_loop
        start = now()
        counts = loop(self.count)
        seconds = now() - start
        assert counts == expected_counts(self.count, self.sliding)
        return seconds

    def time(self) -> float:
        """Seconds of one run on a real directory, from the first task to the last, results checked."""
        results = CollectedResults(transactional=False)
        plan = self._plan(results)
        interval = CheckpointInterval(time_ns=self.count * _SOURCE_RECORD_NS // (_CHECKPOINTS + 1))
        config = RunConfig(mode=self.mode, batch_size=self.batch_size, checkpoint_interval=interval)
        with scratch_directory() as place, open_storage(place, plan.job_name) as opened:
            execution = Execution(
                plan, config, storage=opened.storage, output_dir=place, incarnation=opened.incarnation
            )
            start = now()
            result = execution.run()
            seconds = now() - start
            result.raise_on_failure()
            if self.mode != "none":
                assert result.checkpoints.completed > _CHECKPOINTS, result.checkpoints.completed
        self._check(results)
        return seconds

    def _plan(self, results: CollectedResults) -> ExecutionPlan:
        job = Job("keyed-windows")
        watermarks = WatermarkStrategy.for_monotonous_timestamps(_event_time)
        records = job.source(GeneratorSource(make_records, self.count), watermarks=watermarks)
        counts = records.key_by(_key).window(self._assigner()).aggregate(aggregates.count(), uid="count")
        counts.sink(CollectSink(results))
        return job.plan()

    def _assigner(self) -> Any:
        if self.sliding:
            return SlidingEventTimeWindows.of(_WINDOWS_OF_SLIDING * _SECOND_MS, _SECOND_MS)
        return TumblingEventTimeWindows.of(_SECOND_MS)

    def _check(self, results: CollectedResults) -> None:
        found = {(key, start // _SECOND_MS): records for key, start, _, records in results.records}
        assert found == expected_counts(self.count, self.sliding), "the counts of windows are wrong"


def make_columns(start: int, stop: int) -> dict[str, Any]:
    """The same records as columns."""
    i = np.arange(start, stop)
    return {"key": (i * 2654435761 & 0xFFFFFFFF) // 128 % KEYS, "at_ms": i // 100}


@dataclass(frozen=True, slots=True)
class ColumnarWindows(KeyedWindows):
    """One way to run the job in columns."""

    batch_size: int = 100_000
    watermark_every: int | None = None
    """Records from one watermark to the next; ``None``: a batch."""

    def _plan(self, results: CollectedResults) -> ExecutionPlan:
        job = Job("columnar-windows")
        interval_ns = (self.watermark_every or self.batch_size) * _SOURCE_RECORD_NS
        watermarks = WatermarkStrategy.for_monotonous_timestamps().with_interval_ns(interval_ns)
        source = ColumnGeneratorSource(make_columns, self.count, timestamps="at_ms")
        windows = job.source(source, watermarks=watermarks).key_by_column("key").window(self._assigner())
        counts = windows.count_column(uid="count").to_rows("key", "window_start", "window_end", "count")
        counts.sink(CollectSink(results))
        return job.plan()


def _key(record: tuple[int, int]) -> int:
    return record[0]


def _event_time(record: tuple[int, int]) -> int:
    return record[1]


def measure(quick: bool) -> list[Result]:
    """Tumbling windows at two batch sizes and without checkpoints, and sliding ones."""
    count, rounds = (100_000, 3) if quick else (1_000_000, 5)
    tumbling = KeyedWindows(count)
    cases = {
        "W2 exactly-once": tumbling,
        "W2 exactly-once, batches of 16,384": KeyedWindows(count, batch_size=16_384),
        "W2 without checkpoints": KeyedWindows(count, mode="none"),
        "W2 columns": ColumnarWindows(count),
        "W2 columns, batches of 10,000": ColumnarWindows(count, batch_size=10_000),
        "W2 columns, a watermark every 200 records": ColumnarWindows(count, watermark_every=200),
        "W2 columns without checkpoints": ColumnarWindows(count, mode="none"),
    }
    goals = {"W2 exactly-once": at_least(0.22), "W2 columns": at_least(1.5)}
    results = _measured(tumbling, cases, rounds, goals)
    sliding = KeyedWindows(count // 10, sliding=True)
    in_columns = ColumnarWindows(count // 10, sliding=True, batch_size=10_000)
    sliding_cases = {
        "W2 in windows of 10 s that slide by 1 s": sliding,
        "W2 columns in windows of 10 s that slide by 1 s": in_columns,
    }
    return results + _measured(sliding, sliding_cases, rounds, {})


def _measured(
    reference: KeyedWindows, cases: dict[str, KeyedWindows], rounds: int, goals: dict[str, Goal]
) -> list[Result]:
    trials: dict[str, Trial] = {name: case.time for name, case in cases.items()}
    measured = interleaved(reference.bare, trials, rounds)
    return [_result(name, pairs, reference.count, goals.get(name)) for name, pairs in measured.items()]


def _result(name: str, pairs: Paired, count: int, goal: Goal | None) -> Result:
    details = {
        "records_per_s": per_second(count, pairs.seconds),
        "bare_loop_records_per_s": per_second(count, pairs.reference_seconds),
    }
    return Result(name, "× bare loop", pairs.speed_ratios, goal, details)
