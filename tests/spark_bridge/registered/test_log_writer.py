"""``weir.log`` as the sink of a streaming query: each batch once, whatever dies, and whatever runs again."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType, VariantType

from engine.elements.errors import WeirError
from operators.log.disk import DiskTransactionLog, LogSettings, committed_records
from spark_bridge import register
from spark_bridge.registered.log_table import LogTable
from spark_bridge.registered.log_writer import LogWriter
from state_backends.files import LocalFileSystem
from tests.spark_bridge.registered.reading import copied
from tests.spark_bridge.test_crossing_properties import _or_none, is_kept, types

QUERY = "3b8e0a52"
Batch = Sequence[pa.Table]
"""The rows of each task."""


class StoppedError(BaseException):
    """The process of the driver is gone."""


def numbers(*values: int) -> pa.Table:
    return pa.table({"value": pa.array(values, pa.int64())})


def writer_of(path: Path, schema: pa.Schema, **options: Any) -> LogWriter:
    chosen = {"path": str(path), "topic": "rows", "checkpointLocation": "x", **{k: str(v) for k, v in options.items()}}
    made: LogWriter = copied(copied(LogTable(chosen)).streamWriter(from_arrow_schema(schema), False))
    return made


def stage(path: Path, batch: Batch, query: str = QUERY, **options: Any) -> tuple[LogWriter, list[WriterCommitMessage]]:
    """Run the tasks of a batch, each twice: Spark takes the second attempt."""
    writer = writer_of(path, batch[0].schema, **options)
    for task, table in enumerate(batch):
        copied(writer).stage(query, task, table.to_batches(2))
    return writer, [
        copied(copied(writer).stage(query, task, table.to_batches(2))) for task, table in enumerate(batch)
    ]


def write(path: Path, number: int, batch: Batch, query: str = QUERY, **options: Any) -> None:
    writer, messages = stage(path, batch, query, **options)
    writer.commit([*messages[::-1], None], number)


def committed(path: Path, topic: str = "rows") -> list[list[Any]]:
    """The values of each partition."""
    return [[one.value for one in records] for records in committed_records(LocalFileSystem(), str(path), topic)]


def staged(path: Path) -> list[Path]:
    return list(path.rglob("*.arrow"))


def test_each_batch_is_written_once(tmp_path: Path) -> None:
    """Tasks in order, in partitions by their number; a batch that runs again changes nothing, and no file remains."""
    log = tmp_path / "log"
    write(log, 0, [numbers(1, 2, 3), numbers(4)], partitions=2)
    write(log, 1, [numbers(5), numbers(), numbers(6)])
    assert committed(log) == [[1, 2, 3, 5, 6], [4]]
    for number in (1, 1, 0):
        write(log, number, [numbers(7), numbers(8)])
    write(log, 2, [numbers()])
    write(log, 3, [numbers(9)])
    assert committed(log) == [[1, 2, 3, 5, 6, 9], [4]]
    assert staged(log) == []


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("step", ["create_topic", "init_transactions", "begin", "append", "commit", "close"])
def test_a_driver_that_dies_in_a_commit(
    step: str, before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any request to the log. Spark runs the batch again, and its rows are there once."""
    log = tmp_path / "log"
    real = getattr(DiskTransactionLog, step)

    def dying(found: DiskTransactionLog, *arguments: Any) -> Any:
        if not before:
            real(found, *arguments)
        found.abandon()
        raise StoppedError

    with monkeypatch.context() as patch:
        patch.setattr(DiskTransactionLog, step, dying)
        if step != "close":
            patch.setattr(DiskTransactionLog, "close", lambda found: None)
        with pytest.raises(StoppedError):
            write(log, 0, [numbers(1, 2), numbers(3)])
    assert len(staged(log)) == 4
    write(log, 0, [numbers(1, 2), numbers(3)])
    write(log, 1, [numbers(4)])
    assert committed(log) == [[1, 2, 3, 4]]
    assert staged(log) == []


def test_queries_have_numbers_of_their_own(tmp_path: Path) -> None:
    """A query with a new checkpoint location begins at batch 0, and so does another query; a long time changes
    nothing."""
    log = tmp_path / "log"
    write(log, 0, [numbers(1)], "first")
    write(log, 0, [numbers(2)], "second")
    write(log, 0, [numbers(4)], "sec")
    other = DiskTransactionLog(LocalFileSystem(), str(log), LogSettings(id_expiration_ns=None))
    other.append(None, "rows", 0, [3], 0, 9 * 10**18)
    other.close()
    write(log, 0, [numbers(1)], "first")
    assert committed(log) == [[1, 2, 4, 3]]


def test_queries_in_turn_keep_their_rows(tmp_path: Path) -> None:
    """The commit of one deletes no rows that tasks of another have stored."""
    log = tmp_path / "log"
    writer, messages = stage(log, [numbers(1)], "first")
    write(log, 0, [numbers(2)], "second")
    writer.commit(messages, 0)
    assert (committed(log), staged(log)) == ([[2, 1]], [])


def test_a_task_with_many_rows(tmp_path: Path) -> None:
    """They are appended some at a time, and all of them are there."""
    write(tmp_path / "log", 0, [numbers(*range(10_000))])
    assert committed(tmp_path / "log") == [list(range(10_000))]


def test_batches_without_rows(tmp_path: Path) -> None:
    """A task without rows stores no file, and a batch without tasks does not touch the log."""
    log = tmp_path / "log"
    writer = writer_of(log, numbers().schema)
    empty = pa.RecordBatch.from_pydict({"value": pa.array([], pa.int64())})
    assert writer.stage(QUERY, 0, [empty, empty]).path == ""
    for messages in ([], [None]):
        writer.commit(messages, 0)
        writer.abort(messages, 0)
    assert not log.exists()


