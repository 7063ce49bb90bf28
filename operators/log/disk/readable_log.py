"""What can be asked of a log on disk by whoever holds it, beside requests: topics, records, and whether it is sound."""

from __future__ import annotations

from collections.abc import Sequence

from engine.elements.errors import ConfigurationError
from operators.log.disk.partition_log import PartitionLog
from operators.log.port import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    LogEntry,
    LogRecord,
    Producer,
    TransactionCoordinator,
    aborted_ranges,
    decided,
    state_of,
    validate_names,
    validate_partition,
)


class ReadableLog(TransactionCoordinator[PartitionLog]):
    """The partitions of a log on disk, open."""

    _topics: dict[str, list[PartitionLog]]

    # --- topics -------------------------------------------------------------------------------------------

    def partitions(self, topic: str) -> int:
        return len(self._partitions(topic))

    def topics(self) -> Sequence[str]:
        """Their names."""
        return list(self._topics)

    def _partitions(self, topic: str) -> list[PartitionLog]:
        found = self._topics.get(topic)
        if found is None:
            known = ", ".join(self._topics) or "none"
            raise ConfigurationError(f"there is no topic {topic!r}: create it first (there are: {known})")
        return found

    def _partition(self, topic: str, partition: int) -> PartitionLog:
        partitions = self._partitions(topic)
        if not 0 <= partition < len(partitions):
            raise ConfigurationError(f"topic {topic!r} has partitions 0 to {len(partitions) - 1}, and no {partition}")
        return partitions[partition]

    # --- reading ------------------------------------------------------------------------------------------

    def entries(self, topic: str, partition: int) -> Sequence[LogEntry]:
        """Everything in a partition that is still there, markers included."""
        return _entries_of(self._partition(topic, partition))

    def earliest_offset(self, topic: str, partition: int) -> int:
        """The first offset that retention has left (Kafka: the log start offset)."""
        return self._partition(topic, partition).earliest_offset

    def end_offset(self, topic: str, partition: int) -> int:
        """The offset that the next entry will get (Kafka: the high watermark)."""
        return self._partition(topic, partition).end_offset

    def last_stable_offset(self, topic: str, partition: int) -> int:
        """The offset of the first record that is still undecided, or the end."""
        return self._partition(topic, partition).stable_offset()

    def aborted_ranges(self, topic: str, partition: int) -> Sequence[tuple[Producer, int, int]]:
        """Of every aborted transaction: the offsets of its first record and of its marker."""
        return aborted_ranges(self.entries(topic, partition))

    def read(
        self, topic: str, partition: int, offset: int = 0, isolation: str = READ_COMMITTED
    ) -> Sequence[LogRecord]:
        """See the port. Raises :class:`OffsetOutOfRangeError` when retention has deleted
        ``offset``, or it is behind the end."""
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

    def committed(self, topic: str, partition: int) -> Sequence[LogRecord]:
        """What is committed today, also behind the last stable offset."""
        chosen = decided(self.entries(topic, partition), self._partition(topic, partition).end_offset)
        return [LogRecord(one.offset, one.value, one.producer) for one in chosen]

    # --- for whoever watches ------------------------------------------------------------------------------

    def fingerprint(self) -> object:
        """What decides what the log will say, and what readers see."""
        return (
            tuple((topic, tuple(map(_fingerprint, partitions))) for topic, partitions in sorted(self._topics.items())),
            tuple((key, state_of(name)) for key, name in sorted(self._names.items())),
            tuple((one.kind, one.transactional_id, one.epoch) for one in self._late),
        )

    def validate(self) -> None:
        """What must always hold; an ``AssertionError`` says what does not."""
        for topic, partitions in self._topics.items():
            for number, partition in enumerate(partitions):
                entries = self.entries(topic, number)
                complete = partition.earliest_offset == 0
                validate_partition(f"{topic}-{number}", entries, self._names, complete=complete)
                firsts = [name.first_offsets.get((topic, number)) for name in self._names.values()]
                stable = min((first for first in firsts if first is not None), default=partition.end_offset)
                assert partition.stable_offset() == stable, f"{topic}-{number}: {partition.stable_offset()} {stable}"
        validate_names(self._names)


def _entries_of(partition: PartitionLog) -> list[LogEntry]:
    batches = partition.batches(partition.earliest_offset)
    return [entry for batch in batches for entry in batch.entries(partition.where)]


def _fingerprint(partition: PartitionLog) -> tuple[object, ...]:
    return tuple((one.kind, one.producer, repr(one.value)) for one in _entries_of(partition))
