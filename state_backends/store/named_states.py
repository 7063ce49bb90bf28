"""The states of a store backend by name, and the ids under which their rows are."""

from __future__ import annotations

from collections.abc import Iterator

from state_backends.api import KeyScope, check_same_kind
from state_backends.base import StateKind, StateTtlConfig
from state_backends.codec import StateCodec
from state_backends.snapshots import StateId
from state_backends.store.meta import next_state_id
from state_backends.store.parts import StatePart, StoreTable
from state_backends.ttl import TtlRowFilter

_NO_ID = -1


class StoreTables:
    """All states that were declared or restored. Ids are given in the order in which the states come up."""

    __slots__ = ("_by_name", "_codec", "_last_id", "_scope", "_ttl_filter")

    def __init__(self, scope: KeyScope, codec: StateCodec, ttl_filter: TtlRowFilter) -> None:
        """No state is known yet.

        :param ttl_filter: told which rows are of states with time-to-live
        """
        self._by_name: dict[str, StoreTable] = {}
        self._scope = scope
        self._codec = codec
        self._ttl_filter = ttl_filter
        self._last_id = _NO_ID

    def __iter__(self) -> Iterator[StoreTable]:
        """The states, by name."""
        return iter([self._by_name[name] for name in sorted(self._by_name)])

    def get(self, name: str) -> StoreTable | None:
        """The state of that name, or ``None``."""
        return self._by_name.get(name)

    def states(self) -> tuple[tuple[int, StateId], ...]:
        """(state id, state), ascending by id."""
        return tuple(sorted((part.state_id, part.state) for table in self for part in table.parts()))

    def declared(self, name: str, kind: StateKind, ttl: StateTtlConfig | None) -> StoreTable:
        """A state that the running program declares.

        :raises StateSchemaError: when the name belongs to a state of another kind
        """
        table = self.registered(name, kind)
        if ttl is not None:
            table.has_ttl = True
            for part in table.parts():
                self._ttl_filter.register(part.state_id, table.kind, ttl)
        return table

    def registered(self, name: str, kind: StateKind) -> StoreTable:
        """A state that the running program uses.

        :raises StateSchemaError: when the name belongs to a state of another kind
        """
        table = self._table(name, kind)
        table.registered = True
        return table

    def restored(self, state: StateId) -> StatePart:
        """The part that a snapshot calls so.

        :raises StateSchemaError: when the name belongs to a state of another kind
        """
        table = self._table(state.name, StateKind(state.kind))
        return next(part for part in table.parts() if part.state == state)

    def adopt(self, states: tuple[tuple[int, StateId], ...]) -> None:
        """Take over the ids that are in the rows of a store. States declared before have no rows yet: they get others.

        :param states: (state id, state)
        """
        known = {state: state_id for state_id, state in states}
        for state in known:
            self.restored(state)
        self._last_id = max(known.values(), default=_NO_ID)
        for table in self._by_name.values():
            assert not table.has_ttl, "state with time-to-live was declared before the restore"
            for part in table.parts():
                part.renumber(known[part.state] if part.state in known else self._next_id())

    def _table(self, name: str, kind: StateKind) -> StoreTable:
        table = self._by_name.get(name)
        if table is None:
            table = self._by_name[name] = StoreTable(name, kind, self._make_part)
        check_same_kind(name, table.kind, kind, registered=table.registered)
        return table

    def _make_part(self, state: StateId) -> StatePart:
        return StatePart(state, self._next_id(), self._scope, self._codec)

    def _next_id(self) -> int:
        self._last_id = next_state_id([self._last_id])
        return self._last_id
