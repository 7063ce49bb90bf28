"""Checks and carries out the requests to a log with transactions: the rules of ``transaction_log``, independent of
storage.

Before each request, time passes (``expire``) and late requests arrive (``_deliver_late``). ``gate`` decides the fate of
each request. A caller without an answer does not know whether its request was carried out, as in a network. The log
has its own clock, or else uses the latest time that it was ever told.

The coordinator holds names, epochs, states and counts, but no records. Records go to partitions, which subclasses keep:
records by ``_write``, transaction markers by ``_mark``. Before a change of a name is applied it goes to
``_record_change``, where a subclass can store it. A change that was not stored did not happen.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import Any, Generic, NoReturn, TypeVar

from engine.elements.errors import ConfigurationError
from operators.log.port.known_names import DEFAULT_ID_EXPIRATION_NS, KnownNames
from operators.log.port.log_entries import aborted_ranges, decided
from operators.log.port.transaction_log import (
    ABORT_MARKER,
    ABORTED,
    COMMIT_MARKER,
    COMMITTED,
    ENDED_BY_OTHERS,
    EXPIRED,
    FENCED,
    INTERRUPTED,
    LOST,
    OK,
    OPEN,
    PREPARED,
    REFUSED,
    REFUSED_AS_FENCED,
    REPEATED,
    UNHEARD,
    Exchange,
    InvalidTransactionError,
    LogEntry,
    LogRecord,
    LogTimeoutError,
    LogTransactionGoneError,
    Producer,
    ProducerFencedError,
    Request,
    TransactionDescription,
    TransactionLogError,
)
from operators.log.port.transaction_names import (
    BEGUN,
    ENDED,
    FORGOTTEN,
    IS_PREPARED,
    REGISTERED,
    Change,
    Name,
    state_of,
)

P = TypeVar("P", bound=Sized)
"""How a subclass represents a partition; its length is the offset of the next entry."""

DELIVERED, REQUEST_LOST, ANSWER_LOST, EXPIRE, FENCE, LATE_MARKER = (
    "delivered", "request-lost", "answer-lost", "expire", "fence", "late-marker",
)
"""Fates of a request: carried out and answered; never arrives; carried out, but the answer is lost; the transaction
times out right before it; another producer takes over the name right before it; the commit or abort arrives a second
time, while the next transaction is open."""

FATES = (DELIVERED, REQUEST_LOST, ANSWER_LOST, EXPIRE, FENCE, LATE_MARKER)

DEFAULT_MAX_TIMEOUT_NS = 15 * 60 * 1_000_000_000
"""The longest timeout that a producer may ask for (Kafka: ``transaction.max.timeout.ms``, 15 minutes)."""

_new_tuple = tuple.__new__


class TransactionCoordinator(KnownNames, Generic[P]):
    """See the module.

    ``id_expiration_ns``  how long an unused name is remembered, ``None`` = for ever;
    ``gate``     decides the fate of each request, one of ``FATES``; ``None`` = all are delivered;
    ``clock``    the log's own clock, in ns; ``None`` = it uses the times in requests;
    ``history``  every request so far, with its result, if ``keeps_history``.
    """

    def __init__(
        self,
        *,
        max_timeout_ns: int = DEFAULT_MAX_TIMEOUT_NS,
        keeps_history: bool = True,
        id_expiration_ns: int | None = DEFAULT_ID_EXPIRATION_NS,
    ) -> None:
        super().__init__(id_expiration_ns)
        self.gate: Callable[[Request], str] | None = None
        self.clock: Callable[[], int] | None = None
        self.history: list[Exchange] = []
        self._keeps_history = keeps_history
        self._max_timeout_ns = max_timeout_ns
        self._topics: dict[str, list[P]] = {}
        self._in_hand: Request | None = None
        """The request that is being carried out."""
        self._late: list[Request] = []
        """Commits and aborts that will arrive a second time."""

    def keep_history(self, history: list[Exchange]) -> None:
        """Append to an existing history."""
        self.history, self._keeps_history = history, True

    # --- what subclasses keep -----------------------------------------------------------------------------

    @abstractmethod
    def _entries(self, partition: P) -> Sequence[LogEntry]:
        """All remaining entries of a partition, markers included."""

    @abstractmethod
    def _write(self, entries: P, producer: Producer | None, values: Sequence[object]) -> None:
        """Append records."""

    @abstractmethod
    def _mark(self, entries: P, kind: str, producer: Producer) -> None:
        """Append the marker of a transaction."""

    def _record_change(self, change: Change) -> None:
        """Called before ``change`` is applied."""

    def _change(self, *change: Any) -> None:
        self._record_change(change)
        self._apply(change)

    @contextmanager
    def together(self) -> Iterator[None]:
        yield

    # --- topics and their entries -----------------------------------------------------------------------

    def partitions(self, topic: str) -> int:
        return len(self._partitions(topic))

    def topics(self) -> Sequence[str]:
        """Their names, in the order in which they were created."""
        return list(self._topics)

    def _partitions(self, topic: str) -> list[P]:
        found = self._topics.get(topic)
        if found is None:
            known = ", ".join(self._topics) or "none"
            raise ConfigurationError(f"there is no topic {topic!r}: create it first (there are: {known})")
        return found

    def _partition(self, topic: str, partition: int) -> P:
        partitions = self._topics.get(topic) or self._partitions(topic)
        if not 0 <= partition < len(partitions):
            raise ConfigurationError(f"topic {topic!r} has partitions 0 to {len(partitions) - 1}, and no {partition}")
        return partitions[partition]

    def entries(self, topic: str, partition: int) -> Sequence[LogEntry]:
        """All remaining entries of a partition, markers included."""
        return tuple(self._entries(self._partition(topic, partition)))

    def end_offset(self, topic: str, partition: int) -> int:
        """The offset that the next entry will get (Kafka: the high watermark)."""
        return len(self._partition(topic, partition))

    def aborted_ranges(self, topic: str, partition: int) -> Sequence[tuple[Producer, int, int]]:
        """For each aborted transaction: the offsets of its first record and of its marker (Kafka: the transaction
        index, by which readers know what to skip)."""
        return aborted_ranges(self._entries(self._partition(topic, partition)))

    def committed(self, topic: str, partition: int) -> Sequence[LogRecord]:
        """The records that are committed now, also after the last stable offset: a reader would see them if every open
        transaction were aborted."""
        found = self._partition(topic, partition)
        return decided(self._entries(found), len(found))

    def fingerprint(self) -> object:
        """The state that decides the log's answers and what readers see. Excluded: the history, and when transactions
        began, because timeouts are far longer than the compared times."""
        return (
            tuple(
                (
                    topic,
                    tuple(
                        tuple((one.kind, one.producer, repr(one.value)) for one in self._entries(partition))
                        for partition in partitions
                    ),
                )
                for topic, partitions in sorted(self._topics.items())
            ),
            tuple((key, state_of(name)) for key, name in sorted(self._names.items())),
            tuple((one.kind, one.transactional_id, one.epoch) for one in self._late),
        )

    # --- requests -----------------------------------------------------------------------------------------

    def init_transactions(self, transactional_id: str, timeout_ns: int, now_ns: int) -> Producer:
        if not 0 < timeout_ns <= self._max_timeout_ns:
            raise ConfigurationError(
                f"transaction timeout of {transactional_id!r} is {timeout_ns} ns; the log allows up to"
                f" {self._max_timeout_ns}: ask for less, or raise max_timeout_ns of the log"
            )
        request = Request("init", transactional_id, -1, None, 0, 0, None, now_ns)
        fate = self._arrives(request)
        name = self._names.get(transactional_id)
        if name is not None and name.state is not None:
            self._end(transactional_id, name, FENCED, None)
        epoch = self._first_epoch if name is None else name.epoch + 1
        self._change(REGISTERED, transactional_id, epoch, timeout_ns)
        self._answers(request, fate, OK)
        return Producer(transactional_id, epoch)

    def begin(self, producer: Producer, now_ns: int) -> None:
        request = self._of("begin", producer, now_ns)
        fate = self._arrives(request)
        name = self._current(request, producer, fate)
        if name.state == PREPARED or name.written:
            self._refuse(request, fate, f"{producer} begins a transaction, but has one that is {name.state}")
        if name.state is None:
            self._change(BEGUN, *producer, self._now_ns)
            self._answers(request, fate, OK)
        else:
            self._answers(request, fate, REPEATED)

    def append(
        self,
        producer: Producer | None,
        topic: str,
        partition: int,
        values: Sequence[object],
        sequence: int,
        now_ns: int,
    ) -> None:
        transactional_id, epoch = (None, -1) if producer is None else producer
        asked = ("append", transactional_id, epoch, topic, partition, len(values), None, now_ns)
        request = _new_tuple(Request, asked)
        entries = self._partition(topic, partition)
        fate = self._arrives(request)
        result = OK
        if producer is None:
            self._write(entries, None, values)
        else:
            # Refuses an epoch that a newer attempt has taken over (mutant "zombie not fenced").
            name, place = self._current(request, producer, fate), (topic, partition)
            if name.state != OPEN:
                self._refuse(request, fate, f"{producer} appends, but its transaction is {name.state or 'not begun'}")
            written = name.written.get(place, 0)
            if sequence == written:
                if values:
                    first_offset = len(entries)
                    self._write(entries, producer, values)
                    name.first_offsets.setdefault(place, first_offset)
                    name.written[place] = written + len(values)
            elif sequence + len(values) == written and values:
                result = REPEATED
            else:
                self._refuse(request, fate, f"{producer} appends record {sequence} of its own, but {written} is next")
        self._answers(request, fate, result)

    def prepare(self, producer: Producer, now_ns: int, note: int | None = None) -> None:
        request = self._of("prepare", producer, now_ns, note)
        fate = self._arrives(request)
        name = self._current(request, producer, fate)
        if name.state is None:
            self._refuse(request, fate, f"{producer} prepares, but its transaction is not begun")
        result = REPEATED if name.state == PREPARED else OK
        if result == OK or name.note != note:
            self._change(IS_PREPARED, *producer, note)
        self._answers(request, fate, result)

    def commit(self, producer: Producer, now_ns: int, note: int | None = None) -> Producer:
        request = self._of("commit", producer, now_ns, note)
        fate = self._arrives(request)
        result = self._carry_out_end(producer, COMMITTED, note)
        if result in (LOST, REFUSED):
            self._refuse(request, fate, LogTransactionGoneError(producer, self._outcome(producer)), result)
        self._answers(request, fate, result)
        return producer._replace(epoch=producer.epoch + 1)

    def abort(self, producer: Producer, now_ns: int) -> Producer:
        request = self._of("abort", producer, now_ns)
        fate = self._arrives(request)
        result = self._carry_out_end(producer, ABORTED, None)
        if result == REFUSED:
            self._refuse(request, fate, f"{producer} aborts, but its transaction is {self._outcome(producer)}")
        self._answers(request, fate, result)
        return producer._replace(epoch=producer.epoch + 1)

    def outcome(self, producer: Producer, now_ns: int) -> str:
        self.expire(now_ns)
        return self._outcome(producer)

    def transactions(self, prefix: str, now_ns: int) -> Sequence[TransactionDescription]:
        self.expire(now_ns)
        return [self._describe(key, name) for key, name in self._names.items() if key.startswith(prefix)]

    def forget(self, transactional_id: str, now_ns: int) -> None:
        self.expire(now_ns)
        name = self._names.get(transactional_id)
        if name is None:
            return
        if name.state is not None:
            self._end(transactional_id, name, FENCED, None)
        self._change(FORGOTTEN, transactional_id, name.epoch)
        self._plan_expiry()

    def open_transactions(self) -> Sequence[TransactionDescription]:
        """Transactions that are neither committed nor aborted, as of the last request."""
        return [self._describe(key, name) for key, name in self._names.items() if name.state is not None]

    # --- the fate of a request ------------------------------------------------------------------------

    @staticmethod
    def _of(kind: str, producer: Producer, now_ns: int, note: int | None = None) -> Request:
        return Request(kind, producer.transactional_id, producer.epoch, None, 0, 0, note, now_ns)

    def _arrives(self, request: Request) -> str:
        """Handle what comes before the request itself; returns its fate."""
        self.expire(request.at_ns)
        if self._late:
            self._deliver_late(request)
        if self.gate is None:
            self._in_hand = request
            return DELIVERED
        fate = self.gate(request)
        if fate == DELIVERED:
            self._in_hand = request
            return fate
        assert fate in FATES, fate
        if fate == REQUEST_LOST:
            self._record(request, fate, UNHEARD)
            raise LogTimeoutError(f"no answer to: {request.name}")
        name = self._names.get(request.transactional_id or "")
        if name is not None and fate in (EXPIRE, FENCE):
            self._strike(request, name, fate)
        self._in_hand = request
        return fate

    def _interrupted(self) -> None:
        """The current request will not be answered; how much of it was done is unknown."""
        if self._in_hand is not None:
            self._record(self._in_hand, DELIVERED, INTERRUPTED)

    def _strike(self, request: Request, name: Name, fate: str) -> None:
        assert request.transactional_id is not None
        if name.state is not None and (fate == FENCE or name.epoch == request.epoch):
            self._end(request.transactional_id, name, EXPIRED if fate == EXPIRE else FENCED, None)
        if fate == FENCE:
            self._change(REGISTERED, request.transactional_id, name.epoch + 1, name.timeout_ns)

    def _answers(self, request: Request, fate: str, result: str) -> None:
        self._record(request, fate, result)
        if fate == DELIVERED:
            return
        if fate == LATE_MARKER and request.kind in ("commit", "abort") and result == OK:
            self._late.append(request)
        if fate == ANSWER_LOST:
            raise LogTimeoutError(f"no answer to: {request.name}")

    def _record(self, request: Request, fate: str, result: str) -> None:
        if request is self._in_hand:
            self._in_hand = None
        if self._keeps_history:
            self.history.append(_new_tuple(Exchange, (len(self.history), request, fate, result)))

    def _refuse(
        self, request: Request, fate: str, why: str | TransactionLogError, result: str = REFUSED
    ) -> NoReturn:
        self._record(request, fate, result)
        if fate == ANSWER_LOST:
            raise LogTimeoutError(f"no answer to: {request.name}")
        raise InvalidTransactionError(why) if isinstance(why, str) else why

    def _current(self, request: Request, producer: Producer, fate: str) -> Name:
        """The name of a producer, if it has the current epoch."""
        name = self._names.get(producer.transactional_id)
        if name is None or producer.epoch > name.epoch:
            self._refuse(request, fate, f"the log has never heard of {producer}")
        if producer.epoch < name.epoch:
            ended = name.ended.get(producer.epoch)
            why = "has been taken over" if ended is None else f"has ended: its transaction is {ended}"
            error = ProducerFencedError(f"{request.kind} of {producer}: the epoch {why}; the newest is {name.epoch}")
            self._refuse(request, fate, error, REFUSED_AS_FENCED)
        return name

    def _carry_out_end(self, producer: Producer, outcome: str, note: int | None) -> str:
        """Commit or abort the transaction of exactly this epoch; returns the result."""
        name = self._names.get(producer.transactional_id)
        if name is None or producer.epoch > name.epoch:
            return REFUSED
        # Compare epochs: a late end must not hit the transaction that is open now (mutant "late marker obeyed").
        ended = name.ended.get(producer.epoch)
        if ended is not None:
            # A second abort is fine, even after another's. A commit of a transaction that others ended is a loss.
            if ended == outcome or (outcome == ABORTED and ended in ENDED_BY_OTHERS):
                return REPEATED
            return REFUSED if outcome == ABORTED else LOST
        # An epoch that was taken over before its first transaction has none to end.
        if producer.epoch < name.epoch or name.state is None:
            return REPEATED if outcome == ABORTED else REFUSED
        self._end(producer.transactional_id, name, outcome, name.note if note is None else note)
        return OK

    def _end(self, transactional_id: str, name: Name, outcome: str, note: int | None) -> None:
        """Write the markers and raise the epoch: a request with the old epoch cannot end another transaction."""
        producer = Producer(transactional_id, name.epoch)
        kind = COMMIT_MARKER if outcome == COMMITTED else ABORT_MARKER
        change = (ENDED, *producer, outcome, note)
        # The order matters: recovery that finds the change, but not all markers, writes the rest. A marker without the
        # change would publish half a transaction.
        self._record_change(change)
        for topic, partition in name.written:
            self._mark(self._partition(topic, partition), kind, producer)
        self._apply(change)

    def expire(self, now_ns: int) -> None:
        """Set the time to at least ``now_ns``: abort every transaction that was open for longer than its timeout, and
        forget names that were unused for long."""
        if self.clock is not None:
            now_ns = self.clock()
        if now_ns > self._now_ns:
            self._now_ns = now_ns
        else:
            now_ns = self._now_ns
        if now_ns <= self._next_expiry_ns:
            return
        for transactional_id, name in list(self._names.items()):
            if now_ns <= self._due_ns(name):
                continue
            if name.state is None:
                self._change(FORGOTTEN, transactional_id, name.epoch)
            else:
                epoch = name.epoch
                self._end(transactional_id, name, EXPIRED, None)
                request = Request("expire", transactional_id, epoch, None, 0, 0, None, now_ns)
                self._record(request, DELIVERED, OK)
        self._plan_expiry()

    def _deliver_late(self, trigger: Request) -> None:
        """Deliver ends of older transactions again, in the middle of a newer one of the same name."""
        for request in [one for one in self._late if one.transactional_id == trigger.transactional_id]:
            assert request.transactional_id is not None
            name = self._names.get(request.transactional_id)
            if name is None or not name.written:
                continue
            self._late.remove(request)
            outcome = COMMITTED if request.kind == "commit" else ABORTED
            result = self._carry_out_end(Producer(request.transactional_id, request.epoch), outcome, request.note)
            late = request._replace(kind="late", at_ns=trigger.at_ns)
            self._record(late, LATE_MARKER, REFUSED_AS_FENCED if result == REPEATED else result)