def test_a_row_is_a_record(tmp_path: Path) -> None:
    """A dict of its columns without ``partition``, which says where it goes."""
    rows = pa.table({"partition": pa.array([1, 0, 1], pa.int32()), "a": [1, 2, 3], "b": ["x", None, "z"]})
    write(tmp_path / "log", 0, [rows], partitions=2)
    assert committed(tmp_path / "log") == [[{"a": 2, "b": None}], [{"a": 1, "b": "x"}, {"a": 3, "b": "z"}]]


@pytest.mark.parametrize("number", [2, -1, None])
def test_a_partition_that_is_not_there(number: int | None, tmp_path: Path) -> None:
    """Nothing of the batch is in the log, and the right batch is written after it."""
    rows = pa.table({"partition": pa.array([0, number], pa.int32()), "value": [1, 2]})
    with pytest.raises(WeirError, match=f"'partition' is {number} in row .*, and topic 'rows' .* partitions 0 to 1"):
        write(tmp_path / "log", 0, [rows], partitions=2)
    write(tmp_path / "log", 0, [rows.slice(0, 1)])
    assert committed(tmp_path / "log") == [[1], []]


@settings(max_examples=25)
@given(st.data())
def test_values_of_any_type_are_kept(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Each value comes out of the log as it went in."""
    log = tmp_path_factory.mktemp("types") / "log"
    _, kind, values = data.draw(types)
    sent = data.draw(st.lists(_or_none(values), min_size=1, max_size=4))
    try:
        table = pa.table({"value": pa.array(sent, kind)})
    except (pa.ArrowException, TypeError, OverflowError):
        return
    write(log, 0, [table])
    (found,) = committed(log)
    expected = table.column("value").to_pylist()
    assert len(found) == len(expected)
    shutil.rmtree(log.parent)
    assert all(is_kept(one, back) or isinstance(one, datetime.timedelta) for one, back in zip(sent, found, strict=True))


def test_what_a_failed_batch_has_stored_is_deleted(tmp_path: Path) -> None:
    """Files that Spark names; the others go with the next batch."""
    log = tmp_path / "log"
    writer, messages = stage(log, [numbers(1), numbers(2)])
    for _ in range(2):
        writer.abort([*messages, None], 0)
    assert len(staged(log)) == 2
    write(log, 0, [numbers(1), numbers(2)])
    assert (committed(log), staged(log)) == ([[1, 2]], [])


def test_another_writer_holds_the_log(tmp_path: Path) -> None:
    """The batch fails, and is written when the log is free."""
    log = tmp_path / "log"
    other = DiskTransactionLog(LocalFileSystem(), str(log))
    with pytest.raises(WeirError, match="is being written to by"):
        write(log, 0, [numbers(1)])
    other.close()
    write(log, 0, [numbers(1)])
    assert committed(log) == [[1]]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda table: table.streamWriter(from_arrow_schema(numbers().schema), True), "weir.log only appends"),
        (lambda table: table.writer(from_arrow_schema(numbers().schema), False), "is written by streaming queries"),
        (
            lambda table: table.streamWriter(from_arrow_schema(pa.schema([("partition", pa.int32())])), False),
            "a record has no field",
        ),
        (
            lambda table: table.streamWriter(
                from_arrow_schema(pa.schema([("partition", pa.string()), ("value", pa.int64())])), False
            ),
            "column 'partition' is string; it must be int",
        ),
        (
            lambda table: table.streamWriter(StructType().add("v", VariantType()), False),
            "column 'v' cannot become part of a record: ",
        ),
    ],
    ids=["overwrite", "batch", "no field", "partition", "type"],
)
def test_queries_that_cannot_be_written(make: Callable[[LogTable], Any], why: str, tmp_path: Path) -> None:
    """Each is an error before the first batch."""
    with pytest.raises(WeirError, match=why):
        make(LogTable({"path": str(tmp_path), "topic": "rows"}))
    with pytest.raises(WeirError, match="topic 'a/b' cannot be kept on disk"):
        writer_of(tmp_path, numbers().schema, topic="a/b")


def test_tasks_of_no_streaming_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the id of a query no batch could be told from another."""
    context = SimpleNamespace(getLocalProperty=lambda name: None)
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    with pytest.raises(WeirError, match=r"weir.log: this is no streaming query: use df.writeStream"):
        writer_of(tmp_path, numbers().schema).write(iter([]))


@pytest.mark.slow
@pytest.mark.spark
def test_a_query_on_spark_that_runs_its_last_batch_again(spark: Any, tmp_path: Path) -> None:
    """Spark has lost the commit of the last batch: it runs again with the same rows, and the log has them once."""
    register(spark)
    source, log, query = tmp_path / "source", tmp_path / "log", tmp_path / "query"

    def run() -> None:
        rows = spark.readStream.format("weir.log").option("topic", "rows").option("max_records", 4)
        frame = rows.schema("value bigint").load(str(source)).selectExpr("value * 2 AS value").repartition(2)
        sink = frame.writeStream.format("weir.log").option("topic", "rows").option("partitions", 2)
        sink = sink.option("checkpointLocation", str(query)).trigger(availableNow=True)
        sink.start(str(log)).awaitTermination()

    for number in range(3):
        write(source, number, [numbers(*range(10 * number, 10 * number + 6))])
    run()
    last = max((query / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    assert int(last.name) > 0
    for path in (last, last.parent / f".{last.name}.crc"):
        path.unlink(missing_ok=True)
    run()
    write(source, 3, [numbers(100)])
    run()
    found = sorted(value for partition in committed(log) for value in partition)
    assert found == [*(2 * (10 * number + rest) for number in range(3) for rest in range(6)), 200]
    assert staged(log) == []
