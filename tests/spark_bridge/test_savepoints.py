"""Keyed state as a DataFrame, and from one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.graph.job import Job
from engine.runtime.config import RunConfig
from engine.runtime.execution import Execution
from engine.runtime.storage import SavepointRestore
from operators.basic import CollectedResults, KeyedProcessContext, KeyedProcessFunction
from operators.sources import SequenceSource
from spark_bridge import register
from spark_bridge.errors import SparkBridgeError
from spark_bridge.state_frames import compare_state, put_state
from state_backends.base import LONG, STRING, KeyTypeError, ListStateDescriptor, ValueStateDescriptor
from state_backends.files import LocalFileSystem, MemoryFileSystem
from state_backends.offline import SnapshotWriter

COUNT = ValueStateDescriptor("count")


class Totals(KeyedProcessFunction):
    """A running total per key, which may begin with restored state."""

    def open(self, ctx: KeyedProcessContext) -> None:
        self.total = ctx.value_state("total", 0)

    def process_element(self, value: int, ctx: KeyedProcessContext) -> list[tuple[int, int]]:
        self.total.update(self.total.get() + value)
        return [(ctx.current_key, self.total.get())]


def savepoint(directory: Path, counts: dict[str, Any]) -> str:
    """The path of a savepoint with a value per key."""
    writer = SnapshotWriter("words")
    backend = writer.keyed_operator("count", STRING)
    backend.value_state(COUNT).update_many(list(counts), list(counts.values()))
    backend.timer_service("alarm").event_time.register(["a", "a"], [None, None], [40, 50])
    return writer.write(LocalFileSystem(), str(directory))


@pytest.mark.spark
def test_two_savepoints_are_compared(spark: Any, tmp_path: Path) -> None:
    """Added, removed and changed entries; two timers of one key are two entries, and the same."""
    register(spark)
    paths = [savepoint(tmp_path, counts) for counts in ({"a": 1, "b": 2, "c": 3}, {"b": 2, "c": 4, "d": 5})]
    before, after = (spark.read.format("weir.state").load(path) for path in paths)

    rows = compare_state(before, after).collect()
    found = {(row["change"], row["key"], row["value_before"], row["value_after"]) for row in rows}

    assert found == {("removed", '"a"', "1", None), ("changed", '"c"', "3", "4"), ("added", '"d"', None, "5")}


@pytest.mark.spark
def test_a_job_starts_with_state_from_a_dataframe(spark: Any) -> None:
    """Sums by key, written from a DataFrame, continue from its values."""
    files = MemoryFileSystem()
    frame = spark.createDataFrame([(0, 100), (1, 200)], "k long, total long")
    writer = SnapshotWriter("sums")
    backend = writer.keyed_operator("sum", LONG)
    assert put_state(frame, backend, ValueStateDescriptor("total"), key="k", value="total") == 2
    job, results = Job("sums"), CollectedResults()
    job.source(SequenceSource(0, 4), uid="source").key_by(lambda number: number % 2).process(
        Totals, uid="sum", parallelism=2
    ).collect(results)
    path = writer.write(files, "/savepoints")

    restore = SavepointRestore(path)
    Execution(job.plan(), RunConfig(), file_system=files, restore_from=restore).run().raise_on_failure()

    assert sorted(results.records) == [(0, 100), (0, 102), (1, 201), (1, 204)]


@pytest.mark.spark
def test_what_does_not_fit_is_refused(spark: Any) -> None:
    """A missing column, a key that is null, keys of two types, another kind of state."""
    frame = spark.createDataFrame([(1, None, "x")], "k long, nothing long, v string")
    backend = SnapshotWriter("words").keyed_operator("count", STRING)

    with pytest.raises(SparkBridgeError, match="no column 'w'; it has k, nothing, v"):
        put_state(frame, backend, COUNT, key="k", value="w")
    with pytest.raises(SparkBridgeError, match="row 0 has no key"):
        put_state(frame, backend, COUNT, key=("k", "nothing"), value="v")
    with pytest.raises(KeyTypeError, match="STRING"):
        put_state(frame, backend, COUNT, key="k", value="v")
    with pytest.raises(SparkBridgeError, match="fills value state only"):
        put_state(frame, backend, ListStateDescriptor("l"), key="k", value="v")
