"""Restoring from a log: rescaled, migrated, of another job; and what the next checkpoint refers to."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest

from state_backends.base import (
    INT,
    LONG,
    STRING,
    KeyGroupRange,
    StateMigrationError,
    StateSchemaError,
    StateTtlConfig,
    ValueStateDescriptor,
)
from state_backends.codec import StateCodec, TypeRegistry, register_record_type
from state_backends.heap import HeapStateBackend
from state_backends.lsm import LsmStateBackend
from state_backends.snapshots import (
    FileStateHandle,
    FullKeyedStateHandle,
    StateScope,
    StreamStateHandle,
    run_to_completion,
)
from tests.state_backends.changelog.support import World, complete, filled, own_keys
from tests.state_backends.differential import backends as differential
from tests.state_backends.support import MAP, VALUE


def test_the_first_checkpoint_behind_a_rescale_materialises() -> None:
    """It refers to no file of another subtask; the next one is a log again."""
    world = World()
    old = filled(world)
    complete(world, old, 1, world.checkpoint(old, 1))
    handle = world.checkpoint(old, 2)
    complete(world, old, 2, handle)
    groups = KeyGroupRange(0, 2)
    part = world.restored([handle], world.backend(groups))
    first = world.checkpoint(part, 3)
    assert first.materialized_is_new
    assert first.log == ()
    assert not {one.file.path for one in first.shared()} & {one.file.path for one in handle.shared()}
    complete(world, part, 3, first)
    part.value_state(VALUE).update_many(own_keys(groups, 1), [5])
    second = world.checkpoint(part, 4)
    assert (second.materialization_id, second.materialized_is_new, len(second.log)) == (1, False, 1)


def test_restored_files_are_referred_to_and_never_brought() -> None:
    """With the same key groups the next checkpoint adds to the restored log."""
    world = World()
    old = filled(world)
    handle = world.checkpoint(old, 1)
    complete(world, old, 1, handle)
    back = world.restored([handle], world.backend())
    back.value_state(VALUE).update_many([1], [2])
    following = world.checkpoint(back, 2)
    assert [one.uploaded for one in following.log] == [False, True]
    assert following.log[0].stream == handle.log[0].stream
    assert following.persisted_bytes == following.log[1].stream.size_bytes


def test_restored_files_of_somebody_else_are_not_referred_to() -> None:
    """A log whose files belong to the restored snapshot alone, as that of another job, is read and left there."""
    world = World()
    old = filled(world)
    handle = world.checkpoint(old, 1)

    def owned(stream: StreamStateHandle) -> StreamStateHandle:
        assert isinstance(stream, FileStateHandle)
        return replace(stream, path=f"{world.storage.job_dir}/{stream.path}", scope=StateScope.EXCLUSIVE)

    back = world.restored([handle.with_streams(owned)], world.backend())
    assert back.fingerprint() == old.fingerprint()
    following = world.checkpoint(back, 2)
    assert following.materialized_is_new
    assert following.log == ()


def test_a_snapshot_of_the_backend_below_switches_the_log_on() -> None:
    """A canonical savepoint or a checkpoint of the heap is restored; its file is not referred to."""
    world = World()
    heap = HeapStateBackend().create_keyed_backend(world.environment())
    heap.value_state(VALUE).update_many([1, 2], [1, 2])
    task = world.begin(heap, 1)
    full = run_to_completion(task).job_manager_state
    assert isinstance(full, FullKeyedStateHandle)
    back = world.restored([full], world.backend(), world.storage.location(1).reader())
    assert back.fingerprint() == heap.fingerprint()
    handle = world.checkpoint(back, 2)
    assert handle.materialized_is_new
    assert all(stream.scope is StateScope.SHARED for stream in handle.streams())  # type: ignore[union-attr]


def test_a_log_is_refused_without_the_changelog() -> None:
    """The error says that it is a log, and what to do."""
    world = World()
    handle = world.checkpoint(filled(world), 1)
    for inner in (HeapStateBackend(), LsmStateBackend(incremental=True)):
        plain = inner.create_keyed_backend(world.environment())
        with pytest.raises(StateSchemaError, match=r"savepoint in canonical format"):
            plain.restore([handle], world.reader())


def test_keys_keep_their_declared_type() -> None:
    """Neither a log nor a program guesses: INT stays INT when nothing was materialised and nothing is declared."""
    world = World()
    backend = world.backend(key_type=INT)
    backend.value_state(VALUE).update_many([1], [1])
    handle = world.checkpoint(backend, 1)
    back = world.restored([handle], world.backend(key_type=None))
    assert back.key_type == INT
    assert back.fingerprint() == backend.fingerprint()
    for wrong in (LONG, STRING):
        with pytest.raises(StateSchemaError, match="the snapshot has keys of type INT"):
            world.restored([handle], world.backend(key_type=wrong))


def test_time_to_live_is_in_the_log() -> None:
    """Pairs of time and content are restored; the program's duration counts; a declaration without is refused."""
    world = World()
    lasting = ValueStateDescriptor("v", ttl=StateTtlConfig(100))
    backend = world.backend()
    backend.value_state(lasting).update_many([1], ["x"])
    handle = world.checkpoint(backend, 1)
    for duration, expected in ((100, None), (1000, "x")):
        back = world.restored([handle], world.backend())
        world.clock_ms = 500
        assert back.value_state(ValueStateDescriptor("v", ttl=StateTtlConfig(duration))).get_many([1]) == [expected]
        world.clock_ms = 0
    back = world.restored([handle], world.backend())
    with pytest.raises(StateSchemaError, match="time-to-live"):
        back.value_state(ValueStateDescriptor("v"))


