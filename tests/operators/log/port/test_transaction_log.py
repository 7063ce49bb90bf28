"""Transactional logs, in memory and on disk: against a model that knows no offsets and no markers, and rule by rule."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.elements.errors import ConfigurationError
from operators.log import port
from operators.log.disk.disk_transaction_log import DiskTransactionLog
from operators.log.disk.log_settings import LogSettings
from operators.log.memory_transaction_log import MemoryTransactionLog
from operators.log.port.transaction_log import (
    ABORT_MARKER,
    ABORTED,
    COMMIT_MARKER,
    COMMITTED,
    DATA,
    EXPIRED,
    FENCED,
    LOST,
    OPEN,
    PREPARED,
    READ_UNCOMMITTED,
    REFUSED_AS_FENCED,
    REPEATED,
    UNKNOWN,
    InvalidTransactionError,
    LogTimeoutError,
    LogTransactionGoneError,
    Producer,
    ProducerFencedError,
    Request,
    TransactionLog,
    TransactionLogError,
)
from state_backends.files import MemoryFileSystem

TIMEOUT_NS = 100


Log = MemoryTransactionLog | DiskTransactionLog
NewLog = Callable[..., Log]


def memory_log(partitions: int = 1, **options: int) -> Log:
    log = MemoryTransactionLog(**options)
    log.create_topic("t", partitions)
    return log


def disk_log(partitions: int = 1, **options: int) -> Log:
    settings = LogSettings(segment_bytes=300, journal_bytes=500, keeps_history=True, **options)
    log = DiskTransactionLog(MemoryFileSystem(), "/log", settings)
    log.create_topic("t", partitions)
    return log


@pytest.fixture(params=[memory_log, disk_log])
def new_log(request: pytest.FixtureRequest) -> NewLog:
    made: NewLog = request.param
    return made


def visible(log: Log, partition: int = 0) -> list[object]:
    return [record.value for record in log.read("t", partition)]


# --- against a model ----------------------------------------------------------------------------------------------


@dataclass
class ModelTransaction:
    state: str = OPEN
    begun: int = 0
    written: dict[int, int] = field(default_factory=dict)


class Model:
    """The promises of the log, in terms of transactions alone."""

    def __init__(self) -> None:
        self.now = 0
        self.epochs: dict[str, int] = {}
        self.transactions: dict[Producer, ModelTransaction] = {}
        self.appended: dict[int, list[tuple[int, Producer | None]]] = {0: [], 1: []}

    def current(self, name: str) -> ModelTransaction | None:
        found = self.transactions.get(Producer(name, self.epochs.get(name, -1)))
        return found if found is not None and found.state in (OPEN, PREPARED) else None

    def end(self, name: str, outcome: str) -> None:
        found = self.current(name)
        assert found is not None
        found.state = outcome
        self.epochs[name] += 1

    def pass_time(self) -> None:
        for name in self.epochs:
            found = self.current(name)
            if found is not None and self.now - found.begun > TIMEOUT_NS:
                self.end(name, EXPIRED)

    def strike(self, producer: Producer, fate: str) -> None:
        name = producer.transactional_id
        if name not in self.epochs:
            return
        if fate == port.EXPIRE and self.current(name) is not None and producer.epoch == self.epochs[name]:
            self.end(name, EXPIRED)
        if fate == port.FENCE:
            if self.current(name) is not None:
                self.end(name, FENCED)
            self.epochs[name] += 1

    def refusal(self, producer: Producer) -> type[TransactionLogError] | None:
        """The refusal of a request that only the newest epoch may make."""
        newest = self.epochs.get(producer.transactional_id, -1)
        if producer.epoch > newest:
            return InvalidTransactionError
        return ProducerFencedError if producer.epoch < newest else None

    def committed(self, partition: int) -> list[int]:
        return [
            value
            for value, producer in self.appended[partition]
            if producer is None or self.transactions[producer].state == COMMITTED
        ]

    def stable(self, partition: int) -> list[int]:
        seen = []
        for value, producer in self.appended[partition]:
            state = COMMITTED if producer is None else self.transactions[producer].state
            if state in (OPEN, PREPARED):
                break
            if state == COMMITTED:
                seen.append(value)
        return seen


fates = st.sampled_from((*[port.DELIVERED] * 6, *port.FATES))
producers = st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([0, 0, 0, 0, 0, 0, 1, 1, 2, -1]))
"""A name, and how many epochs ago: mostly the newest, sometimes one that is yet to come."""


class LogMachine(RuleBasedStateMachine):
    """Any producer of any epoch asks for anything, and any request may go wrong."""

    make_log: NewLog = staticmethod(memory_log)

    @initialize()
    def start(self) -> None:
        self.log = self.make_log(2)
        self.log.gate = self.gate
        self.model = Model()
        self.fate = port.DELIVERED
        self.value = 0
        for name in ("a", "b"):
            producer = self.log.init_transactions(name, TIMEOUT_NS, 0)
            self.log.begin(producer, 0)
            self.model.epochs[name] = producer.epoch
            self.model.transactions[producer] = ModelTransaction()

    def gate(self, request: Request) -> str:
        return self.fate

    def request(
        self,
        producer: Producer,
        fate: str,
        ask: Callable[[], object],
        effect: Callable[[], type[TransactionLogError] | None],
    ) -> None:
        """Ask the log, let ``effect`` do the same to the model, and compare what each says."""
        model, self.fate = self.model, fate
        model.pass_time()
        expected: type[TransactionLogError] | None = LogTimeoutError
        if fate != port.REQUEST_LOST:
            model.strike(producer, fate)
            expected = effect()
            if fate == port.ANSWER_LOST:
                expected = LogTimeoutError
        if expected is None:
            ask()
        else:
            with pytest.raises(expected):
                ask()

    @rule(name=st.sampled_from(["a", "b"]), fate=fates)
    def init(self, name: str, fate: str) -> None:
        def effect() -> None:
            model = self.model
            if model.current(name) is not None:
                model.end(name, FENCED)
            model.epochs[name] = model.epochs.get(name, -1) + 1

        now = self.model.now
        self.request(Producer(name, -1), fate, lambda: self.log.init_transactions(name, TIMEOUT_NS, now), effect)

    @rule(chosen=producers, fate=fates)
    def begin(self, chosen: tuple[str, int], fate: str) -> None:
        producer = self.choose(*chosen)

        def effect() -> type[TransactionLogError] | None:
            model = self.model
            if (refusal := model.refusal(producer)) is not None:
                return refusal
            found = model.current(producer.transactional_id)
            if found is None:
                model.transactions[producer] = ModelTransaction(begun=model.now)
            elif found.state == PREPARED or found.written:
                return InvalidTransactionError
            return None

        self.request(producer, fate, lambda: self.log.begin(producer, self.model.now), effect)

    @rule(name=st.sampled_from(["a", "b"]), end=st.sampled_from([COMMITTED, ABORTED]), records=st.integers(0, 2))
    def one_after_the_other(self, name: str, end: str, records: int) -> None:
        """What mostly happens: a transaction from its beginning to its end, then the beginning of the next."""
        if self.model.current(name) is None:
            self.begin((name, 0), port.DELIVERED)
        if records:
            self.append((name, 0), port.DELIVERED, 0, records, 0)
        self.commit((name, 0), port.DELIVERED) if end == COMMITTED else self.abort((name, 0), port.DELIVERED)
        self.begin((name, 0), port.DELIVERED)

    @rule(
        chosen=producers,
        fate=fates,
        partition=st.integers(0, 1),
        count=st.integers(1, 3),
        ahead=st.sampled_from([0, 0, 0, 0, 1]),
    )
    def append(self, chosen: tuple[str, int], fate: str, partition: int, count: int, ahead: int) -> None:
        producer = self.choose(*chosen)
        values = list(range(self.value, self.value + count))
        self.value += count
        known = self.model.transactions.get(producer)
        sequence = (0 if known is None else known.written.get(partition, 0)) + ahead

        def effect() -> type[TransactionLogError] | None:
            model = self.model
            if (refusal := model.refusal(producer)) is not None:
                return refusal
            found = model.current(producer.transactional_id)
            if found is None or found.state != OPEN or ahead:
                return InvalidTransactionError
            found.written[partition] = found.written.get(partition, 0) + count
            model.appended[partition] += [(value, producer) for value in values]
            return None

        def ask() -> None:
            self.log.append(producer, "t", partition, values, sequence, self.model.now)

        before = self.model.now
        self.request(producer, fate, ask, effect)
        if fate == port.ANSWER_LOST and not ahead and self.model.current(producer.transactional_id) is known:
            # The producer repeats it, and it is there once.
            self.fate = port.DELIVERED
            if known is not None and known.state == OPEN and producer.epoch == self.model.epochs[producer[0]]:
                ask()
        assert self.model.now == before

    @rule(partition=st.integers(0, 1), fate=st.sampled_from([port.DELIVERED, port.REQUEST_LOST]))
    def append_plainly(self, partition: int, fate: str) -> None:
        self.value += 1
        value = self.value

        def effect() -> None:
            self.model.appended[partition].append((value, None))

        def ask() -> None:
            self.log.append(None, "t", partition, [value], 0, self.model.now)

        self.request(Producer("-", 0), fate, ask, effect)

    @rule(chosen=producers, fate=fates)
    def prepare(self, chosen: tuple[str, int], fate: str) -> None:
        producer = self.choose(*chosen)

        def effect() -> type[TransactionLogError] | None:
            if (refusal := self.model.refusal(producer)) is not None:
                return refusal
            found = self.model.current(producer.transactional_id)
            if found is None:
                return InvalidTransactionError
            found.state = PREPARED
            return None

        self.request(producer, fate, lambda: self.log.prepare(producer, self.model.now), effect)

    @rule(chosen=producers, fate=fates)
    def commit(self, chosen: tuple[str, int], fate: str) -> None:
        producer = self.choose(*chosen)

        def effect() -> type[TransactionLogError] | None:
            found = self.model.transactions.get(producer)
            if found is None or found.state in (ABORTED, EXPIRED, FENCED):
                return LogTransactionGoneError
            if found.state != COMMITTED:
                self.model.end(producer.transactional_id, COMMITTED)
            return None

        self.request(producer, fate, lambda: self.log.commit(producer, self.model.now), effect)

    @rule(chosen=producers, fate=fates)
    def abort(self, chosen: tuple[str, int], fate: str) -> None:
        producer = self.choose(*chosen)

        def effect() -> type[TransactionLogError] | None:
            if producer.epoch > self.model.epochs.get(producer.transactional_id, -1):
                return InvalidTransactionError
            found = self.model.transactions.get(producer)
            if found is not None and found.state == COMMITTED:
                return InvalidTransactionError
            if found is not None and found.state in (OPEN, PREPARED):
                self.model.end(producer.transactional_id, ABORTED)
            return None

        self.request(producer, fate, lambda: self.log.abort(producer, self.model.now), effect)

    @rule(by=st.integers(1, 80))
    def time_passes(self, by: int) -> None:
        self.model.now += by
        self.model.pass_time()
        self.log.expire(self.model.now)

    def choose(self, name: str, ago: int) -> Producer:
        return Producer(name, max(0, self.model.epochs.get(name, -1) - ago))

    @invariant()
    def readers_see_what_the_model_says(self) -> None:
        self.log.validate()
        for partition, appended in self.model.appended.items():
            everything = self.log.read("t", partition, isolation=READ_UNCOMMITTED)
            assert [record.value for record in everything] == [value for value, _ in appended]
            assert [record.value for record in self.log.committed("t", partition)] == self.model.committed(partition)
            assert visible(self.log, partition) == self.model.stable(partition)

    @precondition(lambda self: bool(self.model.transactions))
    @invariant()
    def outcomes_are_remembered(self) -> None:
        for producer, transaction in self.model.transactions.items():
            assert self.log.outcome(producer, self.model.now) == transaction.state


LogMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLogAgainstAModel = LogMachine.TestCase


class DiskLogMachine(LogMachine):
    """The same on disk, where the log may be closed and opened again at any time, or its process may die."""

    make_log: NewLog = staticmethod(disk_log)

    @rule(how=st.sampled_from(["close", "die"]))
    def opened_again(self, how: str) -> None:
        old = self.log
        assert isinstance(old, DiskTransactionLog)
        for partition in (*dict(old._places()).values(), old._journal._changes):
            # What waits in memory is lost when a process dies; that is another test.
            partition.flush()
        old.close() if how == "close" else old.abandon()
        late = old._late
        self.log = DiskTransactionLog(old._fs, "/log", old.settings)
        self.log._late, self.log.gate = late, self.gate


DiskLogMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestDiskLogAgainstAModel = DiskLogMachine.TestCase


# --- rule by rule -------------------------------------------------------------------------------------------------


def open_transaction(log: TransactionLog, name: str = "a", values: tuple[object, ...] = (1, 2)) -> Producer:
    producer = log.init_transactions(name, TIMEOUT_NS, 0)
    log.begin(producer, 0)
    log.append(producer, "t", 0, values, 0, 0)
    return producer


def test_a_newer_producer_fences_the_older(new_log: NewLog) -> None:
    """init_transactions aborts the open transaction, and every later request of the older epoch is refused."""
    log = new_log()
    zombie = open_transaction(log)
    successor = log.init_transactions("a", TIMEOUT_NS, 1)

    assert successor.epoch > zombie.epoch
    for ask in (
        lambda: log.append(zombie, "t", 0, [3], 2, 1),
        lambda: log.prepare(zombie, 1),
        lambda: log.begin(zombie._replace(epoch=zombie.epoch + 1), 1),
    ):
        with pytest.raises(ProducerFencedError, match="the newest is"):
            ask()
    with pytest.raises(LogTransactionGoneError, match="a newer producer of this name has aborted it"):
        log.commit(zombie, 1)
    assert visible(log) == []
    results = [exchange.result for exchange in log.history[-4:]]
    assert results == [REFUSED_AS_FENCED] * 3 + [LOST]


def test_a_late_end_of_an_older_transaction_changes_nothing(new_log: NewLog) -> None:
    """The commit of one transaction arrives again during the next of its name: its epoch is over (KIP-890)."""
    log = new_log()
    first = open_transaction(log)
    log.gate = lambda request: port.LATE_MARKER if request.kind == "commit" else port.DELIVERED
    second = log.commit(first, 0)
    log.begin(second, 0)
    log.append(second, "t", 0, [3], 0, 0)
    log.append(second, "t", 0, [4], 1, 0)

    late = [exchange for exchange in log.history if exchange.request.kind == "late"]
    assert [(exchange.request.epoch, exchange.result) for exchange in late] == [(first.epoch, REFUSED_AS_FENCED)]
    kinds = [exchange.request.kind for exchange in log.history]
    assert kinds[-4:] == ["begin", "append", "late", "append"], "it comes when it could do harm"
    assert log.outcome(second, 0) == OPEN
    assert visible(log) == [1, 2]
    log.abort(second, 0)
    assert visible(log) == [1, 2]


def test_an_open_transaction_holds_back_readers(new_log: NewLog) -> None:
    """No reader passes the first undecided record, whatever is committed after it; ``committed`` does not wait."""
    log = new_log()
    slow, quick = open_transaction(log, "slow", ("s",)), open_transaction(log, "quick", ("q",))
    log.append(None, "t", 0, ["plain"], 0, 0)
    log.commit(quick, 0)

    assert log.last_stable_offset("t", 0) == 0
    assert visible(log) == []
    assert [record.value for record in log.committed("t", 0)] == ["q", "plain"]
    log.abort(slow, 0)
    assert log.last_stable_offset("t", 0) == log.end_offset("t", 0) == 5
    assert visible(log) == ["q", "plain"]
    assert log.aborted_ranges("t", 0) == [(slow, 0, 4)]
    assert [entry.kind for entry in log.entries("t", 0)] == [DATA, DATA, DATA, COMMIT_MARKER, ABORT_MARKER]
    assert [record.offset for record in log.read("t", 0, offset=2)] == [2]


def test_a_transaction_expires_whether_it_is_prepared_or_not(new_log: NewLog) -> None:
    """Only a transaction older than its timeout is given up, and a later commit of it gets an error."""
    log = new_log()
    producer = open_transaction(log)
    log.prepare(producer, 0, note=7)
    log.expire(TIMEOUT_NS)
    assert log.outcome(producer, TIMEOUT_NS) == PREPARED
    log.expire(TIMEOUT_NS + 1)

    assert log.outcome(producer, TIMEOUT_NS + 1) == EXPIRED
    with pytest.raises(LogTransactionGoneError, match="open for longer than its timeout"):
        log.commit(producer, TIMEOUT_NS + 1)
    assert log.open_transactions() == []


def test_the_clock_of_the_log_does_not_go_back(new_log: NewLog) -> None:
    """A slow clock makes no transaction younger; a log with a clock of its own believes only that one."""
    log = new_log()
    producer = log.init_transactions("a", TIMEOUT_NS, 1_000)
    log.begin(producer, 0)
    assert log.transactions("a", 0)[0].begun_ns == 1_000
    log.clock = lambda: 1_050
    log.append(producer, "t", 0, [1], 0, 1_000_000)
    assert log.outcome(producer, 1_000_000) == OPEN


def test_ends_are_idempotent_for_ever(new_log: NewLog) -> None:
    """This holds also after the name has gone on to other transactions; each time the answer is the next epoch."""
    log = new_log()
    first = open_transaction(log)
    second = log.commit(first, 0, note=3)
    log.begin(second, 0)
    third = log.abort(second, 0)

    assert log.commit(first, 0, note=3) == second
    assert log.abort(second, 0) == third
    assert [exchange.result for exchange in log.history[-2:]] == [REPEATED, REPEATED]
    assert visible(log) == [1, 2]
    with pytest.raises(InvalidTransactionError, match="its transaction is committed"):
        log.abort(first, 0)
    with pytest.raises(LogTransactionGoneError, match="it was aborted"):
        log.commit(second, 0)
    assert log.transactions("a", 0)[0].newest_note == 3


def test_an_answer_that_is_lost_tells_nothing(new_log: NewLog) -> None:
    """It shows neither that a request was carried out, nor that it was refused; a lost request changes nothing."""
    log = new_log()
    producer = open_transaction(log)
    log.gate = lambda request: port.REQUEST_LOST
    with pytest.raises(LogTimeoutError, match="no answer to: commit a"):
        log.commit(producer, 0)
    assert log.outcome(producer, 0) == OPEN
    log.gate = lambda request: port.ANSWER_LOST
    with pytest.raises(LogTimeoutError):
        log.commit(producer, 0)
    assert log.outcome(producer, 0) == COMMITTED
    with pytest.raises(LogTimeoutError):
        log.append(producer, "t", 0, [9], 2, 0)
    assert visible(log) == [1, 2]


def test_a_repeated_append_is_written_once_and_a_gap_is_refused(new_log: NewLog) -> None:
    """The producer's sequence number shows it; without a producer it cannot be known."""
    log = new_log()
    producer = open_transaction(log)
    log.append(producer, "t", 0, [1, 2], 0, 0)
    with pytest.raises(InvalidTransactionError, match="appends record 3 of its own, but 2 is next"):
        log.append(producer, "t", 0, [3], 3, 0)
    log.commit(producer, 0)
    log.append(None, "t", 0, [9], 0, 0)
    log.append(None, "t", 0, [9], 0, 0)
    assert visible(log) == [1, 2, 9, 9]


