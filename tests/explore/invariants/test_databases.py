"""V7, V8 and V14 of sinks that write to a database: commits in time, fences, and transactions that are left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.explore.invariants import invariants_for
from engine.explore.invariants.databases import DatabaseHistory
from engine.explore.run import CaseView, FinishedCase, Invariant, World
from engine.observe.trace_events import CheckpointCompleted
from operators.databases import DatabaseSink, MemoryDatabase, TransactionName, UnansweredError
from operators.databases.memory_database import MemorySession
from operators.log.port.transaction_log import OK, REFUSED_AS_FENCED, REPEATED
from tests.explore.invariants.support import healthy, texts, told
from tests.explore.invariants.test_transactions import snapshot


class Table:
    """A database with one subtask of one sink, without an engine."""

    def __init__(self) -> None:
        self.database = MemoryDatabase()
        self.sink = DatabaseSink(self.database, "rows", ("number",), writer="somebody")
        view = healthy("logged").view
        self.uid = next(iter(view.world.sinks))
        self.view: CaseView = replace(view, world=World(sinks={self.uid: self.sink}))
        self.session = self.connect()
        self.epoch = self.session.take_over(0, 1)

    def connect(self) -> MemorySession:
        return self.database.connect(self.sink.describe(self.uid), str)

    def name(self, attempt: int = 1, number: int = 0) -> TransactionName:
        return TransactionName(self.sink.describe(self.uid).writer, 0, self.epoch, 1, attempt, number)

    def prepared(self, checkpoint_id: int, attempt: int = 1) -> TransactionName:
        name = self.name(attempt)
        self.session.begin(name)
        self.session.write(name, [(1,)])
        self.session.prepare(name, checkpoint_id)
        return name

    def ended(self) -> FinishedCase:
        return FinishedCase(self.view, healthy("logged").results, {}, [], outcome="finished")

    def judged(self, name: str) -> list[str]:
        (invariant,) = invariants_for(only=[name])
        invariant.process_started(self.view)
        invariant.finished(self.ended())
        return texts(invariant)

    def covered(self, *, late_by: TransactionName | None = None) -> Invariant:
        """V7, told that checkpoint 1 is complete; after that, transaction ``late_by`` is committed, if given."""
        invariant = told("V7", snapshot(1), CheckpointCompleted(2, 1, 1, 0), view=self.view)
        if late_by is not None:
            self.session.commit(late_by)
        invariant.finished(self.ended())
        return invariant


def test_a_database_gets_its_commits_behind_the_completion() -> None:
    """In that order nothing is wrong; in the other the commit is named, with the checkpoint."""
    table = Table()
    assert texts(table.covered(late_by=table.prepared(1))) == []

    table = Table()
    table.session.commit(table.prepared(1))
    early = f"sink {table.uid!r} commits transaction {table.uid}/0/1.1/0, pre-committed for checkpoint 1, but no"
    assert any(text.startswith(early) for text in texts(table.covered()))


def test_what_a_completed_checkpoint_holds_is_committed_in_the_end() -> None:
    """It is a violation if a notification got lost and the commit was never made up for."""
    table = Table()
    table.prepared(1)
    assert texts(table.covered()) == [
        f"sink {table.uid!r} has pre-committed transaction {table.uid}/0/1.1/0 (epoch 1) for checkpoint 1, which is"
        " complete, and never commits it"
    ]


def test_a_transaction_that_was_rolled_back_by_somebody_is_not_asked_for() -> None:
    """The sink fails with an error, which reports the loss."""
    table = Table()
    name = table.prepared(1)
    table.database.gate = lambda request: "expire"
    with pytest.raises(Exception, match="neither prepared nor in the ledger"):
        table.session.commit(name)
    assert texts(table.covered()) == []


def test_a_row_that_is_taken_from_an_attempt_that_is_over_is_found() -> None:
    """A database that does not look at epochs lets a zombie write beside its successor."""
    table = Table()
    table.session.begin(table.name(attempt=2, number=1))
    assert table.judged("V8") == []
    table.session.begin(table.name(attempt=1, number=2))
    assert f"database of sink {table.uid!r}: begin {table.uid}/0/1.1/2 is taken from an attempt" in (
        table.judged("V8")[0]
    )


def test_what_is_refused_from_an_attempt_that_is_over_is_right() -> None:
    """The epoch holds."""
    table = Table()
    table.session.take_over(0, 1)
    with pytest.raises(Exception, match="epoch 2 has begun"):
        table.session.begin(table.name())
    assert table.judged("V8") == []
    assert table.database.history[-1].result == REFUSED_AS_FENCED


def test_a_transaction_that_is_left_is_found() -> None:
    """Open or prepared: it holds locks for ever."""
    table = Table()
    assert table.judged("V14") == []
    name = table.prepared(1)
    assert table.judged("V14") == [f"unfinished transactions of sink {table.uid!r}: {name}"]
    table.session.abort(name)
    assert table.judged("V14") == []


def test_a_transaction_whose_abort_got_lost_is_for_the_next_run() -> None:
    """No task could have rolled it back."""
    table = Table()
    name = table.prepared(1)
    table.database.gate = lambda request: "request-lost"
    with pytest.raises(UnansweredError):
        table.session.abort(name)
    assert table.database.unfinished() == [name]
    assert table.judged("V14") == []


def test_a_history_is_told_like_that_of_a_log() -> None:
    """Kinds, ids, notes and results; a fence does not remove prepared transactions."""
    table = Table()
    table.database.gate = lambda request: "fence" if request.kind == "commit" else "delivered"
    name = table.prepared(3)
    assert table.session.commit(name)
    assert not table.session.commit(name)
    told_history = DatabaseHistory(table.uid, table.database)
    mine = f"{table.uid}/0/1.1/0"
    assert len(told_history) == 6
    assert [(one.request.kind, one.request.transactional_id, one.request.note) for one in told_history] == [
        ("take-over", None, None),
        ("begin", mine, None),
        ("append", mine, None),
        ("prepare", mine, 3),
        ("commit", mine, None),
        ("commit", mine, None),
    ]
    assert [one.result for one in told_history[-2:]] == [OK, REPEATED]
    assert {one.fate for one in told_history} == {"delivered"}
