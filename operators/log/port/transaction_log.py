"""A partitioned, append-only log with transactions, as producers see it: the port, and its plain data.

The log is an *external system*: it outlives jobs, and callers tell it the time. It answers requests; a request may be
lost, or carried out while its answer is lost. A writer follows the rules of Kafka's producers:

* A *transactional id* names a producer over its incarnations. ``init_transactions`` raises the *epoch* of the id and
  aborts an open transaction of an older epoch. From then on the log refuses requests of older epochs: fencing (KIP-98).
* A transaction is ``begin``, ``append``, ..., ``prepare``, ``commit`` or ``abort``. At its end the log writes a
  *marker* with the transaction's epoch into every partition that the transaction wrote to. The epoch rises with every
  end. So a late commit or abort can never end a newer transaction (KIP-890).
* Ends are idempotent: a repeated commit succeeds. A commit of a transaction that was aborted, by its producer or by
  others, always raises an error, because data was lost.
* Appends carry a sequence number per partition, from 0 in every epoch, so a repeated append is not written twice
  (KIP-98: the idempotent producer). Appends without a producer have none, and are written twice.
* The log aborts a transaction that is open for longer than its timeout, prepared or not.
* The log forgets a name whose last transaction ended long ago, and the outcomes of its transactions
  (``transactional.id.expiration.ms``). Later names get epochs above those of all forgotten ones.
* A reader with ``READ_COMMITTED`` sees records of committed transactions and records without one, up to the *last
  stable offset*: the first record of the oldest open transaction.

Unlike in Kafka, a producer has no number besides its name. Such a number would save bytes in records, but depends on
the order in which producers come: two runs of the same job could differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from engine.elements.errors import ConfigurationError, StorageError

READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"


def check_isolation(isolation: object) -> None:
    """Raises :class:`ConfigurationError` unless it is one of the two."""
    if isolation not in (READ_COMMITTED, READ_UNCOMMITTED):
        raise ConfigurationError(f"isolation is {isolation!r}: say {READ_COMMITTED!r} or {READ_UNCOMMITTED!r}")


OPEN, PREPARED, COMMITTED, ABORTED, EXPIRED, FENCED, UNKNOWN = (
    "open", "prepared", "committed", "aborted", "expired", "fenced", "unknown",
)
"""The state of a transaction, or how it ended: by its producer (``aborted``), by the log's clock (``expired``), or by a
newer producer of its name (``fenced``). A transaction that never began is ``unknown``."""

ENDED_BY_OTHERS = (EXPIRED, FENCED)

DATA, COMMIT_MARKER, ABORT_MARKER = "data", "commit", "abort"


class Producer(NamedTuple):
    """The producer of a request, and also its transaction: an epoch has at most one."""

    transactional_id: str
    epoch: int

    def __str__(self) -> str:
        return f"{self.transactional_id} (epoch {self.epoch})"


class LogRecord(NamedTuple):
    """A record as readers see it. ``producer`` is ``None`` for records without a transaction."""

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
    """A request to a log. ``kind``: ``init``, ``begin``, ``append``, ``prepare``, ``commit`` or ``abort``;
    ``epoch`` is -1 when the request has none; the log stores ``note`` with the transaction."""

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
        """For patterns and for display: ``append out/0/1.1/0 out-3``, ``commit out/0/1.1/0``."""
        where = "" if self.topic is None else f" {self.topic}-{self.partition}"
        return f"{self.kind} {self.transactional_id or '-'}{where}"


OK, REPEATED, REFUSED_AS_FENCED, LOST, REFUSED, UNHEARD, INTERRUPTED = (
    "ok", "repeated", "fenced", "lost", "refused", "unheard", "interrupted",
)
"""Results of a request: done; done before; from an older epoch; its transaction ended in another way; against the
rules; never arrived; carried out in part, or as a whole, when the log failed."""


class Exchange(NamedTuple):
    """One request in the log's history, with its result. The history also has two kinds without a caller: ``expire``,
    and ``late`` for a commit or abort that arrives a second time, long after the first."""

    number: int
    request: Request
    fate: str
    result: str


class TransactionDescription(NamedTuple):
    """A transactional id as the log knows it (Kafka: ``describeTransactions``, KIP-664).

    ``state`` and ``records`` (their number) are those of its newest transaction; ``newest_note`` is the highest note of
    all its committed transactions, and ``commits`` their number.
    """

    producer: Producer
    state: str
    records: int
    begun_ns: int | None
    newest_note: int | None
    commits: int


class TransactionLogError(StorageError):
    """A log has refused a request; another attempt may succeed."""


class LogTimeoutError(TransactionLogError):
    """No answer came. It is unknown whether the request was carried out; it may be repeated."""


class ProducerFencedError(TransactionLogError):
    """A newer producer has the transactional id, or the log has ended the producer's epoch."""


