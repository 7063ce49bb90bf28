"""A Spark transform of columns, and one with subtasks for keys: the same batches and results as of rows in one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from engine import CollectedResults, CollectionSource, ColumnSource, FileSink, Job, WatermarkStrategy
from engine.checkpoint.restore import NoRestart
from engine.elements.batch import MAX_TIMESTAMP_MS, Batch
from engine.elements.columns import ColumnBatch, checked_columns
from engine.elements.errors import WeirError
from spark_bridge import transform
from spark_bridge.batch_times import BatchTime, told_times
from spark_bridge.cuts import Cut, rows_cut
from spark_bridge.errors import SparkBridgeError
from spark_bridge.period_column import results_by_period
from spark_bridge.transform import LATE_TAG, spark_transform
from spark_bridge.waiting import EVERYTHING, KeyColumn, WaitingRows
from state_backends.api import OperatorStateBackend
from tests.operators.harness import Checkpoint, Harness
from tests.runtime.support import US, every, run
from tests.spark_bridge.pipeline import jobs
from tests.spark_bridge.pipeline.runs import config, in_batches, simulated
from tests.spark_bridge.pipeline.transform_jobs import HUNDREDS, Row, key_sums
from tests.spark_bridge.transforms import TENS, Calls

SCHEMA = "number bigint, name string"


def columns(numbers: Sequence[int], times: Sequence[int] | None = None) -> ColumnBatch:
    """Rows with a number and its name."""
    table = {"name": [f"n{one}" for one in numbers], "number": np.array(numbers, dtype=np.int64)}
    return ColumnBatch(*checked_columns(table), None if times is None else np.array(times, dtype=np.int64))


def same_rows(spec_rows: Any) -> Any:
    return spec_rows


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The rows of each batch, as they would go to Spark; the result is what the function makes of them."""
    found: list[Any] = []

    def run_batch(fn: Any, rows: Any, schema: str, **options: Any) -> Any:
        found.append(rows)
        return fn(rows)

    monkeypatch.setattr(transform, "run_batch", run_batch)
    return found


def operator_of(cut: Cut, restored: Checkpoint | None = None, fn: Any = same_rows, **options: Any) -> Harness:
    return Harness(spark_transform(fn, schema=SCHEMA, cut=cut, **options).create_operator(), restored=restored)