def test_what_makes_no_sense_is_refused(new_log: NewLog) -> None:
    """Timeouts beyond the limit of the log, unknown topics and partitions, topics that exist with other settings."""
    log = new_log(2, max_timeout_ns=10)
    log.create_topic("t", 2)
    with pytest.raises(ConfigurationError, match="allows up to 10"):
        log.init_transactions("a", 11, 0)
    with pytest.raises(ConfigurationError, match="there is no topic 'u'"):
        log.partitions("u")
    with pytest.raises(ConfigurationError, match="has 2 partitions, not 3"):
        log.create_topic("t", 3)
    with pytest.raises(ConfigurationError, match="partitions 0 to 1, and no 2"):
        log.append(None, "t", 2, [1], 0, 0)
    with pytest.raises(ConfigurationError, match="isolation is 'dirty'"):
        log.read("t", 0, isolation="dirty")
    assert log.outcome(Producer("x", 0), 0) == UNKNOWN


def test_a_log_can_be_copied_and_compared(new_log: NewLog) -> None:
    """A pickled copy is equal and independent; the fingerprint has records, states and outcomes, not the history."""
    log = new_log()
    producer = open_transaction(log)
    copy = pickle.loads(pickle.dumps(log))
    assert copy.fingerprint() == log.fingerprint()
    log.outcome(producer, 0)
    log.commit(producer, 0)
    assert copy.fingerprint() != log.fingerprint()
    assert copy.read("t", 0) == []
    copy.commit(producer, 0)
    assert copy.fingerprint() == log.fingerprint()
    copy.commit(producer, 0)
    assert copy.fingerprint() == log.fingerprint()


def test_an_error_can_be_copied() -> None:
    """A copied run may hold one."""
    error = pickle.loads(pickle.dumps(LogTransactionGoneError(Producer("a", 1), EXPIRED)))
    assert (error.producer, error.outcome) == (Producer("a", 1), EXPIRED)
    assert "longer than its timeout" in str(error)