class InvalidTransactionError(TransactionLogError):
    """A request does not fit the state of its transaction, such as an append to a prepared one."""


class LogTransactionGoneError(TransactionLogError):
    """A commit of a transaction that has ended otherwise. ``outcome`` says how; none of its records is visible."""

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
    """A log on disk is damaged: ``path`` and ``position`` (in bytes) say where, ``what`` says what is wrong."""

    def __init__(self, path: str, position: int, what: str) -> None:
        self.path, self.position, self.what = path, position, what
        super().__init__(
            f"{path}: damaged at byte {position}: {what}\n"
            "  the bytes there had been durable, so no crash did this: the disk failed, or another program wrote\n"
            "  fix: put back a copy of the log, or give the sink another log and topic"
        )

    def __reduce__(self) -> tuple[type[LogCorruptError], tuple[str, int, str]]:
        return LogCorruptError, (self.path, self.position, self.what)


class OffsetOutOfRangeError(StorageError):
    """An offset that a partition does not have: deleted by retention (below ``earliest``), or not yet written."""

    def __init__(self, where: str, offset: int, earliest: int, end: int) -> None:
        self.where, self.offset, self.earliest, self.end = where, offset, earliest, end
        why = "deleted by retention" if offset < earliest else "after the end"
        super().__init__(f"{where}: offset {offset} is {why}; the partition has {earliest} to {end}")

    def __reduce__(self) -> tuple[type[OffsetOutOfRangeError], tuple[str, int, int, int]]:
        return OffsetOutOfRangeError, (self.where, self.offset, self.earliest, self.end)


class TransactionLog(Protocol):
    """The requests of sinks to a log in memory, on disk or elsewhere.

    Times are ns of the caller's clock. Every request may raise :class:`LogTimeoutError`.
    """

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic, unless it exists. Raises :class:`engine.elements.errors.ConfigurationError` when it exists
        with another number of partitions."""

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has."""

    def init_transactions(self, transactional_id: str, timeout_ns: int, now_ns: int) -> Producer:
        """A producer with a new epoch; aborts an open transaction of an older one."""

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
        """Make all appended records durable; no more may follow. Idempotent."""

    def together(self) -> AbstractContextManager[None]:
        """Make all requests inside durable together, when the block ends. Until then the answers promise no durability.
        For taking over many names."""

    def commit(self, producer: Producer, now_ns: int, note: int | None = None) -> Producer:
        """Make the transaction visible; returns the producer of the next one. Idempotent.

        Raises :class:`LogTransactionGoneError` when it has ended otherwise.
        """

    def abort(self, producer: Producer, now_ns: int) -> Producer:
        """Abort the transaction; returns the producer of the next one. Idempotent.

        Raises :class:`InvalidTransactionError` when it is committed.
        """

    def flush(self) -> None:
        """Make all records without a transaction durable, if the log ever does so."""

    def outcome(self, producer: Producer, now_ns: int) -> str:
        """The state of the transaction of this epoch, or how it ended."""

    def transactions(self, prefix: str, now_ns: int) -> Sequence[TransactionDescription]:
        """Every transactional id that begins with ``prefix``, in the order in which they came."""

    def forget(self, transactional_id: str, now_ns: int) -> None:
        """Forget a transactional id and the outcomes of its transactions, as after a long time without use. An open one
        is aborted. Idempotent."""

    def read(
        self, topic: str, partition: int, offset: int = 0, isolation: str = READ_COMMITTED
    ) -> Sequence[LogRecord]:
        """The records that a reader sees from ``offset`` on."""
