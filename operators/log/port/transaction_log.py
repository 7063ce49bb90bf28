"""A partitioned, append-only log with transactions, seen from its producers: the port, and its plain data.

The log is an *external system*: it lives on while jobs die, it has a clock of its own to be told, and it answers
requests, each of which may be lost, or carried out with its answer lost. Whoever writes to it follows the rules of
Kafka's producers:

* A *transactional id* names a producer over its incarnations. ``init_transactions`` raises the *epoch* of the id and
  aborts what an older epoch has left open; requests of an older epoch are refused from then on: fencing (KIP-98).
* A transaction is ``begin``, ``append``, ..., ``prepare``, ``commit`` or ``abort``. Its end is written as a *marker*
  into every partition that it wrote to, with the epoch of the transaction on it. The epoch rises with every
  transaction that ends, so that a commit or abort that comes late can never end a newer one (KIP-890).
* Ends are idempotent: who commits again what is committed is told that it is. Who commits what was aborted, by
  whomever, is told that too, always, for it is a loss of data.
* Appends carry a sequence number per partition, from 0 in every epoch, so that a repeated one is not written twice
  (KIP-98: the idempotent producer). Appends without a producer have none, and are written twice.
* A transaction that is open for longer than its timeout is aborted by the log, prepared or not.
* A name whose last transaction ended long ago is forgotten, and with it how its transactions ended
  (``transactional.id.expiration.ms``). Epochs of names that come later are above those of all that were forgotten.
* A reader with ``READ_COMMITTED`` sees records of committed transactions and those without, up to the *last stable
  offset*: the first record of the oldest transaction that is still open.

Unlike Kafka, a producer has no number besides its name. The number saves bytes in records, and it depends on the order
in which producers come, which would make two runs differ that are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from engine.elements.errors import StorageError

READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"

OPEN, PREPARED, COMMITTED, ABORTED, EXPIRED, FENCED, UNKNOWN = (
    "open", "prepared", "committed", "aborted", "expired", "fenced", "unknown",
)
"""What a transaction is, or how it ended: by its producer (``aborted``), by the log's clock (``expired``), or by a
newer producer of its name (``fenced``). Nothing is known of one that never began."""

ENDED_BY_OTHERS = (EXPIRED, FENCED)

DATA, COMMIT_MARKER, ABORT_MARKER = "data", "commit", "abort"


class Producer(NamedTuple):
    """Who asks, and at the same time which transaction is meant: an epoch has at most one."""

    transactional_id: str
    epoch: int

    def __str__(self) -> str:
        return f"{self.transactional_id} (epoch {self.epoch})"


class LogRecord(NamedTuple):
    """What a reader gets. ``producer`` is ``None`` for records without a transaction."""

    offset: int
    value: object
    producer: Producer | None


class LogEntry(NamedTuple):
    """One entry of a partition: a record (``data``), or the marker of a transaction (``commit``, ``abort``)."""

    offset: int
    kind: str
    producer: Producer | None
    value: object


class Request(NamedTuple):
    """What is asked of a log. ``kind``: ``init``, ``begin``, ``append``, ``prepare``, ``commit`` or ``abort``;
    ``epoch`` is -1 when the request has none; ``note`` is for the log to keep with the transaction."""

    kind: str
    transactional_id: str | None
    epoch: int
    topic: str | None
    partition: int
    records: int
    note: int | None
    at_ns: int

    @property
    def name(self) -> str:
        """For patterns and for people: ``append out/0/1.1/0 out-3``, ``commit out/0/1.1/0``."""
        where = "" if self.topic is None else f" {self.topic}-{self.partition}"
        return f"{self.kind} {self.transactional_id or '-'}{where}"


OK, REPEATED, REFUSED_AS_FENCED, LOST, REFUSED, UNHEARD, INTERRUPTED = (
    "ok", "repeated", "fenced", "lost", "refused", "unheard", "interrupted",
)
"""Results of a request: done; done before; from an older epoch; its transaction ended otherwise than asked; against the
rules; never arrived; carried out in part, or as a whole, when the log failed."""


class Exchange(NamedTuple):
    """One request in the log's history, with its result. Two kinds that nobody asks for are in it, too: ``expire``, and
    ``late`` for a commit or abort that arrives a second time, long after the first."""

    number: int
    request: Request
    fate: str
    result: str


class TransactionDescription(NamedTuple):
    """A transactional id as the log knows it (Kafka: ``describeTransactions``, KIP-664).

    ``state`` is that of its newest transaction; ``records`` how many are in that one; ``newest_note`` the highest note
    of all its committed ones.
    """

    producer: Producer
    state: str
    records: int
    begun_ns: int | None
    newest_note: int | None


class TransactionLogError(StorageError):
    """A log has refused a request; another attempt may succeed."""


class LogTimeoutError(TransactionLogError):
    """No answer came. Whether the request was carried out is not known; it may be repeated."""


class ProducerFencedError(TransactionLogError):
    """A newer producer has the transactional id, or the log has ended the producer's epoch."""


