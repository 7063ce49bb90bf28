"""The source that reads a log on disk (Flink: ``KafkaSource``).

Rules.

* A partition is a split. The source reads it from the offset in its state; the state alone decides where a restored
  job resumes. The source takes no lock and does not disturb the log's writer.
* ``read_committed`` (the default) emits records of committed transactions and records without a transaction, up to the
  last stable offset. ``read_uncommitted`` emits every record that the writer has given to the operating system.
* The start offset, and the end of a bounded source, are determined once, when a split is first opened. Both are part
  of the position.
* Data is lost if retention has deleted the position, or the log ends before it or holds another record there. A restart
  does not help.
* The timestamp of a record is the time when it was appended, in ms. A watermark strategy with its own timestamp
  function replaces it. Watermarks are per split.
* With a ``group`` the source commits the offsets of completed checkpoints to it, for monitoring from outside
  (:mod:`operators.log.disk.consumer_groups`). The source never reads them.
* Partitions added to a topic are read from their beginning, whatever ``start`` says. They are found when the job starts
  again, and with ``discovery_interval_ms`` while it runs: see
  :mod:`operators.sources.discovering_source_operator`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, DataLossError, UserFunctionError, check_whole
from engine.elements.operator import OperatorFactory
from engine.elements.source import SourceCheckpointListener, SourceContext, SplitReader
from operators.log.disk import (
    DiskLog,
    Extent,
    GroupOffsets,
    PartitionReader,
    check_log_path,
    check_name,
    extent_of,
    partition_directory,
    partitions_of,
    topics_of,
)
from operators.log.port import READ_COMMITTED, OffsetOutOfRangeError, check_isolation
from operators.sources import check_discovery, discovering_factory
from state_backends.base import optional, row, whole

if TYPE_CHECKING:
    from operators.time import WatermarkStrategy

EARLIEST, LATEST = "earliest", "latest"
DEFAULT_POLL_MS = 100


class LogSource:
    """The records of a topic of a log on disk.

    ``log``         a :class:`~operators.log.disk.DiskLog`, or its path, relative to the working directory;
    ``partitions``  the partitions to read, ``None`` = all;
    ``isolation``   ``"read_committed"`` or ``"read_uncommitted"``;
    ``start``       ``"earliest"``, ``"latest"`` (records appended from now on), or offsets by partition, only for
                    partitions that are read; the others begin with the earliest;
    ``start_at_ms`` replaces ``start``: begin with the first batch appended at this time or later;
    ``bounded``     whether a split ends where the log ended when it was first opened. An unbounded source polls every
                    ``poll_ms`` of virtual time, for ever;
    ``discovery_interval_ms``  look for new partitions in intervals of virtual time; ``None`` = only at the job's start;
    ``group``       the group that offsets are committed to, ``None`` = no group;
    ``value``       ``value -> record``; by default the value itself.
    """

    def __init__(
        self,
        log: DiskLog | str,
        topic: str,
        partitions: Sequence[int] | None = None,
        *,
        isolation: str = READ_COMMITTED,
        start: str | Mapping[int, int] = EARLIEST,
        start_at_ms: int | None = None,
        bounded: bool = True,
        poll_ms: int = DEFAULT_POLL_MS,
        discovery_interval_ms: int | None = None,
        group: str | None = None,
        value: Callable[[Any], Any] | None = None,
    ) -> None:
        path = log.path if isinstance(log, DiskLog) else log
        check_log_path(path)
        check_name("topic", topic)
        check_isolation(isolation)
        check_start(start, start_at_ms)
        _check_partitions(partitions)
        check_whole("poll_ms", poll_ms)
        check_discovery(discovery_interval_ms, bounded=bounded, reads_all=partitions is None)
        if group is not None:
            check_name("consumer group", group)
        self.group, self._value = group, value
        self.path, self.topic, self._isolation = path, topic, isolation
        self._partitions = None if partitions is None else tuple(partitions)
        self._start = start if isinstance(start, str) else dict(start)
        self._start_at_ms = start_at_ms
        self._is_bounded, self._poll_ns = bounded, poll_ms * 1_000_000
        self.discovery_interval_ms = discovery_interval_ms

    position_shape = staticmethod(row(optional(whole), optional(whole), optional(whole)))

    gained_position = (None, None, None)
    """For partitions added to the topic since the job began: no record of them has been read."""

    def splits(self, context: SourceContext) -> Sequence[str]:
        """``topic-0`` .., one per partition. Raises :class:`ConfigurationError` when the topic does not exist."""
        files = context.file_system()
        count = partitions_of(files, self.path, self.topic)
        if count is None:
            known = ", ".join(topics_of(files, self.path)) or "none"
            raise ConfigurationError(
                f"source {context.name!r}: log {self.path!r} has no topic {self.topic!r} (there are: {known})\n"
                "  fix: correct the path or the name, or run the job that writes it first"
            )
        numbers = tuple(range(count)) if self._partitions is None else self._partitions
        missing = [number for number in numbers if number >= count]
        if missing:
            raise ConfigurationError(
                f"source {context.name!r}: topic {self.topic!r} has partitions 0 to {count - 1}, and no {missing[0]}"
            )
        check_offsets(f"source {context.name!r}", self.topic, self._start, numbers)
        return [f"{self.topic}-{number}" for number in numbers]

    def operator_factory(self, watermarks: WatermarkStrategy | None) -> OperatorFactory | None:
        """The factory of operators that look for new partitions; ``None`` if they do not."""
        return discovering_factory(self, watermarks)

    def checkpoint_listener(self, context: SourceContext) -> SourceCheckpointListener | None:
        """Commits offsets to the group, if there is one."""
        return None if self.group is None else GroupOffsets(context, self.path, self.topic, self.group)

    def open_split(self, split: str, position: Any, context: SourceContext) -> SplitReader:
        """A reader of a partition. A position is ``(offset, checksum, end offset)``.

        Raises :class:`DataLossError` when the log no longer has the position.
        """
        files, number = context.file_system(), int(split.rpartition("-")[2])
        directory = partition_directory(self.path, self.topic, number)
        where = f"{split} of log {self.path}"
        if position is None or position[0] is None:
            at_ns = None if self._start_at_ms is None else self._start_at_ms * 1_000_000
            extent = extent_of(files, directory, where, at_ns)
            offset = self._first_offset(number, extent, where) if position is None else extent.earliest
            crc = None
            readable = extent.stable if self._isolation == READ_COMMITTED else extent.end
            end = readable if self._is_bounded else None
        else:
            offset, crc, end = position
            if self._is_bounded:
                # Otherwise the job would wait for ever for records that never come.
                extent = extent_of(files, directory, where)
                if end is None:
                    end = extent.stable if self._isolation == READ_COMMITTED else extent.end
                elif end > extent.end:
                    raise DataLossError(
                        f"source {context.name!r} cannot go on: {where} was to be read up to offset {end}, and has"
                        f" {extent.end}\n  put the log back, or start the job anew in another storage directory"
                    )
        try:
            reader = PartitionReader(files, directory, where, offset, crc=crc, isolation=self._isolation)
        except OffsetOutOfRangeError as error:
            raise DataLossError(
                f"source {context.name!r} cannot go on: {error}\n  what it has not read is lost; fix: have the log keep"
                " more than a job can fall behind, or start the job anew in another storage directory"
            ) from error
        return _LogSplitReader(
            reader, end, self._poll_ns, partial(self._record_of, split, context) if self._value else None
        )

    def _record_of(self, split: str, context: SourceContext, value: Any) -> Any:
        assert self._value is not None
        try:
            return self._value(value)
        except Exception as error:
            raise UserFunctionError(context.name, f"value, of {split}", value, context.attempt, error) from error

    def _first_offset(self, number: int, extent: Extent, where: str) -> int:
        if self._start_at_ms is not None:
            return extent.at_or_after
        if self._start == LATEST:
            return extent.stable if self._isolation == READ_COMMITTED else extent.end
        if isinstance(self._start, str):
            return extent.earliest
        offset = self._start.get(number, extent.earliest)
        if not extent.earliest <= offset <= extent.end:
            raise ConfigurationError(str(OffsetOutOfRangeError(where, offset, extent.earliest, extent.end)))
        return offset


class _LogSplitReader:
    __slots__ = ("_end", "_poll_ns", "_reader", "_record_of")

    def __init__(
        self, reader: PartitionReader, end: int | None, poll_ns: int, record_of: Callable[[Any], Any] | None
    ) -> None:
        self._reader, self._end, self._poll_ns, self._record_of = reader, end, poll_ns, record_of

    def read(self, max_records: int) -> Batch | None:
        values, times_ms = self._reader.read(max_records, self._end)
        if not values and self._end is not None and self._reader.is_at(self._end):
            return None
        return Batch(values if self._record_of is None else list(map(self._record_of, values)), times_ms)

    def position(self) -> Any:
        return (self._reader.offset, self._reader.crc, self._end)

    def available_at_ns(self, now_ns: int) -> int:
        return now_ns + self._poll_ns

    def close(self) -> None:
        """No file is open between two reads."""


def _check_partitions(partitions: object) -> None:
    if partitions is None:
        return
    numbers = list(partitions) if isinstance(partitions, Sequence) and not isinstance(partitions, str) else []
    is_sound = numbers and all(type(number) is int and number >= 0 for number in numbers)
    if not is_sound or len(dict.fromkeys(numbers)) != len(numbers):
        raise ConfigurationError(
            f"partitions is {partitions!r}; it must be the numbers of those to read, each once, or None for all"
        )


def check_offsets(what: str, topic: str, start: str | Mapping[int, int], numbers: Sequence[int]) -> None:
    """Raises :class:`ConfigurationError` when ``start`` names a partition that is not among those read."""
    unread = [] if isinstance(start, str) else [number for number in start if number not in numbers]
    if unread:
        raise ConfigurationError(
            f"{what}: start gives an offset for partition {unread[0]} of topic {topic!r}, which is not read (it reads"
            f" {', '.join(map(str, numbers))})\n  fix: leave it out, or read it"
        )


def check_start(start: object, start_at_ms: int | None = None) -> None:
    """Raises :class:`ConfigurationError` unless both are valid and at most one of them is given."""
    check_whole("start_at_ms", start_at_ms, 0, or_none=True)
    if start_at_ms is not None and start != EARLIEST:
        raise ConfigurationError("start and start_at_ms both say where to begin: give one of them")
    if isinstance(start, Mapping):
        wrong = [one for one in start.items() if type(one[0]) is not int or type(one[1]) is not int or one[1] < 0]
        if wrong:
            raise ConfigurationError(f"start says {wrong[0]!r}: it must be an offset from 0 for a partition")
    elif start not in (EARLIEST, LATEST):
        raise ConfigurationError(f"start is {start!r}; it must be 'earliest', 'latest' or offsets by partition")
