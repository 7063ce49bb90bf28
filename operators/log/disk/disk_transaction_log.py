"""A transactional log on disk: the rules of :mod:`operators.log.port.transaction_log` over files that outlive jobs and
processes.

Rules (Kafka's, where it has the same problem).

* The journal is the truth about names, the partitions are the truth about records. A change is durable in the journal
  before anything depends on it. The beginning of a transaction need not be: its records prove it.
* ``prepare`` makes the records of a transaction durable. Then it writes their number in each partition to the journal.
  ``commit`` does that too, if there was no ``prepare``.
* A commit has happened when it is in the journal. The log writes the markers afterwards; recovery writes the missing
  ones. Readers obey markers alone, so they never see a commit that could be undone. Markers are made durable, too: a
  power cut must not take away records that readers have seen or skipped, because readers recognize their log by the
  batch before their position.
* Recovery reads the names (a snapshot and the changes after it), then the partitions, and compares the two. An open
  transaction keeps the records found, and its producer may go on. A prepared one must have as many records as were
  prepared; otherwise the log is damaged.
* One process writes and holds a lock on the directory. Any process may read, with :mod:`operators.log.disk.log_reader`.
* After an error of the file system it is unknown what was written. The log cannot be used until it is opened again.

``fsync`` says what a power cut can lose. The death of the process alone loses, with every setting, only records of
transactions that are neither prepared nor committed.

``append``       nothing that was answered;
``transaction``  records without a transaction since the last ``flush``; no answered request of a transaction;
``never``        everything that the operating system has not yet written by itself; the log may then be damaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from engine.elements.errors import ConfigurationError
from operators.log.disk.log_settings import FSYNC_APPEND, FSYNC_NEVER, LogSettings
from operators.log.disk.partition_log import PartitionLog
from operators.log.disk.topics import check_name, lock_log, partition_directory, partitions_of, topics_of, write_topic
from operators.log.disk.transaction_journal import JournalSnapshot, Place, TransactionJournal
from operators.log.port import (
    ABORT_MARKER,
    BEGUN,
    COMMIT_MARKER,
    COMMITTED,
    DATA,
    ENDED,
    FORGOTTEN,
    IS_PREPARED,
    OPEN,
    PREPARED,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    REGISTERED,
    Change,
    LogCorruptError,
    LogEntry,
    LogRecord,
    Name,
    Producer,
    Request,
    TransactionCoordinator,
    TransactionLogError,
    check_isolation,
    validate_names,
    validate_partition,
)
from state_backends.files import FileSystem

_DURABLE = "durable"


class DiskTransactionLog(TransactionCoordinator[PartitionLog]):
    """See the module. Opening it recovers it.

    :ivar truncated_bytes: how much recovery has cut off, always records without an answer to their producer
    :ivar completed_markers: how many transaction markers recovery has written
    """

    def __init__(self, fs: FileSystem, directory: str, settings: LogSettings | None = None) -> None:
        """Raises :class:`StorageError` when another process writes to the log, or it is not writable;
        :class:`LogCorruptError` when it is damaged."""
        self.settings = LogSettings() if settings is None else settings
        self.settings.check()
        super().__init__(
            max_timeout_ns=self.settings.max_timeout_ns,
            keeps_history=self.settings.keeps_history,
            id_expiration_ns=self.settings.id_expiration_ns,
        )
        self.directory = directory
        self._fs = fs
        self._never_syncs = self.settings.fsync == FSYNC_NEVER
        self._broken: str | None = None
        self._postponed: list[tuple[PartitionLog, str, Producer]] | None = None
        """The markers of a group of requests; they wait for the journal."""
        self.completed_markers = 0
        self._lock = lock_log(fs, directory)
        try:
            self._recover()
        except BaseException:
            self._lock.release()
            raise

    # --- recovery -----------------------------------------------------------------------------------------

    def _recover(self) -> None:
        with self._writing("cannot be opened"):
            self._journal = TransactionJournal(
                self._fs, self.directory, segment_bytes=self.settings.segment_bytes, never_syncs=self._never_syncs
            )
            snapshot = self._journal.recover()
            self._names, self._now_ns, self._first_epoch = snapshot.names, snapshot.now_ns, snapshot.first_epoch
            durable: dict[Place, int] = {}
            prepared: dict[str, dict[Place, int]] = {}
            with self._journal.reading():
                for at_ns, change in self._journal.changes(snapshot.offset):
                    self._replay(change, at_ns, durable, prepared)
            for topic in topics_of(self._fs, self.directory):
                self._open_topic(topic, snapshot, durable)
            self._recover_transactions(prepared)
            self._journal.sync()
            self._plan_expiry()

    @property
    def truncated_bytes(self) -> int:
        return sum(one.truncated_bytes for _, one in self._places()) + self._journal.truncated_bytes

    def _replay(
        self, change: Change, at_ns: int, durable: dict[Place, int], prepared: dict[str, dict[Place, int]]
    ) -> None:
        self._now_ns = max(self._now_ns, at_ns)
        if change[0] in (_DURABLE, IS_PREPARED, ENDED):
            for topic, number, count, end in change[-1]:
                durable[topic, number] = max(end, durable.get((topic, number), 0))
                if change[0] == IS_PREPARED:
                    prepared.setdefault(change[1], {})[topic, number] = count
        if change[0] == _DURABLE:
            return
        if change[0] != IS_PREPARED:
            prepared.pop(change[1], None)
        self._apply(change)

    def _open_topic(self, topic: str, snapshot: JournalSnapshot, durable: dict[Place, int]) -> None:
        count = partitions_of(self._fs, self.directory, topic)
        assert count is not None, topic
        self._topics[topic] = []
        for number in range(count):
            partition = self._new_partition(topic, number)
            point = snapshot.points.get((topic, number))
            partition.recover(max(durable.get((topic, number), 0), 0 if point is None else point.offset), point)

    def _new_partition(self, topic: str, number: int) -> PartitionLog:
        partition = PartitionLog(
            self._fs,
            partition_directory(self.directory, topic, number),
            f"{topic}-{number} of log {self.directory}",
            segment_bytes=self.settings.segment_bytes,
            never_syncs=self._never_syncs,
        )
        self._topics[topic].append(partition)
        return partition

    def _recover_transactions(self, prepared: dict[str, dict[Place, int]]) -> None:
        """Compare the journal with the partitions."""
        for place, partition in self._places():
            for producer, (first, count) in list(partition.transactions.open.items()):
                self._recover_transaction(place, partition, producer, first, count)
        for key, counts in prepared.items():
            name = self._names[key]
            missing = [place for place, count in counts.items() if name.written.get(place, 0) != count]
            if missing and name.state == PREPARED and not self._never_syncs:
                topic, number = missing[0]
                raise LogCorruptError(
                    partition_directory(self.directory, topic, number),
                    0,
                    f"transaction {Producer(key, name.epoch)} was prepared with {counts[missing[0]]} record(s) there,"
                    f" and {name.written.get(missing[0], 0)} are left",
                )

    def _recover_transaction(
        self, place: Place, partition: PartitionLog, producer: Producer, first: int, count: int
    ) -> None:
        name = self._names.get(producer.transactional_id)
        if name is None or producer.epoch > name.epoch:
            if not self._never_syncs:
                where = partition_directory(self.directory, *place)
                raise LogCorruptError(where, 0, f"{producer} has written records, and the journal does not know it")
            # The journal has lost more than the partition: no producer can commit this transaction any more.
            self._change(REGISTERED, *producer, self._max_timeout_ns)
            name = self._names[producer.transactional_id]
        ended = name.ended.get(producer.epoch)
        if ended is not None or producer.epoch < name.epoch:
            self._mark(partition, COMMIT_MARKER if ended == COMMITTED else ABORT_MARKER, producer)
            self.completed_markers += 1
            return
        if name.state is None:
            # The records are there, but the change that began their transaction was lost.
            self._change(BEGUN, *producer, self._now_ns)
        name.written[place], name.first_offsets[place] = count, first

    # --- topics -------------------------------------------------------------------------------------------

    def create_topic(self, topic: str, partitions: int) -> None:
        check_name("topic", topic)
        if type(partitions) is not int or partitions < 1:
            raise ConfigurationError(f"topic {topic!r} with {partitions} partitions: it needs at least one")
        existing = self._topics.get(topic)
        if existing is None:
            self._grow(topic, partitions)
        elif len(existing) != partitions:
            raise ConfigurationError(
                f"topic {topic!r} has {len(existing)} partitions, not {partitions}; name another topic, ask for as many"
                " as there are, or add partitions to it"
            )

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Increase the partitions of a topic to ``partitions``. This may change which partition a record goes to.

        Raises :class:`ConfigurationError` when it has more already.
        """
        existing = len(self._partitions(topic))
        if partitions < existing:
            raise ConfigurationError(f"topic {topic!r} has {existing} partitions, and none is ever taken away")
        self._grow(topic, partitions)

    def _grow(self, topic: str, partitions: int) -> None:
        with self._writing(f"cannot make topic {topic!r}"):
            write_topic(self._fs, self.directory, topic, partitions)
            self._topics.setdefault(topic, [])
            for number in range(len(self._topics[topic]), partitions):
                self._new_partition(topic, number).recover()

    # --- writing ------------------------------------------------------------------------------------------

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        if self._broken is not None:
            raise TransactionLogError(f"log {self.directory} {what}: it has failed before ({self._broken})")
        try:
            yield
        except OSError as error:
            self._broken = str(error)
            self._interrupted()
            raise TransactionLogError(
                f"log {self.directory} {what}: {error}\n  what was written last is not known; the log is not used any"
                " more until it has been opened again"
            ) from error

    def _arrives(self, request: Request) -> str:
        # Only between two requests: a snapshot must contain the effects of all changes in the journal.
        if self._journal.bytes_since_snapshot > self.settings.journal_bytes:
            self.write_snapshot()
        return super()._arrives(request)

    def _write(self, entries: PartitionLog, producer: Producer | None, values: Sequence[object]) -> None:
        if not values:
            return
        sequence = 0 if producer is None else entries.transactions.open.get(producer, (0, 0))[1]
        with self._writing("cannot be written"):
            entries.append(DATA, producer, values, sequence, self._now_ns)
            if self.settings.fsync == FSYNC_APPEND:
                entries.sync()
            elif producer is None:
                entries.flush()
            self._retain(entries)

    def _mark(self, entries: PartitionLog, kind: str, producer: Producer) -> None:
        if self._postponed is not None:
            self._postponed.append((entries, kind, producer))
            return
        self._write_marks([(entries, kind, producer)])

    def _write_marks(self, marks: Sequence[tuple[PartitionLog, str, Producer]]) -> None:
        with self._writing("cannot be written"):
            for entries, kind, producer in marks:
                entries.append(kind, producer, (), 0, self._now_ns)
            for entries, *_ in marks:
                # At most one fsync for each partition: after the first, everything in it is durable.
                entries.sync()
                self._retain(entries)

    def _retain(self, entries: PartitionLog) -> None:
        if not self.settings.retention.is_unlimited and entries.segment_count > 1:
            entries.retain(self.settings.retention)

    def _record_change(self, change: Change) -> None:
        kind, key, *_ = change
        with self._writing("cannot be written"):
            if kind in (IS_PREPARED, ENDED):
                name = self._names[key]
                is_kept = kind == IS_PREPARED or (change[3] == COMMITTED and name.state == OPEN)
                change = (*change, self._make_durable(name) if is_kept else [])
            if kind == FORGOTTEN:
                # Before a name is forgotten, the markers of its records must be durable.
                for _, partition in self._places():
                    partition.sync()
            self._journal.append(change, self._now_ns)
            if kind != BEGUN and self._postponed is None:
                self._journal.sync()

    @contextmanager
    def together(self) -> Iterator[None]:
        assert self._postponed is None, "groups of requests are not nested"
        postponed: list[tuple[PartitionLog, str, Producer]] = []
        self._postponed = postponed
        try:
            yield
        finally:
            self._postponed = None  # Also when one has failed: the others are carried out, and this log lives on.
            if self._broken is None:
                with self._writing("cannot be written"):
                    self._journal.sync()
                self._write_marks(postponed)

    def _make_durable(self, name: Name) -> list[tuple[str, int, int, int]]:
        """Make an open transaction's records durable: topic, partition, count, and the durable offset there."""
        places = []
        for (topic, number), count in name.written.items():
            partition = self._topics[topic][number]
            partition.sync()
            places.append((topic, number, count, partition.durable_offset))
        return places

    def flush(self) -> None:
        with self._writing("cannot be made durable"):
            places = []
            for place, partition in self._places():
                before = partition.durable_offset
                partition.sync()
                if partition.durable_offset > before:
                    places.append((*place, 0, partition.durable_offset))
            if places:
                self._journal.append((_DURABLE, None, -1, places), self._now_ns)
                self._journal.sync()

    def write_snapshot(self) -> None:
        """Bound the next recovery by the current state."""
        with self._writing("cannot be made durable"):
            points = {}
            for place, partition in self._places():
                partition.sync()
                points[place] = partition.recovery_point()
            self._journal.write_snapshot(self._now_ns, self._first_epoch, self._names, points)

    # --- for observers ------------------------------------------------------------------------------------

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
        check_isolation(isolation)
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
        for (topic, number), partition in self._places():
            entries = self.entries(topic, number)
            complete = partition.earliest_offset == 0
            validate_partition(f"{topic}-{number}", entries, self._names, complete=complete)
            firsts = [name.first_offsets.get((topic, number)) for name in self._names.values()]
            stable = min((first for first in firsts if first is not None), default=partition.end_offset)
            assert partition.stable_offset() == stable, f"{topic}-{number}: {partition.stable_offset()} {stable}"
        validate_names(self._names)

    # --- end ----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write a snapshot and release the lock. Open transactions stay open."""
        try:
            if self._broken is None:
                self.write_snapshot()
                with self._writing("cannot be closed"):
                    for _, partition in self._places():
                        partition.close()
                    self._journal.close()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Release everything as the death of the process would: records only in memory are lost."""
        self._broken = self._broken or "it was closed"
        for _, partition in self._places():
            partition.abandon()
        self._journal.abandon()
        self._lock.release()

    @property
    def is_usable(self) -> bool:
        """Whether it is open, and no error has made it unusable."""
        return self._broken is None

    def _places(self) -> Iterator[tuple[Place, PartitionLog]]:
        for topic, partitions in self._topics.items():
            for number, partition in enumerate(partitions):
                yield (topic, number), partition