class InvalidTransactionError(TransactionLogError):
    """A request does not fit the state of its transaction, such as an append to a prepared one."""


class LogTransactionGoneError(TransactionLogError):
    """A commit comes for a transaction that has ended otherwise. ``outcome`` says how; nothing of it is visible."""

    def __init__(self, producer: Producer, outcome: str) -> None:
        self.producer, self.outcome = producer, outcome
        why = {
            EXPIRED: "it was open for longer than its timeout, and the log has aborted it",
            FENCED: "a newer producer of this name has aborted it",
            ABORTED: "it was aborted",
        }.get(outcome, "the log has never heard of it")
        super().__init__(f"transaction {producer} cannot be committed: {why}")

    def __reduce__(self) -> tuple[type[LogTransactionGoneError], tuple[Producer, str]]:
        return LogTransactionGoneError, (self.producer, self.outcome)


class LogCorruptError(StorageError):
    """A log on disk is not what was written: ``path`` and ``position`` (in bytes) say where, ``what`` what is wrong."""

    def __init__(self, path: str, position: int, what: str) -> None:
        self.path, self.position, self.what = path, position, what
        super().__init__(
            f"{path}: damaged at byte {position}: {what}\n"
            "  what was there had been made durable, so this is no crash: a disk, or somebody who writes to the file\n"
            "  fix: put back a copy of the log, or give the sink another log and topic"
        )

    def __reduce__(self) -> tuple[type[LogCorruptError], tuple[str, int, str]]:
        return LogCorruptError, (self.path, self.position, self.what)


class OffsetOutOfRangeError(StorageError):
    """An offset that a partition does not have: deleted by retention (below ``earliest``), or not yet written."""

    def __init__(self, where: str, offset: int, earliest: int, end: int) -> None:
        self.where, self.offset, self.earliest, self.end = where, offset, earliest, end
        why = "deleted by retention" if offset < earliest else "behind the end"
        super().__init__(f"{where}: offset {offset} is {why}; the partition has {earliest} to {end}")

    def __reduce__(self) -> tuple[type[OffsetOutOfRangeError], tuple[str, int, int, int]]:
        return OffsetOutOfRangeError, (self.where, self.offset, self.earliest, self.end)


class TransactionLog(Protocol):
    """What a sink needs of a log, whether that is in memory, on disk or elsewhere.

    Times are ns of the caller's clock. Every request may raise :class:`LogTimeoutError`.
    """

    def create_topic(self, topic: str, partitions: int) -> None:
        """Make a topic, unless it is there. Raises :class:`engine.elements.errors.ConfigurationError` when it is there
        with another number of partitions."""

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has."""

    def init_transactions(self, transactional_id: str, timeout_ns: int, now_ns: int) -> Producer:
        """A producer with a new epoch; what an older one has left open is aborted."""

    def begin(self, producer: Producer, now_ns: int) -> None:
        """Begin the transaction of this epoch; its timeout runs from here."""

    def append(
        self,
        producer: Producer | None,
        topic: str,
        partition: int,
        values: Sequence[object],
        sequence: int,
        now_ns: int,
    ) -> None:
        """Append records; ``sequence`` counts those that the epoch has appended to the partition before."""

    def prepare(self, producer: Producer, now_ns: int, note: int | None = None) -> None:
        """Everything appended is durable, and nothing more will come. Idempotent."""

    def together(self) -> AbstractContextManager[None]:
        """What is asked within becomes durable when it ends, all of it together; until then the answers promise
        nothing. For whoever takes over many names."""

    def commit(self, producer: Producer, now_ns: int, note: int | None = None) -> Producer:
        """Make the transaction visible; returns the producer of the next one. Idempotent.

        Raises :class:`LogTransactionGoneError` when it has ended otherwise.
        """

    def abort(self, producer: Producer, now_ns: int) -> Producer:
        """Take the transaction back; returns the producer of the next one. Idempotent.

        Raises :class:`InvalidTransactionError` when it is committed.
        """

    def flush(self) -> None:
        """Everything appended without a transaction is durable when this returns, as far as the log ever makes it."""

    def outcome(self, producer: Producer, now_ns: int) -> str:
        """What the transaction of this epoch is, or how it ended."""

    def transactions(self, prefix: str, now_ns: int) -> Sequence[TransactionDescription]:
        """Every transactional id that begins with ``prefix``, in the order in which they came."""

    def read(
        self, topic: str, partition: int, offset: int = 0, isolation: str = READ_COMMITTED
    ) -> Sequence[LogRecord]:
        """What a reader sees from ``offset`` on."""
