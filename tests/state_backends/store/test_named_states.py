"""Which ids the states of a store backend get."""

from __future__ import annotations

import pytest

from state_backends.api import KeyScope
from state_backends.base import LONG, KeyGroupRange, StateKind, StateSchemaError, StateTtlConfig
from state_backends.codec import default_codec
from state_backends.snapshots import StateId
from state_backends.store.parts import StoreTables
from state_backends.ttl import TtlRowFilter
from tests.state_backends.support import LIST, VALUE


def tables() -> StoreTables:
    scope = KeyScope(LONG, 8, KeyGroupRange(0, 7))
    return StoreTables(scope, default_codec(), TtlRowFilter(lambda: 0))


def test_ids_follow_the_order_of_declaration() -> None:
    """Two for each state, one for timers; a second declaration changes nothing."""
    known = tables()
    known.declared(VALUE.name, VALUE.kind, None)
    known.registered("t", StateKind.TIMERS)
    known.declared(LIST.name, LIST.kind, None)
    known.declared(VALUE.name, VALUE.kind, None)

    assert known.states() == (
        (0, StateId("value", False, "value")),
        (1, StateId("value", True, "value")),
        (2, StateId("t", True, "timers")),
        (3, StateId("list", False, "list")),
        (4, StateId("list", True, "list")),
    )
    assert [table.name for table in known] == ["list", "t", "value"]


def test_ids_in_the_rows_are_taken_over() -> None:
    """However high they are: states declared before and after get others, and rows are found under the new ones."""
    known = tables()
    value = known.declared(VALUE.name, VALUE.kind, None)
    late = known.declared(LIST.name, LIST.kind, None)
    old_prefix = late.plain.prefix_of[5]
    known.adopt(((700, StateId("value", True, "value")), (3, StateId("new", False, "map"))))
    other = known.declared("other", StateKind.VALUE, None)

    assert value.namespaced.state_id == 700
    ids = [state_id for state_id, _ in known.states()]
    assert len(set(ids)) == len(ids) == 8
    assert other.plain.state_id > 700
    assert late.plain.state_id > 700
    assert late.plain.prefix_of[5] != old_prefix
    with pytest.raises(StateSchemaError, match="'new' was restored as map state"):
        known.declared("new", StateKind.VALUE, None)


def test_state_with_time_to_live_is_declared_behind_the_restore() -> None:
    """Its ids are known to the filter of the store, so they must not change any more."""
    known = tables()
    known.declared("v", StateKind.VALUE, StateTtlConfig(1))
    with pytest.raises(AssertionError, match="declared before the restore"):
        known.adopt(((0, StateId("v", False, "value")),))
