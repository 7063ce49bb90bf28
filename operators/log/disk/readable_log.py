"""What the holder of a log on disk can ask it beside requests: topics, records, and whether it is sound."""

from __future__ import annotations

from collections.abc import Sequence

from engine.elements.errors import ConfigurationError
from operators.log.disk.partition_log import PartitionLog
from operators.log.port import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    LogEntry,
    LogRecord,
    TransactionCoordinator,
    validate_names,
    validate_partition,
)


class ReadableLog(TransactionCoordinator[PartitionLog]):
    """The partitions of a log on disk, open."""

    def _entries(self, partition: PartitionLog) -> list[LogEntry]:
        batches = partition.batches(partition.earliest_offset)
        return [entry for batch in batches for entry in batch.entries(partition.where)]

    def earliest_offset(self, topic: str, partition: int) -> int:
        """The first offset that retention has left (Kafka: the log start offset)."""
        return self._partition(topic, partition).earliest_offset

    def last_stable_offset(self, topic: str, partition: int) -> int:
        """The offset of the first record that is still undecided, or the end."""
        return self._partition(topic, partition).stable_offset()

    def read(self, topic: str, partition: int, offset: int = 0, isolation: str = READ_COMMITTED) -> Sequence[LogRecord]:
        """See the port. Raises :class:`OffsetOutOfRangeError` when retention has deleted
        ``offset``, or it is after the end."""
        if isolation not in (READ_COMMITTED, READ_UNCOMMITTED):
            raise ConfigurationError(f"isolation is {isolation!r}: say {READ_COMMITTED!r} or {READ_UNCOMMITTED!r}")
        found = self._partition(topic, partition)
        end = found.end_offset if isolation == READ_UNCOMMITTED else found.stable_offset()
        hidden = found.transactions.aborted if isolation == READ_COMMITTED else {}
        return [
            record
            for batch in found.batches(offset)
            if batch.first_offset < end and batch.producer not in hidden
            for record in batch.records(found.where)
            if record.offset >= offset
        ]

    def validate(self) -> None:
        for topic, partitions in self._topics.items():
            for number, partition in enumerate(partitions):
                entries = self.entries(topic, number)
                complete = partition.earliest_offset == 0
                validate_partition(f"{topic}-{number}", entries, self._names, complete=complete)
                firsts = [name.first_offsets.get((topic, number)) for name in self._names.values()]
                stable = min((first for first in firsts if first is not None), default=partition.end_offset)
                assert partition.stable_offset() == stable, f"{topic}-{number}: {partition.stable_offset()} {stable}"
        validate_names(self._names)
