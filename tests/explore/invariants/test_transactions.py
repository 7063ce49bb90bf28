"""V7, V8 and V9: commits, fencing, and the content of a log."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.explore.invariants.transactions import Owner, owner_of
from engine.explore.run import CaseView, FinishedCase, World
from engine.faults.fault import parse_fault
from engine.observe.trace_events import (
    AttemptStarted,
    CheckpointCompleted,
    CheckpointTriggered,
    SnapshotAcknowledged,
    SnapshotTaken,
    TaskState,
)
from operators.basic import CollectedResults, CollectSink
from operators.log.connectors import LogSink, TransactionalLogSink
from operators.log.memory_transaction_log import MemoryTransactionLog
from operators.log.port.transaction_log import Exchange, LogEntry, Request
from tests.explore.invariants.support import carried_out, found, healthy, texts, told, usual

COUNT = "count[0]"


def completed(number: int, attempt: int = 1) -> CheckpointCompleted:
    return CheckpointCompleted(2, attempt, number, 0)


def logged() -> tuple[CaseView, MemoryTransactionLog]:
    """A view of a healthy process whose sink has an empty log."""
    view, sink = healthy("logged").view, LogSink("rows", partitions=1)
    assert isinstance(sink.log, MemoryTransactionLog)
    return replace(view, world=World(sinks={"out": sink})), sink.log


def ended(view: CaseView) -> FinishedCase:
    return FinishedCase(view, healthy("logged").results, {}, [], outcome="finished")


def uid_of_sink() -> str:
    """The uid that its transactional ids begin with."""
    return next(iter(healthy("logged").view.world.sinks))


# --- V7: sinks in memory ----------------------------------------------------------------------------------------------


def test_a_commit_before_its_checkpoint_is_complete_is_found() -> None:
    """Committed rows belong to a completed checkpoint, or to an older one that a completed one has subsumed."""
    results = CollectedResults()
    view = replace(healthy().view, world=World(sinks={"out": CollectSink(results)}))
    invariant = told("V7", completed(2), view=view)
    handlers = invariant.handlers()
    results.commit(("out", 0, 1), [1])
    results.commit(("out", 0, 2), [2])
    handlers[CheckpointTriggered](CheckpointTriggered(3, 1, 3))
    assert texts(invariant) == []
    results.commit(("out", 0, 3), [3])
    handlers[CheckpointCompleted](completed(3))
    assert texts(invariant) == [
        "sink 'out', subtask 0, has committed what belongs to checkpoint 3, but the newest that is complete is 2"
    ]


def test_a_restored_checkpoint_is_complete_although_nobody_saw_it_complete() -> None:
    """Its process died between the two; the restore commits what it covers."""
    results = CollectedResults()
    view = replace(healthy().view, world=World(sinks={"out": CollectSink(results)}))
    invariant = told("V7", AttemptStarted(1, 1, 4), view=view)
    results.commit(("out", 0, 4), [1])
    invariant.handlers()[CheckpointTriggered](CheckpointTriggered(3, 1, 5))
    assert texts(invariant) == []


# --- V7: logs ---------------------------------------------------------------------------------------------------------


def transaction(log: MemoryTransactionLog, name: str, note: int, *, prepare: bool = True) -> Any:
    """One record in a transaction that is pre-committed for a checkpoint."""
    producer = log.init_transactions(f"{uid_of_sink()}/0/{name}/0", 10**9, 0)
    log.begin(producer, 0)
    log.append(producer, "rows", 0, [note], 0, 0)
    if prepare:
        log.prepare(producer, 0, note)
    return producer


def snapshot(number: int, attempt: int = 1) -> SnapshotTaken:
    """The sink's task takes its snapshot."""
    return SnapshotTaken(1, attempt, number, "count -> out[0]", 0, 0)


def test_a_log_gets_its_commits_behind_the_completion() -> None:
    """In that order nothing is wrong; in the other the commit is named."""
    view, log = logged()
    producer = transaction(log, "1.1", 1)
    invariant = told("V7", snapshot(1), completed(1), view=view)
    log.commit(producer, 1, 1)
    invariant.finished(ended(view))
    assert texts(invariant) == []

    view, log = logged()
    producer = transaction(log, "1.1", 1)
    log.commit(producer, 1, 1)
    invariant = told("V7", snapshot(1), completed(1), view=view)
    invariant.finished(ended(view))
    assert "pre-committed for checkpoint 1, but no checkpoint that holds it is complete" in texts(invariant)[0]


