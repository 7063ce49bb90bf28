"""W1 in columns: the same workload as ``w1``, with the same yardstick and the same checks, on the columnar path.

A batch is a handful of arrays; the functions of the user are called once for each batch. Everything else is as in
:mod:`benchmarks.keyed_sum`: real files, five periodic checkpoints and one at the end, every sum checked in live state
and as read back from the last checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.keyed_sum import KeyedSum, time_bare_loop
from benchmarks.measure import Goal, Paired, Result, Trial, at_least, interleaved, per_second
from engine.graph.job import Job
from engine.graph.options import StreamTransform
from engine.graph.plan import ExecutionPlan
from operators.columns import ColumnGeneratorSource

_UNIT = "× bare loop"


def make_columns(start: int, stop: int) -> dict[str, Any]:
    """Records ``start .. stop - 1`` of W1 as columns."""
    i = np.arange(start, stop)
    key = i * 2654435761
    key &= 0xFFFFFFFF
    key //= 128
    key %= 10000
    i %= 1000
    return {"key": key, "value": i}


def _double(columns: dict[str, Any]) -> dict[str, Any]:
    return {"key": columns["key"], "value": columns["value"] * 2}


@dataclass(frozen=True, slots=True)
class ColumnarKeyedSum(KeyedSum):
    """One way to run the job in columns."""

    def plan(self, sink: StreamTransform) -> ExecutionPlan:
        job = Job("columnar-keyed-sum", parallelism=self.parallelism)
        source = ColumnGeneratorSource(make_columns, self.count, splits=self.parallelism)
        keyed = job.source(source).map_columns(_double).key_by_column("key")
        keyed.sum_column("value", uid="sum").sink(sink)
        return job.plan()


def measure(quick: bool) -> list[Result]:
    """At batches of 100,000 and of 10,000 records, with checkpoints and without, on one subtask and on four."""
    count, rounds = (100_000, 3) if quick else (1_000_000, 5)
    name = "columnar W1 exactly-once, batches of {:,}".format
    cases = {
        name(100_000): ColumnarKeyedSum(count, batch_size=100_000),
        name(10_000): ColumnarKeyedSum(count, batch_size=10_000),
        name(1_024): ColumnarKeyedSum(count, batch_size=1_024),
        "columnar W1 without checkpoints, batches of 100,000": ColumnarKeyedSum(
            count, batch_size=100_000, mode="none"
        ),
        "columnar W1 exactly-once, batches of 100,000, parallelism 4": ColumnarKeyedSum(
            count, batch_size=100_000, parallelism=4
        ),
    }
    goals = {name(100_000): at_least(4.0), name(10_000): at_least(1.5)}
    trials: dict[str, Trial] = {case: one.time for case, one in cases.items()}
    measured = interleaved(partial(time_bare_loop, count), trials, rounds)
    return [_result(case, pairs, count, goals.get(case)) for case, pairs in measured.items()]


def _result(name: str, pairs: Paired, count: int, goal: Goal | None) -> Result:
    details = {
        "records_per_s": per_second(count, pairs.seconds),
        "bare_loop_records_per_s": per_second(count, pairs.reference_seconds),
    }
    return Result(name, _UNIT, pairs.speed_ratios, goal, details)
