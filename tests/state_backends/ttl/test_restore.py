"""State with time-to-live across restores: what may change, and what is refused."""

from __future__ import annotations

import pytest

from state_backends.api import KeyedStateBackend, StateBackend
from state_backends.base import (
    ListStateDescriptor,
    StateSchemaError,
    StateTtlConfig,
    UpdateType,
    ValueStateDescriptor,
    key_group_for,
)
from state_backends.heap import HeapStateBackend
from state_backends.snapshots import KeyedStateHandle, SnapshotType, StateReader
from tests.state_backends.schema.support import taken
from tests.state_backends.ttl.support import BACKENDS, GROUPS, Clock, environment, tiny_lsm

FORMS = [
    ("heap", SnapshotType.CHECKPOINT),
    ("heap", SnapshotType.NATIVE_SAVEPOINT),
    ("lsm", SnapshotType.CHECKPOINT),
    ("lsm", SnapshotType.NATIVE_SAVEPOINT),
]
forms = pytest.mark.parametrize(("name", "kind"), FORMS)


def made(name: str, kind: SnapshotType, clock: Clock, first: int = 0, last: int = GROUPS - 1) -> KeyedStateBackend:
    """A backend whose snapshots of that type are in its own format."""
    setting: StateBackend = tiny_lsm()
    if name == "heap":
        setting = HeapStateBackend(incremental=kind is SnapshotType.NATIVE_SAVEPOINT)
    return setting.create_keyed_backend(environment(clock, first, last))


def written(name: str, kind: SnapshotType, ttl: StateTtlConfig | None) -> tuple[KeyedStateHandle, StateReader]:
    """A snapshot of ten values written at time 0, key 3 read at 60."""
    clock = Clock()
    keyed = made(name, kind, clock)
    state = keyed.value_state(ValueStateDescriptor("v", ttl=ttl))
    state.update_many(list(range(10)), list(range(10)))
    clock.now_ms = 60
    keyed.set_current_key(3)
    state.get()
    return taken(keyed, kind)


@forms
def test_the_last_access_survives(name: str, kind: SnapshotType) -> None:
    """A value written or read before the snapshot expires after the restore at the time it would have without one."""
    ttl = StateTtlConfig(100, UpdateType.ON_READ_AND_WRITE)
    handle, reader = written(name, kind, ttl)
    for now, expected in ((99, list(range(10))), (100, [None] * 3 + [3] + [None] * 6), (160, [None] * 10)):
        keyed = made(name, kind, Clock(now))
        keyed.restore([handle], reader)
        assert keyed.value_state(ValueStateDescriptor("v", ttl=ttl)).get_many(list(range(10))) == expected


@forms
def test_the_duration_may_change(name: str, kind: SnapshotType) -> None:
    """The time-to-live of the running program counts, and so do its other settings."""
    handle, reader = written(name, kind, StateTtlConfig(100))
    for ttl_ms, expected in ((50, [None] * 10), (5000, list(range(10)))):
        keyed = made(name, kind, Clock(150))
        keyed.restore([handle], reader)
        config = StateTtlConfig(ttl_ms, UpdateType.ON_READ_AND_WRITE, cleanup_full_snapshot=True)
        assert keyed.value_state(ValueStateDescriptor("v", ttl=config)).get_many(list(range(10))) == expected


@forms
@pytest.mark.parametrize("had_ttl", [False, True])
def test_switching_it_on_or_off_is_refused(name: str, kind: SnapshotType, had_ttl: bool) -> None:
    """The stored form differs: the error names the state, says what it was, and what to do."""
    handle, reader = written(name, kind, StateTtlConfig(100) if had_ttl else None)
    keyed = made(name, kind, Clock())
    keyed.restore([handle], reader)
    was, now = ("with", "without") if had_ttl else ("without", "with")

    with pytest.raises(StateSchemaError, match=rf"'v' was restored {was} time-to-live and is declared {now} it"):
        keyed.value_state(ValueStateDescriptor("v", ttl=None if had_ttl else StateTtlConfig(100)))
    keyed.value_state(ValueStateDescriptor("another", ttl=StateTtlConfig(100)))


@pytest.mark.parametrize("had_ttl", [False, True])
def test_it_is_refused_too_when_the_state_was_declared_first(had_ttl: bool) -> None:
    """A restore compares with what the program has declared before."""
    handle, reader = written("heap", SnapshotType.CHECKPOINT, StateTtlConfig(100) if had_ttl else None)
    keyed = made("heap", SnapshotType.CHECKPOINT, Clock())
    keyed.value_state(ValueStateDescriptor("v", ttl=None if had_ttl else StateTtlConfig(100)))

    with pytest.raises(StateSchemaError, match="snapshot has state 'v' with"):
        keyed.restore([handle], reader)
    assert keyed.num_entries() == 0


@pytest.mark.parametrize("name", BACKENDS)
def test_one_program_declares_a_state_in_one_way(name: str) -> None:
    """Two handles of one state agree about time-to-live."""
    keyed = made(name, SnapshotType.CHECKPOINT, Clock())
    keyed.list_state(ListStateDescriptor("l", ttl=StateTtlConfig(1)))
    keyed.list_state(ListStateDescriptor("l", ttl=StateTtlConfig(2)))

    with pytest.raises(StateSchemaError, match="'l' was declared with time-to-live and is declared without it"):
        keyed.list_state(ListStateDescriptor("l"))


@forms
def test_what_nobody_has_declared_is_carried_along(name: str, kind: SnapshotType) -> None:
    """State with time-to-live that a program does not ask for keeps it through the next snapshot."""
    handle, reader = written(name, kind, StateTtlConfig(100))
    between = made(name, kind, Clock(10**6))
    between.restore([handle], reader)
    handle, reader = taken(between, kind)

    last = made(name, kind, Clock(99))
    last.restore([handle], reader)
    with pytest.raises(StateSchemaError, match="with time-to-live"):
        last.value_state(ValueStateDescriptor("v"))
    state = last.value_state(ValueStateDescriptor("v", ttl=StateTtlConfig(100)))
    assert state.get_many(list(range(10))) == list(range(10))


@forms
def test_it_moves_with_its_key_group(name: str, kind: SnapshotType) -> None:
    """Split over two subtasks, state expires as it would have in one."""
    ttl = StateTtlConfig(100)
    handle, reader = written(name, kind, ttl)
    for now, expected in ((99, list(range(10))), (100, [None] * 10)):
        found = {}
        for first, last in ((0, 2), (3, GROUPS - 1)):
            keyed = made(name, kind, Clock(now), first, last)
            keyed.restore([handle], reader)
            keys = [key for key in range(10) if first <= key_group_for(key, GROUPS) <= last]
            state = keyed.value_state(ValueStateDescriptor("v", ttl=ttl))
            found |= dict(zip(keys, state.get_many(keys), strict=True))
        assert [found[key] for key in range(10)] == expected