@pytest.mark.parametrize("repeated", [False, True])
def test_a_commit_that_broke_off_is_one_when_somebody_is_told_that_it_was(repeated: bool) -> None:
    """The commit may have happened or not; if it did, it came too early."""
    view, log = logged()
    producer = transaction(log, "1.1", 1)
    invariant = told("V7", snapshot(1), completed(1), view=view)
    request = Request("commit", *producer, None, 0, 0, 1, 1)
    for result in ("interrupted", "repeated")[: 1 + repeated]:
        log.history.append(Exchange(len(log.history), request, "delivered", result))
    invariant.finished(ended(view))
    assert [("never commits it" in text) for text in texts(invariant)] == [True] * (not repeated)

    early = told("V7", view=view)
    early.finished(ended(view))
    assert "but no checkpoint that holds it is complete" in texts(early)[0]


def test_what_a_completed_checkpoint_holds_is_committed_in_the_end() -> None:
    """It is a violation if a notification got lost and the commit was never made up for."""
    view, log = logged()
    producer = transaction(log, "1.1", 1)
    invariant = told("V7", snapshot(1), completed(1), view=view)
    invariant.finished(ended(view))
    assert texts(invariant) == [
        f"sink 'out' has pre-committed transaction {producer} for checkpoint 1, which is complete, and never commits it"
    ]


def test_a_checkpoint_covers_only_what_its_own_snapshots_hold() -> None:
    """The transaction of an attempt that died is not covered by a later checkpoint of the next one."""
    view, log = logged()
    producer = transaction(log, "1.1", 1)
    invariant = told("V7", snapshot(1), snapshot(2, attempt=2), completed(2, 2), view=view)
    log.commit(producer, 1, 1)
    invariant.finished(ended(view))
    assert len(texts(invariant)) == 1


def test_a_transaction_that_the_log_has_given_up_is_a_loss_that_is_reported() -> None:
    """The sink fails with an error, and the transaction no longer has to be committed."""
    view, log = logged()
    transaction(log, "1.1", 1)
    invariant = told("V7", snapshot(1), completed(1), view=view)
    log.expire(10**12)
    invariant.finished(ended(view))
    assert texts(invariant) == []


def test_ids_say_whose_they_are() -> None:
    """A uid may hold slashes; other names have no owner."""
    assert owner_of("a/b/3/2.5/0") == Owner("a/b", 3, 2, 5)
    assert owner_of("somebody") is None


# --- V8 ---------------------------------------------------------------------------------------------------------------


def running(attempt: int) -> TaskState:
    return TaskState(1, attempt, COUNT, "running", None)


def test_a_checkpoint_is_not_completed_with_what_a_zombie_said() -> None:
    """The acknowledgement is of attempt 1, the task runs in attempt 2."""
    events = [running(1), SnapshotAcknowledged(1, 1, 1, COUNT, 0), running(2), CheckpointTriggered(2, 2, 1)]
    assert texts(told("V8", *events, completed(1, 2))) == [
        "checkpoint 1 is complete with what count[0] acknowledged in attempt 1, which is over: it runs in attempt 2"
    ]
    assert texts(told("V8", *events, SnapshotAcknowledged(1, 2, 1, COUNT, 0), completed(1, 2))) == []


def test_a_checkpoint_does_not_outlive_an_attempt() -> None:
    """A checkpoint that began in an older attempt ends with that attempt."""
    events = [CheckpointTriggered(1, 1, 1), AttemptStarted(2, 2, None), completed(1, 2)]
    assert texts(told("V8", *events)) == ["checkpoint 1 is complete, but was begun before attempt 2"]
    assert texts(told("V8", events[1], events[0], events[2])) == []


def test_a_log_takes_nothing_from_an_older_attempt_behind_a_newer_one() -> None:
    """Each attempt writes under names of its own; the older one had to be fenced."""
    view, log = logged()
    old = transaction(log, "1.1", 1, prepare=False)
    invariant = told("V8", view=view)
    transaction(log, "1.2", 2)
    log.append(old, "rows", 0, [9], 1, 0)
    invariant.finished(ended(view))
    (text,) = texts(invariant)
    assert "append" in text
    assert "is taken from an attempt that is over; the subtask writes in attempt 2 of process 1" in text


# --- V9 ---------------------------------------------------------------------------------------------------------------