def test_columns_cross_without_a_python_row(tables: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Into the batch, into state and out of it, and out of the batch; late ones, too."""

    def values(batch: ColumnBatch) -> Any:
        assert len(batch) == 1, "rows were made of columns"
        return [{name: column[0] for name, column in batch.columns.items()}]

    monkeypatch.setattr(ColumnBatch, "values", property(values))
    harness = operator_of(TENS)
    harness.operator.process_batch(columns([1, 2, 4, 8], [5, 15, 3, 25]))
    harness = operator_of(TENS, harness.snapshot(1))
    harness.operator.process_batch(columns([16, 32], [6, 7]))
    harness.watermark(19)
    harness.operator.process_batch(columns([64, 128], [2, 25]))

    assert [table.column("number").to_pylist() for table in tables] == [[1, 4, 16, 32], [2]]
    first, _, _, late = harness.take()
    assert isinstance(first, ColumnBatch)
    assert (first.columns["number"].tolist(), first.timestamps) == ([1, 4, 16, 32], [9] * 4)
    assert (late[0], late[1].columns["number"].tolist()) == (LATE_TAG, [64])


@pytest.mark.parametrize(
    ("result", "fits"),
    [
        ({"x": pa.array([1], pa.int32()), "y": ["a"], "z": [True], "u": [0.5], "v": [b"b"]}, True),
        ({"x": pa.array([1, None], pa.int32())}, False),
        ({"x": pa.array([0], pa.date32())}, False),
        ({"x": [[1]]}, False),
    ],
    ids=["plain", "null", "date", "list"],
)
def test_results_that_columns_cannot_hold_leave_as_rows(tables: list[Any], result: Any, fits: bool) -> None:
    """The same records in either form."""
    harness = operator_of(TENS, fn=lambda _: pa.table(result))
    harness.operator.process_batch(columns([1], [5]))
    harness.watermark(9)
    (made,) = (one for one in harness.take() if isinstance(one, Batch))
    assert isinstance(made, ColumnBatch) == fits
    assert made.values == pa.table(result).to_pylist()


steps = st.lists(st.one_of(st.lists(st.integers(-20, 60), max_size=5), st.integers(0, 25)), max_size=10)


@settings(max_examples=40)
@given(script=steps, data=st.data())
def test_batches_are_those_of_rows(script: list[list[int] | int], data: st.DataObject) -> None:
    """Whatever comes in columns and what in rows, and wherever a restore is."""
    forms = data.draw(st.lists(st.booleans(), min_size=len(script), max_size=len(script)))
    cut = data.draw(st.sampled_from([TENS, rows_cut(4)]))
    points = sorted(data.draw(st.lists(st.integers(0, len(script)), max_size=2)))

    def played(in_columns: Sequence[bool], bounds: Sequence[int]) -> list[Any]:
        found: list[Any] = []

        def run_batch(fn: Any, rows: Any, schema: str, **options: Any) -> Any:
            found.append((options["label"], rows if isinstance(rows, list) else rows.to_pylist()))
            return rows

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(transform, "run_batch", run_batch)
            row, watermark_ms, checkpoint = 0, -20, None
            for start, end in pairwise([0, *bounds, len(script)]):
                harness = operator_of(cut, checkpoint)
                for at in range(start, end):
                    step = script[at]
                    if isinstance(step, int):
                        watermark_ms += step
                        harness.watermark(watermark_ms)
                        continue
                    batch = columns(range(row, row + len(step)), step)
                    row += len(step)
                    rows = Batch([dict(one) for one in batch.values], list(step))
                    harness.operator.process_batch(batch if in_columns[at] else rows)
                found += [
                    (one[0], one[1].values) if isinstance(one, tuple) and one[0] == LATE_TAG else one
                    for one in harness.take()
                    if not isinstance(one, Batch)
                ]
                checkpoint = harness.snapshot(start)
            harness.watermark(MAX_TIMESTAMP_MS)
            harness.finish()
        return found

    assert played(forms, points) == played([False] * len(script), points)


@pytest.mark.parametrize("count", range(8))
def test_checkpoints_leave_the_rows_that_wait_as_they_are(count: int) -> None:
    """The state does not tell how the columns came, nor how often they were stored; a batch has the first of them."""

    def played(*pieces: list[int], is_stored: bool) -> tuple[Any, Any, Any]:
        backend = OperatorStateBackend()
        waiting = WaitingRows(backend, "sums")
        rows = waiting.of(EVERYTHING)
        for piece in pieces:
            rows.add(columns(piece))
            if is_stored:
                waiting.snapshot()
        first = rows.first(count).taken()
        waiting.snapshot()
        return list(first) if not count else first.to_pylist(), backend.split_lists(), rows.taken().to_pylist()

    expected = played([0, 1, 2, 3, 4, 5, 6, 7], is_stored=False)
    assert [one["number"] for one in expected[0]] == list(range(count))
    assert all(played([0, 1], [2], [3, 4, 5], [6, 7], is_stored=one) == expected for one in (False, True))


def test_columns_become_arrow_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many checkpoints store them before their batch is full."""
    arrays = 0

    def counted(column: Any) -> Any:
        nonlocal arrays
        arrays += 1
        return made(column)

    made = pa.array
    monkeypatch.setattr(pa, "array", counted)
    waiting = WaitingRows(OperatorStateBackend(), "sums")
    rows = waiting.of(EVERYTHING)
    for piece in range(5):
        rows.add(columns([piece]))
        waiting.snapshot()
    assert rows.first(5).taken().num_rows == 5
    assert arrays == 5 * 2


def test_columns_of_other_names_or_types_become_rows(tables: list[Any]) -> None:
    """Both are in the batch, for the error that names the row."""
    harness = operator_of(TENS)
    harness.operator.process_batch(columns([1], [5]))
    harness.operator.process_batch(ColumnBatch(*checked_columns({"number": [2.5]}), np.array([6], dtype=np.int64)))
    harness = operator_of(TENS, harness.snapshot(1), fn=lambda rows: rows)
    harness.watermark(9)
    assert tables == [[{"name": "n1", "number": 1}, {"number": 2.5}]]


def test_results_of_several_periods_are_told_apart() -> None:
    """Without the column, in order; one of a period that was not given is an error."""
    table = pa.table({"p": ["b", "a", "b"], "x": [1, 2, 3]})
    assert [one.to_pydict() for one in results_by_period(table, "p", ["a", "b"], "op")] == [{"x": [2]}, {"x": [1, 3]}]
    for stray in ("c", None):
        strays = pa.table({"p": pa.array(["a", stray], pa.string()), "x": [1, 2]})
        with pytest.raises(SparkBridgeError, match=f"op: a result has p={stray!r}, and the periods of this call are a"):
            results_by_period(strays, "p", ["a"], "op")


def test_several_periods_go_in_one_table(tables: list[Any]) -> None:
    """With their labels; rows among them make all of them rows."""
    harness = operator_of(TENS, period_column="period")
    harness.operator.process_batch(columns([1, 2], [5, 15]))
    harness.watermark(19)
    harness.operator.prepare_snapshot_pre_barrier(1)
    harness.operator.process_batch(columns([4], [25]))
    harness.process([{"name": "n8", "number": 8}], [35])
    harness.watermark(39)
    harness.operator.prepare_snapshot_pre_barrier(2)
    assert tables[0].column("period").to_pylist() == ["from 0", "from 10"]
    assert [row["period"] for row in tables[1]] == ["from 20", "from 30"]
    assert [one.values for one in harness.take() if isinstance(one, ColumnBatch)] == [
        [{"name": "n1", "number": 1}], [{"name": "n2", "number": 2}],
    ]  # fmt: skip


# -- by key -----------------------------------------------------------------------------------------------------------


def by_key(source: Any, parallelism: int, into: Any, fn: Any = key_sums, **options: Any) -> Job:
    """Sums per key and period of a hundred ms."""
    job = Job("by-key", parallelism=parallelism)
    watermarks = options.pop("watermarks", None)
    rows = job.source(source, name="rows", watermarks=watermarks)
    spec = spark_transform(fn, schema="key int, time int", cut=HUNDREDS, by="key", **options)
    sums = rows.via(spec, name="sums", uid="sums")
    if isinstance(into, CollectedResults):
        return sums.collect(into, name="out", parallelism=1)
    return sums.map(dict, name="copy", parallelism=1).sink(into, uid="sink", parallelism=1)


EVENTS = [{"key": number % 7, "time": number * 5} for number in range(200)]
TIMED = WatermarkStrategy.for_monotonous_timestamps(lambda row: row["time"]).with_interval_ns(7 * US)
HUNDRED = [EVENTS[start : start + 20] for start in range(0, 200, 20)]
EXPECTED = sorted((row for period in HUNDRED for row in key_sums(period)), key=repr)


def _sorted(results: CollectedResults) -> list[Row]:
    return sorted(results.records, key=repr)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_rows_of_a_key_meet_in_one_subtask(calls: Calls, parallelism: int) -> None:
    """Killed at critical moments, too. A call has the rows of one subtask."""
    for at_us in (0, 40, 65, 90):
        results = CollectedResults()
        job = by_key(CollectionSource(EVENTS, splits=2), parallelism, results, watermarks=TIMED)
        kills = [("sums", at_us * US)] if at_us else []
        found = run(job, kills=kills, batch_size=8, checkpoint_interval=every(ns=30 * US))
        assert _sorted(results) == EXPECTED
        assert found.attempts == 1 + len(kills)
    owners: dict[int, set[frozenset[int]]] = {}
    for _, rows in calls.batches:
        keys = frozenset(row["key"] for row in rows)
        for key in keys:
            owners.setdefault(key, set()).add(keys)
    assert (len({keys for sets in owners.values() for keys in sets}) > 1) == (parallelism > 1)


def test_columns_are_spread_by_key(tables: list[Any]) -> None:
    """To the subtasks that rows go to, as tables."""
    found = []
    in_columns = ColumnSource({name: [row[name] for row in EVENTS] for name in EVENTS[0]}, timestamps="time")
    of_columns = WatermarkStrategy.for_monotonous_timestamps().with_interval_ns(7 * US)
    for source, watermarks in ((CollectionSource(EVENTS), TIMED), (in_columns, of_columns)):
        results = CollectedResults()
        run(by_key(source, 3, results, fn=_sums_of_any, watermarks=watermarks), checkpoint_interval=every(ns=30 * US))
        found.append((_sorted(results), sorted(map(len, tables))))
        assert isinstance(tables[0], pa.Table) == (source is in_columns)
        tables.clear()
    assert found[0] == found[1]
    assert found[0][0] == EXPECTED


def _sums_of_any(rows: Any) -> list[Row]:
    return key_sums(rows if isinstance(rows, list) else rows.to_pylist())


@pytest.mark.parametrize("parallelism", [(3, 2), (1, 3), (2, 1)], ids=str)
@pytest.mark.parametrize("there", ["simulator", "batches"])
def test_rows_move_with_their_keys(calls: Calls, parallelism: tuple[int, int], there: str, tmp_path: Path) -> None:
    """To another parallelism, and into batches on Spark: no row is lost, and none is in two subtasks."""

    def job(subtasks: int) -> Job:
        return by_key(CollectionSource(EVENTS, splits=2), subtasks, FileSink("sums"), watermarks=TIMED)

    first = simulated(job(parallelism[0]), tmp_path, config(60, restart=NoRestart()), killed_at_ns=80_000)
    assert first.error is not None
    if there == "simulator":
        result = simulated(job(parallelism[1]), tmp_path, config(60))
    else:
        result, _ = in_batches(job(parallelism[1]), tmp_path, config(60))
    assert result.error is None, result.error
    assert result.restores[0].checkpoint_id is not None
    simulated(job(1), tmp_path / "undisturbed", config(60))
    assert jobs.committed(tmp_path / "out") == jobs.committed(tmp_path / "undisturbed" / "out")
    assert sum(jobs.committed(tmp_path / "out").values()) == len(EXPECTED)


def test_the_first_columns_are_known_to_all_subtasks(calls: Calls, tmp_path: Path) -> None:
    """Also to those that a resume adds: results of whichever key have the columns of the first batch."""

    def job(subtasks: int, key: int | None = None) -> Job:
        def fn(rows: Sequence[Row]) -> list[Row]:
            drifts = any(row["key"] == key for row in rows)
            return [{**one, "sum": str(one["sum"])} if drifts else one for one in key_sums(rows)]

        return by_key(CollectionSource(EVENTS), subtasks, FileSink("sums"), fn=fn, watermarks=TIMED)

    settings = config(20, restart=NoRestart())
    assert simulated(job(1), tmp_path, settings, killed_at_ns=80_000).error is not None
    assert calls.batches, "no columns are known yet"
    for key in range(7):
        failed = simulated(job(3, key), tmp_path, settings)
        assert failed.restores[0].checkpoint_id is not None
        assert "column 'sum' is str, and was int" in str(failed.error), key


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"by": 3}, "by= must be the name of the column with the key, not 3"),
        ({"by": "kee"}, "by= names 'kee', which is no column of schema=; did you mean 'key'?"),
        ({"by": "key", "cut": rows_cut(3)}, "by= must be left out: rows_cut"),
    ],
)
def test_a_key_that_cannot_be_is_refused_at_once(options: Any, problem: str) -> None:
    """When the transform is made."""
    with pytest.raises(SparkBridgeError) as caught:
        spark_transform(key_sums, **{"schema": "key int, time int", "cut": TENS, **options})
    assert problem in str(caught.value)


