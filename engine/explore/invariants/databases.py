"""The history of a database, in the form of a log's history, so that V7 and V8 judge both by the same rules.

Names of transactions in a database begin with a writer, which need not be the uid of its sink. Here they become
``uid/subtask/incarnation.attempt/number``, like the transactional ids of a log. Differences that matter:

* A successor that takes a subtask over does not abort its prepared transactions, so a ``fence`` does not end one.
* ``take-over``, ``upsert``, ``retract`` and ``forget`` belong to no transaction: they have no id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from engine.explore.run import World
from operators.databases import DatabaseExchange, MemoryDatabase
from operators.log.port import DELIVERED, FENCE, Exchange, Request

_AS_IN_A_LOG = {"write": "append"}


class DatabaseHistory(Sequence[Exchange]):
    """Each request as if it had been made to a log, translated when it is read."""

    def __init__(self, uid: str, database: MemoryDatabase) -> None:
        self._uid, self._database = uid, database

    def __len__(self) -> int:
        return len(self._database.history)

    @overload
    def __getitem__(self, at: int) -> Exchange: ...

    @overload
    def __getitem__(self, at: slice) -> list[Exchange]: ...

    def __getitem__(self, at: int | slice) -> Exchange | list[Exchange]:
        found = self._database.history[at]
        return [self._told(one) for one in found] if isinstance(found, list) else self._told(found)

    def _told(self, exchange: DatabaseExchange) -> Exchange:
        request, name = exchange.request, exchange.request.transaction
        kind = _AS_IN_A_LOG.get(request.kind, request.kind)
        fate = DELIVERED if exchange.fate == FENCE else exchange.fate
        transactional_id, epoch = None, -1
        if name is not None:
            transactional_id = f"{self._uid}/{name.subtask}/{name.incarnation}.{name.attempt}/{name.number}"
            epoch = name.epoch
        # A database has no clock.
        told = Request(kind, transactional_id, epoch, None, 0, 0, request.note, 0)
        return Exchange(exchange.number, told, fate, exchange.result)


class ToldDatabase:
    """A database that can be asked for its ``history``, as a log can."""

    def __init__(self, uid: str, database: MemoryDatabase) -> None:
        self.history = DatabaseHistory(uid, database)


def databases_of(world: World) -> Iterator[tuple[str, MemoryDatabase]]:
    """The databases in memory that sinks of a world write to, by uid."""
    for uid, sink in sorted(world.sinks.items()):
        database = getattr(sink, "database", None)
        if isinstance(database, MemoryDatabase):
            yield uid, database


def left_in(database: MemoryDatabase) -> list[str]:
    """Unfinished transactions, except those with a lost request to begin or abort them: if the job ends after an abort
    was lost, only the next run could roll the transaction back."""
    kept = {
        one.request.transaction
        for one in database.history
        if one.request.kind in ("abort", "begin") and one.fate != DELIVERED
    }
    return [str(name) for name in database.unfinished() if name not in kept]
