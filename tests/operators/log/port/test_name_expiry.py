"""Unused transactional ids are forgotten, and taking over many costs as much as taking over one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.elements.errors import ConfigurationError
from operators.log.connectors.log_sink import LogSink
from operators.log.disk.disk_log import DiskLog
from operators.log.disk.disk_transaction_log import DiskTransactionLog
from operators.log.disk.log_reader import committed_records
from operators.log.disk.log_settings import LogSettings
from operators.log.memory_transaction_log import MemoryTransactionLog
from operators.log.port.transaction_log import InvalidTransactionError, LogTransactionGoneError, Producer
from state_backends.files import FaultInjectingFileSystem, MemoryFileSystem
from tests.operators.harness import START_NS, Checkpoint, Harness

LIFE_NS = 1_000
Log = MemoryTransactionLog | DiskTransactionLog


def in_memory() -> MemoryTransactionLog:
    return MemoryTransactionLog(id_expiration_ns=LIFE_NS, max_timeout_ns=10**18)


def on_disk(fs: MemoryFileSystem | None = None, life_ns: int | None = LIFE_NS) -> DiskTransactionLog:
    settings = LogSettings(id_expiration_ns=life_ns, max_timeout_ns=10**18)
    return DiskTransactionLog(fs or MemoryFileSystem(), "/log", settings)


@pytest.fixture(params=[in_memory, on_disk], ids=["memory", "disk"])
def log(request: pytest.FixtureRequest) -> Log:
    make: Callable[[], Log] = request.param
    made = make()
    made.create_topic("t", 1)
    return made


def committed(log: Log, name: str, now_ns: int, timeout_ns: int = 10**17) -> Producer:
    """A producer whose transaction is committed, with the epoch of that transaction."""
    producer = log.init_transactions(name, timeout_ns, now_ns)
    log.begin(producer, now_ns)
    log.append(producer, "t", 0, [name], 0, now_ns)
    log.commit(producer, now_ns)
    return producer


def names(log: Log, now_ns: int) -> list[str]:
    return [one.producer.transactional_id for one in log.transactions("", now_ns)]


def test_a_name_is_forgotten_when_its_last_transaction_is_long_over(log: Log) -> None:
    """It is not forgotten earlier; its records stay, but the end of its transaction is no longer known."""
    producer = committed(log, "a", 10)
    assert names(log, 10 + LIFE_NS) == ["a"]
    assert log.commit(producer, 10 + LIFE_NS).epoch == 1
    assert names(log, 11 + LIFE_NS) == []
    assert [one.value for one in log.read("t", 0)] == ["a"]
    with pytest.raises(LogTransactionGoneError, match="the log has never heard of it"):
        log.commit(producer, 11 + LIFE_NS)
    log.validate()


def test_what_is_open_or_prepared_is_not_forgotten(log: Log) -> None:
    """Only the timeout ends such a transaction; after that the name lives for a while."""
    for number, name in enumerate("ab"):
        producer = log.init_transactions(name, 5 * LIFE_NS, 0)
        log.begin(producer, 0)
        log.append(producer, "t", 0, [number], 0, 0)
    log.prepare(producer, 0)
    assert names(log, 5 * LIFE_NS) == ["a", "b"]
    assert [one.state for one in log.transactions("", 5 * LIFE_NS + 1)] == ["expired", "expired"]
    assert names(log, 6 * LIFE_NS + 1) == ["a", "b"]
    assert names(log, 6 * LIFE_NS + 2) == []


def test_a_name_that_is_used_lives(log: Log) -> None:
    """Its life begins anew at each end of a transaction."""
    producer = log.init_transactions("a", 10**17, 0)
    for number in range(1, 6):
        log.begin(producer, number * LIFE_NS)
        producer = log.commit(producer, number * LIFE_NS)
    assert names(log, 6 * LIFE_NS) == ["a"]


def test_a_name_that_is_only_taken_over_again_and_again_does_not_live_by_that(log: Log) -> None:
    """Each restart takes over the names of all earlier attempts; without this rule there would be ever more of them."""
    committed(log, "a", 0)
    for at_ns in range(100, LIFE_NS + 100, 100):
        assert log.init_transactions("a", 10**17, at_ns).epoch == 1 + at_ns // 100
    assert names(log, LIFE_NS + 100) == ["a"]
    assert names(log, LIFE_NS + 101) == []


def test_a_zombie_of_a_forgotten_name_is_found_out_when_the_name_comes_back(log: Log) -> None:
    """New epochs begin above those of all forgotten names, whatever they were called."""
    zombie = log.init_transactions("a", 10**17, 0)
    assert names(log, LIFE_NS + 1) == []
    with pytest.raises(InvalidTransactionError, match="never heard"):
        log.begin(zombie, LIFE_NS + 1)
    again = log.init_transactions("a", 10**17, LIFE_NS + 2)
    assert again.epoch == zombie.epoch + 1
    log.begin(again, LIFE_NS + 2)
    with pytest.raises(Exception, match=r"epoch .*0"):
        log.append(zombie, "t", 0, ["zombie"], 0, LIFE_NS + 2)
    assert log.init_transactions("b", 10**17, LIFE_NS + 2).epoch == 1


@pytest.mark.parametrize("snapshot", [False, True])
def test_what_is_forgotten_stays_forgotten(snapshot: bool) -> None:
    """A log that is opened again knows the same names and epochs, from journal or snapshot."""
    fs = MemoryFileSystem()
    log = on_disk(fs)
    log.create_topic("t", 1)
    committed(log, "a", 0)
    committed(log, "b", LIFE_NS)
    assert names(log, LIFE_NS + 1) == ["b"]
    if snapshot:
        log.write_snapshot()
    log.abandon()
    log = on_disk(fs)
    assert names(log, LIFE_NS + 1) == ["b"]
    assert log.init_transactions("a", 10**17, LIFE_NS + 1).epoch == 2
    assert names(log, 2 * LIFE_NS + 1) == ["a"]
    log.validate()


def test_a_name_is_not_forgotten_before_its_markers_are_durable() -> None:
    """A power cut would leave records of an unknown name: at the next opening the log would report damage."""
    fs = MemoryFileSystem()
    log = on_disk(fs)
    log.create_topic("t", 1)
    producer = log.init_transactions("a", 10**17, 0)
    log.begin(producer, 0)
    log.append(producer, "t", 0, ["no"], 0, 0)
    log.flush()
    log.abort(producer, 0)
    assert names(log, LIFE_NS + 1) == []
    log.init_transactions("b", 10**17, LIFE_NS + 1)
    fs.crash()
    log = on_disk(fs)
    assert names(log, LIFE_NS + 1) == ["b"]
    log.validate()


def test_a_life_without_end_can_be_asked_for_and_none_that_makes_no_sense() -> None:
    """A log with the transactions of savepoints needs it, for example."""
    log = on_disk(life_ns=None)
    log.create_topic("t", 1)
    committed(log, "a", 0)
    assert names(log, 1 << 62) == ["a"]
    with pytest.raises(ConfigurationError, match="id_expiration_ns of the log is 0"):
        DiskLog("log", transactional_id_expiration_ns=0)


# --- many at once -------------------------------------------------------------------------------------------------


def test_many_names_are_taken_over_with_one_fsync() -> None:
    """The next attempt of a sink fences all that are left, and their open transactions are aborted."""
    inner = MemoryFileSystem()
    fs = FaultInjectingFileSystem(inner)
    first = LogSink("rows", log=DiskLog("events"))
    tasks = [Harness(first.create_operator(), fs=fs, subtask=number, parallelism=16) for number in range(16)]
    checkpoint = Checkpoint(1)
    for number, task in enumerate(tasks):
        task.process([f"kept {number}"])
        task.snapshot(1, checkpoint)
        task.process([f"lost {number}"])
    for task in tasks:
        task.operator.abandon()
    inner.crash(lambda path: True)
    second = LogSink("rows", log=DiskLog("events"))
    fs.calls.clear()
    task = Harness(second.create_operator(), fs=fs, restored=checkpoint, incarnation=2)
    assert task.counter("numTransactionalIdsFenced") == 32
    journal = [call for call in fs.calls if call.operation == "fsync" and "/transactions/" in call.path]
    # One for each of 16 commits and 16 aborts, one for all 32 names, and one for the first transaction.
    assert len(journal) == 16 + 16 + 1 + 1
    rows = [one.value for one in committed_records(inner, "/out/events", "rows")[0]]
    assert sorted(map(str, rows)) == sorted(f"kept {number}" for number in range(16))
    task.close()


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_group_that_is_cut_off_is_done_or_not_done_name_by_name(power_cut: bool) -> None:
    """Markers come after the journal. Otherwise a prepared transaction could be aborted in one partition only."""
    fs = MemoryFileSystem()
    log = on_disk(fs)
    log.create_topic("t", 1)
    for name in "ab":
        producer = log.init_transactions(name, 10**17, 0)
        log.begin(producer, 0)
        log.append(producer, "t", 0, [name], 0, 0)
        log.prepare(producer, 0)
    group = log.together()
    group.__enter__()
    log.init_transactions("a", 10**17, 0)
    assert [entry.kind for entry in log.entries("t", 0)] == ["data", "data"]
    if power_cut:
        fs.crash()
    log.abandon()
    log = on_disk(fs)
    assert [one.state for one in log.transactions("", 0)] == ["prepared", "prepared"]
    log.commit(Producer("a", 0), 0)
    log.commit(Producer("b", 0), 0)
    assert [one.value for one in log.read("t", 0)] == ["a", "b"]
    log.validate()


def test_a_request_that_fails_within_a_group_leaves_the_others_carried_out() -> None:
    """The log lives on in other tasks: answered requests are durable, and have their markers."""
    fs = MemoryFileSystem()
    log = on_disk(fs)
    log.create_topic("t", 1)
    for name in "ab":
        producer = log.init_transactions(name, 10**17, 0)
        log.begin(producer, 0)
        log.append(producer, "t", 0, [name], 0, 0)

    def take_over() -> None:
        with log.together():
            log.init_transactions("a", 10**17, START_NS)
            log.init_transactions("b", 0, START_NS)

    with pytest.raises(ConfigurationError, match="transaction timeout of 'b' is 0 ns"):
        take_over()
    assert [entry.kind for entry in log.entries("t", 0)] == ["data", "data", "abort"]
    fs.crash()
    assert [one.state for one in on_disk(fs).transactions("", START_NS)] != ["open", "open"]
