"""A transactional log in memory: the rules of :mod:`operators.log.port`, every request recorded, all of it
open to faults.

What readers see is decided by the partitions alone, as on a real log: by markers, not by what the coordinator of
transactions remembers. ``validate`` holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.elements.errors import ConfigurationError
from operators.log.port import (
    ANSWER_LOST,
    DATA,
    DEFAULT_ID_EXPIRATION_NS,
    DEFAULT_MAX_TIMEOUT_NS,
    DELIVERED,
    EXPIRE,
    FATES,
    FENCE,
    LATE_MARKER,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    REQUEST_LOST,
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

__all__ = [
    "ANSWER_LOST",
    "DEFAULT_MAX_TIMEOUT_NS",
    "DELIVERED",
    "EXPIRE",
    "FATES",
    "FENCE",
    "LATE_MARKER",
    "REQUEST_LOST",
    "MemoryTransactionLog",
]


class MemoryTransactionLog(TransactionCoordinator[list[LogEntry]]):
    """See the module, and :class:`TransactionCoordinator` for its attributes."""

    def __init__(
        self,
        *,
        max_timeout_ns: int = DEFAULT_MAX_TIMEOUT_NS,
        id_expiration_ns: int | None = DEFAULT_ID_EXPIRATION_NS,
    ) -> None:
        super().__init__(max_timeout_ns=max_timeout_ns, id_expiration_ns=id_expiration_ns)
        self._topics: dict[str, list[list[LogEntry]]] = {}

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

    def partitions(self, topic: str) -> int:
        return len(self._partitions(topic))

    def topics(self) -> Sequence[str]:
        """Their names, in the order in which they were made."""
        return list(self._topics)

    def _partitions(self, topic: str) -> list[list[LogEntry]]:
        found = self._topics.get(topic)
        if found is None:
            known = ", ".join(self._topics) or "none"
            raise ConfigurationError(f"there is no topic {topic!r}: create it first (there are: {known})")
        return found

    # --- partitions ---------------------------------------------------------------------------------------

    def _partition(self, topic: str, partition: int) -> list[LogEntry]:
        partitions = self._partitions(topic)
        if not 0 <= partition < len(partitions):
            raise ConfigurationError(f"topic {topic!r} has partitions 0 to {len(partitions) - 1}, and no {partition}")
        return partitions[partition]

    def _write(self, entries: list[LogEntry], producer: Producer | None, values: Sequence[object]) -> None:
        start = len(entries)
        entries.extend([LogEntry(start + at, DATA, producer, value) for at, value in enumerate(values)])

    def _mark(self, entries: list[LogEntry], kind: str, producer: Producer) -> None:
        entries.append(LogEntry(len(entries), kind, producer, None))

    def entries(self, topic: str, partition: int) -> Sequence[LogEntry]:
        """Everything in a partition, markers included."""
        return tuple(self._partition(topic, partition))

    def end_offset(self, topic: str, partition: int) -> int:
        """The offset that the next entry will get (Kafka: the high watermark)."""
        return len(self._partition(topic, partition))

    def last_stable_offset(self, topic: str, partition: int) -> int:
        """The offset of the first record that is still undecided, or the end."""
        key, end = (topic, partition), self.end_offset(topic, partition)
        return min((name.first_offsets.get(key, end) for name in self._names.values()), default=end)

    def aborted_ranges(self, topic: str, partition: int) -> Sequence[tuple[Producer, int, int]]:
        """Of every aborted transaction: the offsets of its first record and of its marker (Kafka: the transaction
        index, by which readers know what to skip)."""
        return aborted_ranges(self._partition(topic, partition))

    def read(
        self, topic: str, partition: int, offset: int = 0, isolation: str = READ_COMMITTED
    ) -> Sequence[LogRecord]:
        if isolation not in (READ_COMMITTED, READ_UNCOMMITTED):
            raise ConfigurationError(f"isolation is {isolation!r}: say {READ_COMMITTED!r} or {READ_UNCOMMITTED!r}")
        entries = self._partition(topic, partition)
        if isolation == READ_UNCOMMITTED:
            chosen: Iterator[LogEntry] = (entry for entry in entries if entry.kind == DATA)
        else:
            chosen = decided(entries, self.last_stable_offset(topic, partition))
        return [LogRecord(one.offset, one.value, one.producer) for one in chosen if one.offset >= offset]

    def committed(self, topic: str, partition: int) -> Sequence[LogRecord]:
        """What a reader will have seen once everything that is open now is given up: what is committed today, also
        behind the last stable offset."""
        entries = self._partition(topic, partition)
        return [LogRecord(one.offset, one.value, one.producer) for one in decided(entries, len(entries))]

    def flush(self) -> None:
        """See the port; memory has nothing more durable than itself."""

    # --- for whoever watches ------------------------------------------------------------------------------

    def fingerprint(self) -> object:
        """What decides what the log will say, and what readers see. Not: when transactions began, for their timeouts
        are far away from what is compared, and not the history."""
        return (
            tuple(
                (topic, tuple(tuple((one.kind, one.producer, repr(one.value)) for one in part) for part in partitions))
                for topic, partitions in sorted(self._topics.items())
            ),
            tuple((key, state_of(name)) for key, name in sorted(self._names.items())),
            tuple((one.kind, one.transactional_id, one.epoch) for one in self._late),
        )

    def validate(self) -> None:
        """What must always hold; an ``AssertionError`` says what does not."""
        for topic, partitions in self._topics.items():
            for number, entries in enumerate(partitions):
                validate_partition(f"{topic}-{number}", entries, self._names)
                assert self.last_stable_offset(topic, number) <= len(entries), topic
        validate_names(self._names)
