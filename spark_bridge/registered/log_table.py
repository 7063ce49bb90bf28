"""``weir.log``: a topic of a log on disk as a DataFrame, one row for each committed record; in batch and as a stream.
``log_writer`` writes one.

Each partition of the topic is read by one task. A query reads up to the first record that is still undecided when it
starts, so a task that runs again reads the same rows. The offsets of a stream are positions by partition, with the
checksum of the batch before: a log that was cut or replaced since is an error, not a gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from engine.elements.suggestions import nearest
from operators.log.disk import PartitionReader, StableEnd, partition_directory, partitions_of, topics_of
from spark_bridge.errors import SparkBridgeError
from spark_bridge.registered.log_writer import LogWriter
from spark_bridge.registered.source_options import SourceOptions, file_system_of
from spark_bridge.registered.typed_columns import ROWS_PER_BATCH, Columns
from state_backends.codec import inspecting_codec
from state_backends.files import FileSystem

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORMAT = "weir.log"

LOG_SCHEMA = (
    "topic string not null, partition int not null, offset bigint not null, timestamp_ms bigint not null,"
    " value string not null, value_bytes binary not null"
)
"""``timestamp_ms`` is when the record was appended, by the clock of its writer."""

EARLIEST, LATEST = "earliest", "latest"

Positions = dict[str, tuple[int, int | None]]
"""By partition, as text: the offset, and the checksum of the batch before it."""


class LogTable(DataSource):
    """Options: ``path`` and ``topic``; of a stream also ``starting_offsets`` (``earliest``, or ``latest``) and
    ``max_records`` of a batch, about; of a stream that is written ``partitions``, for a topic that is new."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def __init__(self, options: Mapping[str, str]) -> None:
        others = ["starting_offsets", "max_records", "partitions"]
        # Spark keeps the place of its own log among the options of a query.
        given = {name: value for name, value in options.items() if name.lower() != "checkpointlocation"}
        chosen = SourceOptions(FORMAT, given, ["path", "topic"], others)
        _, self._path = chosen.place()
        self._topic = chosen.get("topic") or ""
        self._start = chosen.get("starting_offsets") or EARLIEST
        if self._start not in (EARLIEST, LATEST):
            raise SparkBridgeError(f"{FORMAT}: starting_offsets is {self._start!r}; it must be {EARLIEST} or {LATEST}")
        self._most = None if chosen.get("max_records") is None else chosen.count("max_records", 1)
        self._new_partitions = chosen.count("partitions", 1)

    def schema(self) -> str:
        self._check()
        return LOG_SCHEMA

    def _check(self) -> None:
        """A topic that is read must be there; one that is written need not."""
        _partitions(*file_system_of(self._path), self._topic)

    def reader(self, schema: StructType) -> LogTableReader:
        return LogTableReader(self._path, self._topic, self._columns(schema))

    def streamReader(self, schema: StructType) -> LogStreamReader:
        return LogStreamReader(self._path, self._topic, self._columns(schema), self._start, self._most)

    def streamWriter(self, schema: StructType, overwrite: bool) -> LogWriter:
        if overwrite:
            raise SparkBridgeError(f'{FORMAT} only appends: use outputMode("append")')
        return LogWriter(FORMAT, self._path, self._topic, self._new_partitions, schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        raise SparkBridgeError(f"{FORMAT} is written by streaming queries: use df.writeStream, or a job with a LogSink")

    def _columns(self, schema: StructType) -> Columns:
        self._check()
        return Columns(FORMAT, LOG_SCHEMA, ["value"], schema)


def _partitions(file_system: FileSystem, log: str, topic: str) -> int:
    count = partitions_of(file_system, log, topic)
    if count is None:
        topics = topics_of(file_system, log)
        if not topics:
            raise SparkBridgeError(f"{FORMAT}: {log}: there is no log with a topic")
        close = nearest(topic, topics)
        hint = f"did you mean {close!r}?" if close else f"it has {', '.join(topics)}"
        raise SparkBridgeError(f"{FORMAT}: {log}: has no topic {topic!r}; {hint}")
    return count


class _Reading:
    """What batches and streams share: the log, and how a task reads."""

    def __init__(self, path: str, topic: str, columns: Columns) -> None:
        self._path, self._topic, self._columns = path, topic, columns

    def _count(self) -> int:
        return _partitions(*file_system_of(self._path), self._topic)

    def _end(self, partition: int, position: tuple[int, int | None] | None) -> StableEnd:
        file_system, log = file_system_of(self._path)
        directory = partition_directory(log, self._topic, partition)
        return StableEnd(file_system, directory, self._where(partition), position)

    def _where(self, partition: int) -> str:
        return f"{self._topic}-{partition} of log {self._path}"

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of one partition from one position to an offset."""
        number, offset, crc, end = partition.value
        file_system, log = file_system_of(self._path)
        directory = partition_directory(log, self._topic, number)
        reader = PartitionReader(file_system, directory, self._where(number), offset, crc=crc)
        while (run := reader.next_run(ROWS_PER_BATCH, end)) is not None:
            yield self._batch(number, run.first_offset, run.values, run.time_ms)

    def _batch(self, partition: int, first: int, values: Sequence[Any], time_ms: int) -> Any:
        def column(name: str) -> Sequence[Any]:
            if name == "value":
                return self._columns.shown(values)
            if name == "value_bytes":
                return list(map(inspecting_codec().encode, values))
            if name == "offset":
                return range(first, first + len(values))
            return [{"topic": self._topic, "partition": partition, "timestamp_ms": time_ms}[name]] * len(values)

        return self._columns.batch(column, lambda number: f"{self._where(partition)}, offset {first + number}")


class LogTableReader(_Reading, DataSourceReader):
    """Reads what is decided when the query starts."""

    def partitions(self) -> Sequence[InputPartition]:
        found = []
        for number in range(self._count()):
            end = self._end(number, None)
            start = end.position
            end.look()
            found.append(InputPartition((number, *start, end.advance()[0])))
        return found


class LogStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what is new in each batch. It lives in a process of its own, from batch to batch."""

    def __init__(self, path: str, topic: str, columns: Columns, start: str, most: int | None) -> None:
        super().__init__(path, topic, columns)
        self._start, self._most = start, most
        self._ends: dict[str, StableEnd] = {}
        self._is_frozen = False

    def initialOffset(self) -> Positions:
        ends = {str(number): self._end(number, None) for number in range(self._count())}
        if self._start == LATEST:
            for end in ends.values():
                end.look()
                end.advance()
        return {number: end.position for number, end in ends.items()}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._most is None else ReadMaxRows(self._most)

    def prepareForTriggerAvailableNow(self) -> None:
        """What is written from the first batch on is left to the next query."""
        self._is_frozen = True

    def latestOffset(self, start: Positions, limit: ReadLimit) -> Positions:
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        numbers = list(self._ends) if self._is_frozen and self._ends else list(map(str, range(self._count())))
        for number in numbers:
            end = self._ends.get(number)
            if end is None:
                # A partition that is new begins at its first record.
                at = start.get(number)
                end = self._ends[number] = self._end(int(number), None if at is None else (at[0], at[1]))
                end.look()
            elif not self._is_frozen:
                end.look()
        share = None if most is None else most // len(numbers)
        return {number: self._ends[number].advance(share) for number in numbers}

    def partitions(self, start: Positions, end: Positions) -> Sequence[InputPartition]:
        found = []
        for number, (stop, _) in end.items():
            offset, crc = start[number] if number in start else self._end(int(number), None).position
            if stop > offset:
                found.append(InputPartition((int(number), offset, crc, stop)))
        return found