class Visits(NamedTuple):
    """A record as an older program had it."""

    pages: int


class MoreVisits(NamedTuple):
    """The same, with a field more."""

    pages: int
    seconds: int = 7


class OtherVisits(NamedTuple):
    """The same, with a field of another type."""

    pages: str


def codec_with(record: type) -> StateCodec:
    """A codec that knows the record as type 40."""
    registry = TypeRegistry()
    register_record_type(40, record, registry=registry)
    return StateCodec(registry)


def test_records_in_the_log_are_migrated() -> None:
    """Added fields get defaults, other changes are refused first, keys in state stay, both forms are read."""
    world = World()
    old = world.backend(codec=codec_with(Visits))
    old.value_state(VALUE).update_many([1], [Visits(3)])
    handle = world.checkpoint(old, 1)
    back = world.restored([handle], world.backend(codec=codec_with(MoreVisits)))
    assert back.value_state(VALUE).get_many([1]) == [MoreVisits(3, 7)]
    back.value_state(VALUE).update_many([2], [MoreVisits(1, 2)])
    following = world.checkpoint(back, 2)
    assert following.log[0].stream == handle.log[0].stream
    last = world.restored([following], world.backend(codec=codec_with(MoreVisits)))
    assert last.value_state(VALUE).get_many([1, 2]) == [MoreVisits(3, 7), MoreVisits(1, 2)]
    other = world.backend(codec=codec_with(OtherVisits))
    with pytest.raises(StateMigrationError, match="'value'"):
        world.restored([handle], other)
    assert other.num_entries() == 0
    old.set_current_key(1)
    old.map_state(MAP).put(Visits(1), 1)
    with pytest.raises(StateMigrationError, match="a map key of state 'map'"):
        world.restored([world.checkpoint(old, 3)], world.backend(codec=codec_with(MoreVisits)))


def test_a_replay_lets_nothing_expire() -> None:
    """The time-to-live of the program is not known yet when a store below compacts the replayed entries."""
    world = World()
    inner = differential.BACKENDS["lsm, incremental"]
    lasting = ValueStateDescriptor("v", ttl=StateTtlConfig(1000))
    backend = world.backend(inner=inner)
    for key in range(200):
        backend.value_state(lasting).update_many([key], ["x"])
    handle = world.checkpoint(backend, 1)
    world.clock_ms = 500
    back = world.restored([handle], world.backend(inner=inner))
    assert back.value_state(lasting).get_many(list(range(200))) == ["x"] * 200
