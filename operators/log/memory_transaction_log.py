"""A transactional log in memory, with the rules of :mod:`operators.log.port`. It records every request, and exploration
can inject a fault into each.

The partitions alone decide what readers see, as in a real log: readers obey markers, not the memory of the transaction
coordinator. ``validate`` compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.elements.errors import ConfigurationError
from operators.log.port import (
    DATA,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    LogEntry,
    LogRecord,
    Producer,
    TransactionCoordinator,
    check_isolation,
    decided,
    validate_names,
    validate_partition,
)

_new_tuple = tuple.__new__


class MemoryTransactionLog(TransactionCoordinator[list[LogEntry]]):
    """See the module, and :class:`TransactionCoordinator` for its attributes."""

    # --- topics -------------------------------------------------------------------------------------------

    def create_topic(self, topic: str, partitions: int) -> None:
        if not topic or partitions < 1:
            raise ConfigurationError(f"topic {topic!r} with {partitions} partitions: it needs a name and at least one")
        existing = self._topics.setdefault(topic, [[] for _ in range(partitions)])
        if len(existing) != partitions:
            raise ConfigurationError(
                f"topic {topic!r} has {len(existing)} partitions, not {partitions}; name another topic, or ask for as"
                " many as there are"
            )

    # --- partitions ---------------------------------------------------------------------------------------

    def _entries(self, partition: list[LogEntry]) -> list[LogEntry]:
        return partition

    def _write(self, entries: list[LogEntry], producer: Producer | None, values: Sequence[object]) -> None:
        start = len(entries)
        # Written out here and for requests: half as long as calling the class of a named tuple.
        entries += [_new_tuple(LogEntry, (at, DATA, producer, value)) for at, value in enumerate(values, start)]

    def _mark(self, entries: list[LogEntry], kind: str, producer: Producer) -> None:
        entries.append(LogEntry(len(entries), kind, producer, None))

    def last_stable_offset(self, topic: str, partition: int) -> int:
        """The offset of the first record that is still undecided, or the end."""
        key, end = (topic, partition), self.end_offset(topic, partition)
        return min((name.first_offsets.get(key, end) for name in self._names.values()), default=end)

    def read(self, topic: str, partition: int, offset: int = 0, isolation: str = READ_COMMITTED) -> Sequence[LogRecord]:
        check_isolation(isolation)
        # An offset is an index, and the marker of a transaction comes after its records.
        entries = self._partition(topic, partition)[max(0, offset) :]
        if isolation == READ_UNCOMMITTED:
            return [LogRecord(one.offset, one.value, one.producer) for one in entries if one.kind == DATA]
        return decided(entries, self.last_stable_offset(topic, partition))

    def flush(self) -> None:
        """See the port; a log in memory cannot make anything more durable."""

    # --- for observers ------------------------------------------------------------------------------------

    def validate(self) -> None:
        for topic, partitions in self._topics.items():
            for number, entries in enumerate(partitions):
                validate_partition(f"{topic}-{number}", entries, self._names)
                assert self.last_stable_offset(topic, number) <= len(entries), topic
        validate_names(self._names)
