"""``weir.log`` as the sink of a streaming query: each batch is one transaction of the log, and is written once.

Rules.
* The transactional id is that of the query, which Spark keeps in ``checkpointLocation``, and the note of a transaction
  is the number of its batch. A query that starts again runs its last batch again: the log knows its number already.
* A log has one writer at a time. So tasks store their rows in files below the log, and the driver appends them. A task
  that runs twice stores two files, and Spark names one of them.
* A transaction that a dead process has left open is aborted by the next one.
"""

from __future__ import annotations

import posixpath
import struct
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from operators.log.disk import DiskTransactionLog, LogSettings, check_name
from spark_bridge.canonical import python_rows
from spark_bridge.errors import SparkBridgeError
from spark_bridge.registered.source_options import file_system_of
from spark_bridge.strict_types import unsupported_types
from state_backends.files import FileSystem

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

VALUE, PARTITION = "value", "partition"
_QUERY_ID = "sql.streaming.queryId"
_STAGED = "staged-by-spark"
_TIMEOUT_NS = 15 * 60 * 1_000_000_000
_ROWS_PER_APPEND = 4_096
_LENGTH = struct.Struct("<q")
"""Before each batch in a file."""
# A query may be down for long, and the log must still know its last batch.
_SETTINGS = LogSettings(id_expiration_ns=None)


@dataclass(frozen=True, slots=True)
class StagedTask(WriterCommitMessage):
    """What one task has stored: its number, and its file, empty for no rows. ``query``: the id of the query."""

    query: str
    task: int
    path: str


class LogWriter(DataSourceStreamArrowWriter):
    """``partitions``: of the topic, if it has to be created.

    A row becomes a record: the value of its column ``value`` if it has no other, else a dict of its columns. A column
    ``partition`` is not in the record: it says where the record goes. Otherwise the records of a task stay together.
    """

    def __init__(self, format: str, path: str, topic: str, partitions: int, schema: StructType) -> None:
        check_name("topic", topic)
        self._format, self._path, self._topic, self._partitions = format, path, topic, partitions
        names = [name for name in schema.names if name != PARTITION]
        for field in schema.fields:
            for why in unsupported_types(field.dataType):
                raise SparkBridgeError(f"{format}: column {field.name!r} cannot become part of a record: {why}")
        if not names:
            raise SparkBridgeError(f"{format}: a record has no field: give the query a column {VALUE!r}, or others")
        kind = schema[PARTITION].dataType.simpleString() if PARTITION in schema.names else "int"
        if kind not in ("int", "bigint"):
            raise SparkBridgeError(f"{format}: column {PARTITION!r} is {kind}; it must be int, a partition's number")
        self._is_value = names == [VALUE]

    # -- on executors -------------------------------------------------------------------------------------------------

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedTask:
        """Store the rows of a task."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "Spark runs this in a task"
        query = context.getLocalProperty(_QUERY_ID)
        if not query:
            raise SparkBridgeError(f"{self._format}: this is no streaming query: use df.writeStream … .start()")
        return self.stage(query, context.partitionId(), iterator)

    def stage(self, query: str, task: int, batches: Iterable[pa.RecordBatch]) -> StagedTask:
        """The same, for a task of a query."""
        file_system, log = file_system_of(self._path)
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return StagedTask(query, task, "")
        directory = _staged_by(log, query)
        file_system.make_dirs(directory)
        path = posixpath.join(directory, f"{uuid.uuid4().hex}.arrow")
        with file_system.open_write(path) as file:
            for batch in chain([first], filled):
                packed = _packed(batch)
                file.write(_LENGTH.pack(len(packed)) + packed)
        return StagedTask(query, task, path)

    # -- on the driver ------------------------------------------------------------------------------------------------

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Append the rows of a batch in one transaction, unless the log has this batch already."""
        staged = sorted((one for one in messages if isinstance(one, StagedTask)), key=lambda one: one.task)
        if not staged:
            return
        file_system, directory = file_system_of(self._path)
        log = DiskTransactionLog(file_system, directory, _SETTINGS)
        try:
            self._append(log, file_system, staged, batchId)
        finally:
            log.close()
        _delete(file_system, _staged_by(directory, staged[0].query))

    def _append(self, log: DiskTransactionLog, files: FileSystem, staged: Sequence[StagedTask], batch: int) -> None:
        name, now_ns = f"spark/{staged[0].query}", time.time_ns()
        known = [one for one in log.transactions(name, now_ns) if one.producer.transactional_id == name]
        if known and known[0].newest_note is not None and known[0].newest_note >= batch:
            return
        if self._topic not in log.topics():
            log.create_topic(self._topic, self._partitions)
        count = log.partitions(self._topic)
        producer = log.init_transactions(name, _TIMEOUT_NS, now_ns)
        log.begin(producer, now_ns)
        sent = [0] * count
        for one in staged:
            for partition, records in self._records(files, one, count):
                log.append(producer, self._topic, partition, records, sent[partition], now_ns)
                sent[partition] += len(records)
        log.commit(producer, now_ns, batch)

    def _records(self, files: FileSystem, staged: StagedTask, count: int) -> Iterator[tuple[int, list[Any]]]:
        """Records by partition, some at a time."""
        for rows in _stored_rows(files, staged.path) if staged.path else ():
            found: dict[int, list[Any]] = {}
            for row in rows:
                number = row.pop(PARTITION, staged.task % count)
                if number is None or not 0 <= number < count:
                    raise SparkBridgeError(
                        f"{self._format}: column {PARTITION!r} is {number} in row {row}, and topic {self._topic!r} of"
                        f" log {self._path} has the partitions 0 to {count - 1}"
                    )
                found.setdefault(number, []).append(row[VALUE] if self._is_value else row)
            yield from found.items()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """A task has failed: the rows that others have stored are not needed."""
        file_system, _ = file_system_of(self._path)
        for one in messages:
            if isinstance(one, StagedTask) and one.path:
                with suppress(OSError):
                    file_system.delete(one.path)


def _packed(batch: pa.RecordBatch) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _stored_rows(files: FileSystem, path: str) -> Iterator[list[dict[str, Any]]]:
    """The rows of a file, some at a time."""
    import pyarrow as pa

    with files.open_read(path) as file:
        while length := file.read(_LENGTH.size):
            table = pa.ipc.open_stream(file.read(*_LENGTH.unpack(length))).read_all()
            for start in range(0, len(table), _ROWS_PER_APPEND):
                yield python_rows(table.slice(start, _ROWS_PER_APPEND))


def _staged_by(log: str, query: str) -> str:
    return posixpath.join(log, _STAGED, query)


def _delete(file_system: FileSystem, directory: str) -> None:
    """Files of attempts that Spark has given up, too: no task of the batch runs any more."""
    with suppress(OSError):
        for name in file_system.list_dir(directory):
            file_system.delete(posixpath.join(directory, name))