@pytest.mark.parametrize("row", [{"key": 3}, ("a",), "abc", b"abc", 7], ids=repr)
def test_the_key_of_what_has_none(row: Any) -> None:
    """A text is no sequence of values."""
    key = KeyColumn.of("time", "key int, time int")
    assert [key({"time": 5}), key((3, 5)), key([3, 5])] == [5, 5, 5]
    with pytest.raises(SparkBridgeError, match=r"by= names column 'time', which row .* does not have: rows are dicts"):
        key(row)


def test_a_row_without_the_key_is_told() -> None:
    """With the row, and the form of rows."""
    results = CollectedResults()
    job = by_key(CollectionSource([{"time": 3}]), 2, results, watermarks=TIMED)
    with pytest.raises(WeirError, match=r"which row \{.time.: 3\} does not have"):
        job.run()


# -- cost -------------------------------------------------------------------------------------------------------------


def test_the_cost_of_batches_is_told() -> None:
    """How many, how long, on how many rows, and which was the longest; nothing for none."""
    batches = [BatchTime("op: a", 1_000, 0.0, 0.25, 1.0), BatchTime("op: b", 20, 0.0, 0.5, 2.0)]
    assert told_times(batches) == (
        "2 batches on Spark took 3.0 s for 1,020 rows, 0.8 s of it on their way in;"
        " the longest took 2.0 s for 20 rows: op: b"
    )
    assert told_times([]) == ""


# -- on Spark ---------------------------------------------------------------------------------------------------------


def on_spark_sums(frame: Any) -> Any:
    from pyspark.sql import functions as f

    groups = frame.groupBy("key")
    return groups.agg(f.count("*").alias("rows"), f.min("time").alias("least"), f.sum("time").alias("sum"))


@pytest.mark.slow
def test_columns_by_key_on_spark(spark: Any, tmp_path: Path) -> None:
    """In the simulator and in a job on Spark the records are those of rows, and leave as columns."""
    source = ColumnSource({name: [row[name] for row in EVENTS] for name in EVENTS[0]}, timestamps="time")
    watermarks = WatermarkStrategy.for_monotonous_timestamps()
    here, there = CollectedResults(), CollectedResults()
    by_key(source, 2, here, fn=on_spark_sums, watermarks=watermarks).run(checkpoint_interval="50rec")
    by_key(source, 2, there, fn=on_spark_sums, watermarks=watermarks).run(
        on="spark", storage=tmp_path / "st", output_dir=tmp_path / "out", checkpoint_interval="100rec"
    )
    assert _sorted(here) == _sorted(there) == EXPECTED
