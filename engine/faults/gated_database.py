"""An external database with a gate in front: requests and answers are lost, and other sessions interfere.

A request has the same fates as in the model (:mod:`operators.databases.memory_database`). The gate uses only means that
the database itself offers: a separate session takes a subtask over, rolls a transaction back, or repeats a commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from operators.databases import (
    DatabaseError,
    DatabaseRequest,
    EpochHolder,
    Gate,
    LedgerRow,
    Row,
    SinkDatabase,
    SinkSession,
    TableDescription,
    TransactionName,
    UnansweredError,
)
from operators.log.port import ANSWER_LOST, EXPIRE, FENCE, LATE_MARKER, REQUEST_LOST

T = TypeVar("T")

_ONLY_THIS_ONE = 1 << 20
"""As a parallelism: a session with it takes over one subtask, and no other."""


class GatedDatabase:
    """See :class:`operators.databases.database_session.SinkDatabase`. ``inner``: the database itself."""

    def __init__(self, inner: SinkDatabase, gate: Gate) -> None:
        self.inner, self.gate = inner, gate
        self._late: list[DatabaseRequest] = []

    def connect(self, description: TableDescription, resolve_path: Callable[[str], str]) -> SinkSession:
        """A session that goes through the gate."""

        def another() -> SinkSession:
            return self.inner.connect(description, resolve_path)

        return _GatedSession(self, another(), another, description.writer)

    def rows(self, description: TableDescription) -> list[Row]:
        return self.inner.rows(description)

    def due(self, request: DatabaseRequest) -> list[DatabaseRequest]:
        """The requests that arrive a second time now: those of the same subtask, but of another transaction."""
        due = [
            late
            for late in self._late
            if (late.writer, late.subtask) == (request.writer, request.subtask)
            and late.transaction != request.transaction
        ]
        self._late = [late for late in self._late if late not in due]
        return due

    def arrives_again(self, request: DatabaseRequest) -> None:
        """A commit or abort that was carried out will also arrive late."""
        self._late.append(request)


def _say_again(late: DatabaseRequest, session: SinkSession) -> None:
    assert late.transaction is not None, late
    if late.kind == "commit":
        session.commit(late.transaction)
    else:
        session.abort(late.transaction)


class _GatedSession:
    """See :class:`operators.databases.database_session.SinkSession`."""

    def __init__(
        self, database: GatedDatabase, session: SinkSession, another: Callable[[], SinkSession], writer: str
    ) -> None:
        self._database, self._session, self._another, self._writer = database, session, another, writer

    @property
    def place(self) -> str:
        return self._session.place

    def _request(
        self, kind: str, who: TransactionName | EpochHolder | None, carry_out: Callable[[], T], note: int | None = None
    ) -> T:
        name = who if isinstance(who, TransactionName) else None
        request = DatabaseRequest(kind, self._writer, None if who is None else who.subtask, name, note)
        database = self._database
        for late in database.due(request):
            self._meddle(partial(_say_again, late))
        fate = database.gate(request)
        if fate == EXPIRE and name is not None:
            self._meddle(lambda session: session.abort(name))
        elif fate == FENCE and who is not None:
            self._meddle(lambda session: session.take_over(who.subtask, _ONLY_THIS_ONE))
        lost = UnansweredError(f"{self.place}: no answer came to {request.name}")
        if fate == REQUEST_LOST:
            raise lost
        answer = carry_out()
        if fate == ANSWER_LOST:
            raise lost
        if fate == LATE_MARKER and kind in ("commit", "abort"):
            database.arrives_again(request)
        return answer

    def _meddle(self, act: Callable[[SinkSession], object]) -> None:
        session = self._another()
        try:
            act(session)
        except DatabaseError:
            # An error of the other session, not of this one. (Its late request may find the transaction over.)
            pass
        finally:
            session.close()

    def prepare_table(self) -> None:
        self._session.prepare_table()

    def take_over(self, subtask: int, parallelism: int) -> int:
        return self._request(
            "take-over", EpochHolder(subtask, 0), lambda: self._session.take_over(subtask, parallelism)
        )

    def begin(self, name: TransactionName) -> None:
        self._request("begin", name, lambda: self._session.begin(name))

    def write(self, name: TransactionName, rows: Sequence[Row]) -> None:
        self._request("write", name, lambda: self._session.write(name, rows))

    def prepare(self, name: TransactionName, checkpoint_id: int | None) -> None:
        self._request("prepare", name, lambda: self._session.prepare(name, checkpoint_id), checkpoint_id)

    def commit(self, name: TransactionName) -> bool:
        return self._request("commit", name, lambda: self._session.commit(name))

    def abort(self, name: TransactionName) -> bool:
        return self._request("abort", name, lambda: self._session.abort(name))

    def unfinished(self) -> list[TransactionName]:
        return self._session.unfinished()

    def committed(self) -> list[LedgerRow]:
        return self._session.committed()

    def retract(self, names: Sequence[TransactionName]) -> int:
        return self._request("retract", None, lambda: self._session.retract(names))

    def forget(self, names: Sequence[TransactionName]) -> None:
        self._request("forget", None, lambda: self._session.forget(names))

    def upsert(self, holder: EpochHolder, rows: Sequence[Row], deleted: Sequence[Row]) -> None:
        self._request("upsert", holder, lambda: self._session.upsert(holder, rows, deleted))

    def close(self) -> None:
        self._session.close()

    def drop(self) -> None:
        self._session.drop()