def read(log_is_wrong: Any) -> list[str]:
    """The findings of V9 in a log with one committed and one aborted transaction, after a planted error."""
    view, log = logged()
    one = transaction(log, "1.1", 1)
    log.commit(one, 1, 1)
    log.abort(transaction(log, "1.2", 2, prepare=False), 1)
    invariant = told("V9", view=view)
    invariant.handlers()[CheckpointCompleted](completed(1))
    log_is_wrong(log._topics["rows"][0], log)
    invariant.finished(ended(view))
    return texts(invariant)


def test_a_log_that_is_right_is_silent() -> None:
    """Committed records are there once, aborted ones are not read."""
    assert read(lambda entries, log: None) == []


def test_divergence_is_found() -> None:
    """An offset that gives another value than before."""

    def other(entries: list[LogEntry], log: Any) -> None:
        entries[0] = entries[0]._replace(value="other")

    assert read(other) == ["log of sink 'out', rows-0: what was there has changed"]


def test_a_lost_write_is_found() -> None:
    """A committed record that is not there."""

    def lost(entries: list[LogEntry], log: Any) -> None:
        entries[:] = [entry._replace(offset=at) for at, entry in enumerate(entries[1:])]

    assert any("has appended 1 record(s), and others are there" in text for text in read(lost))


def test_a_duplicate_is_found() -> None:
    """A record of a transaction that is there twice."""

    def twice(entries: list[LogEntry], log: Any) -> None:
        entries.append(entries[0]._replace(offset=len(entries)))

    assert any("has appended 1 record(s), and others are there" in text for text in read(twice))


def test_a_gap_is_found() -> None:
    """Offsets that skip one."""

    def skipped(entries: list[LogEntry], log: Any) -> None:
        entries[-1] = entries[-1]._replace(offset=len(entries))

    assert any("offsets have a gap, or come twice" in text for text in read(skipped))


def test_an_aborted_read_is_found() -> None:
    """Records of an uncommitted transaction are visible."""

    def visible(entries: list[LogEntry], log: Any) -> None:
        entries[-1] = entries[-1]._replace(kind="commit")

    assert any("are read, but were never committed" in text for text in read(visible))


def test_an_unread_committed_record_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read-committed shows everything that is committed up to the last stable offset."""
    monkeypatch.setattr(MemoryTransactionLog, "read", lambda *arguments: [])
    assert "log of sink 'out', rows-0: 1 committed records are to be read, and 0 are" in read(lambda *nothing: None)


@pytest.mark.parametrize("mistake", ["unread", "uncommitted", "twice", "lost"])
def test_a_log_that_has_grown_is_judged_from_there_on(monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    """Between two looks a transaction comes to an older one: what is wrong with it is found, and nothing before it."""
    view, log = logged()
    entries = log._topics["rows"][0]
    log.commit(transaction(log, "1.1", 1), 1, 1)
    late = transaction(log, "1.2", 2, prepare=False)
    invariant = told("V9", view=view)
    look = invariant.handlers()[CheckpointCompleted]
    look(completed(1))
    assert texts(invariant) == []
    one = transaction(log, "1.3", 3)
    expected = f"{one} has appended 1 record(s), and others are there"
    if mistake == "unread":
        monkeypatch.setattr(MemoryTransactionLog, "read", lambda *arguments: [])
        log.commit(one, 1, 1)
        log.commit(late, 1, 1)
        expected = "3 committed records are to be read, and 1 are"
    elif mistake == "uncommitted":
        log.commit(one, 1, 1)
        log._end(late.transactional_id, log._names[late.transactional_id], "committed", None)
        expected = f"records of {late} are read, but were never committed"
    elif mistake == "twice":
        entries.append(entries[-1]._replace(offset=len(entries)))
    else:
        entries.pop()
    look(completed(2))
    assert expected in "; ".join(texts(invariant))
    assert str(entries[0].producer) not in "; ".join(texts(invariant))


# --- whole runs -------------------------------------------------------------------------------------------------------


def test_a_sink_that_forgets_what_it_has_pre_committed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restored transactions are not committed again: a death of the process, or a lost notification, loses output."""
    carried_out("logged")
    case = replace(usual(), faults=(parse_fault("crash:process@before:notify.send#2"),))
    assert carried_out("logged", case)[0].violations == []
    monkeypatch.setattr(TransactionalLogSink, "recover_and_commit", lambda *arguments: None)
    finished, _ = carried_out("logged", case)
    assert found(finished, "V1")
    assert any("never commits it" in text for text in found(finished, "V7"))
