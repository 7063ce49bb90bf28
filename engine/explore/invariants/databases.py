"""The history of a database, told like that of a log, so that V7 and V8 judge both by the same rules.

Names of transactions in a database begin with a writer, which need not be the uid of its sink. Here they become
``uid/subtask/incarnation.attempt/number``, as transactional ids of a log are. Differences that matter:

* Whoever takes a subtask over takes no prepared transaction away, so that a ``fence`` is no end of one.
* ``take-over``, ``upsert``, ``retract`` and ``forget`` are of no transaction: they have no id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from engine.explore.run import World
from operators.databases import DatabaseExchange, MemoryDatabase
from operators.log.port import DELIVERED, FENCE, Exchange, Request

_AS_IN_A_LOG = {"write": "append"}


class DatabaseHistory(Sequence[Exchange]):
    """Each request as if it had been made to a log, translated when somebody looks."""

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
    """Transactions that are not over, of which nobody was kept from ending them: when the request to abort one is lost,
    and the job ends with that, only the next run could take it back."""
    kept = {
        one.request.transaction
        for one in database.history
        if one.request.kind in ("abort", "begin") and one.fate != DELIVERED
    }
    return [str(name) for name in database.unfinished() if name not in kept]
