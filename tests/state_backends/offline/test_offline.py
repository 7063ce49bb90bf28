"""Reading and writing snapshots without a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, strategies as st

from state_backends.base import (
    LONG,
    STRING,
    CorruptStateError,
    ListStateDescriptor,
    MapStateDescriptor,
    MissingStateError,
    StateArgumentError,
    ValueStateDescriptor,
)
from state_backends.files import MemoryFileSystem
from state_backends.offline import SnapshotContent, SnapshotWriter, StateEntry, differences
from state_backends.snapshots import OperatorStateMode

COUNT = ValueStateDescriptor("count")
SEEN = MapStateDescriptor("seen")


def savepoint(files: MemoryFileSystem, counts: Mapping[str, int], *, number: int = 1) -> str:
    """The path of a savepoint with a count per key under uid ``count``."""
    writer = SnapshotWriter("words")
    writer.keyed_operator("count", STRING).value_state(COUNT).update_many(list(counts), list(counts.values()))
    return writer.write(files, "/savepoints", checkpoint_id=number)


def seen_in(content: SnapshotContent) -> dict[Any, Any]:
    """Key to value of state ``count``."""
    return {entry.key: entry.value for entry in content.entries("count", "count")}


@given(st.dictionaries(st.text(max_size=5), st.integers(1, 9), min_size=1))
def test_what_was_written_is_read(counts: dict[str, int]) -> None:
    """Every entry, once, with the group of its key."""
    files = MemoryFileSystem()
    content = SnapshotContent.at(files, savepoint(files, counts))

    assert seen_in(content) == counts
    groups = [entry.key_group for entry in content.entries()]
    assert groups == sorted(groups)
    assert all(entry[:4] == ("count", "count", "value", 0) for entry in content.entries())


@given(*[st.dictionaries(st.text(max_size=2), st.integers(1, 3), min_size=1)] * 2)
def test_differences_are_those_of_two_dicts(first: dict[str, int], second: dict[str, int]) -> None:
    """Added, removed and changed entries, and no others."""
    files = MemoryFileSystem()
    before, after = (SnapshotContent.at(files, savepoint(files, one)) for one in (first, second))

    found = {}
    for one in differences(before, after):
        entry = one.before or one.after
        assert entry is not None
        assert entry.key not in found
        found[entry.key] = one.before and one.before.value, one.after and one.after.value

    assert found == {
        key: (first.get(key), second.get(key)) for key in {**first, **second} if first.get(key) != second.get(key)
    }


def test_an_operator_that_only_one_snapshot_has_is_all_different() -> None:
    """Its entries are added, or removed."""
    files = MemoryFileSystem()
    before = SnapshotContent.at(files, savepoint(files, {"a": 1}))
    writer = SnapshotWriter("words")
    writer.keyed_operator("other", LONG).value_state(COUNT).update_many([7], ["x"])
    after = SnapshotContent.at(files, writer.write(files, "/savepoints"))

    found = list(differences(before, after))
    uids = [(one.before and one.before.operator, one.after and one.after.operator) for one in found]
    assert uids == [("count", None), (None, "other")]


def test_namespaces_lists_maps_and_timers_are_entries_too() -> None:
    """Every kind of keyed state is seen, with its kind; two timers of a key are two entries."""
    files = MemoryFileSystem()
    writer = SnapshotWriter("words")
    backend = writer.keyed_operator("count", LONG, name="the counter")
    backend.list_state(ListStateDescriptor("log")).add_many([3, 3], ["x", "y"], [(0, 9), (0, 9)])
    backend.set_current_key(3)
    backend.map_state(SEEN).put("b", 1)
    backend.timer_service("alarm").event_time.register([3, 3], [None, None], [50, 40])
    content = SnapshotContent.at(files, writer.write(files, "/savepoints"))

    (operator,) = content.operators()
    assert (operator.uid, operator.name, operator.max_parallelism) == ("count", "the counter", 128)
    group = next(content.entries()).key_group
    assert list(content.entries()) == [
        StateEntry("count", "_timer_state/event_alarm", "timers", 0, group, 3, None, 40),
        StateEntry("count", "_timer_state/event_alarm", "timers", 0, group, 3, None, 50),
        StateEntry("count", "log", "list", 0, group, 3, (0, 9), ["x", "y"]),
        StateEntry("count", "seen", "map", 0, group, 3, None, {"b": 1}),
    ]
    (_, entries), *others = content.by_key_group("count")
    assert (len(entries), others) == (4, [])


def test_operators_are_kept_changed_renamed_and_left_out() -> None:
    """A savepoint made of another one: one operator as it was, one changed, one under a new uid, one gone."""
    files = MemoryFileSystem()
    writer = SnapshotWriter("words")
    for uid in ("kept", "changed", "renamed", "removed"):
        writer.keyed_operator(uid, LONG).value_state(COUNT).update_many([1, 2], [uid, uid])
    writer.list_operator("source").list_state("positions").add_all([10, 20])
    base = SnapshotContent.at(files, writer.write(files, "/savepoints"))

    again = SnapshotWriter("words", base=base)
    again.modify_keyed_operator("changed").value_state(COUNT).update_many([2, 3], [None, "new"])
    again.change_uid("renamed", "other")
    again.remove_operator("removed")
    content = SnapshotContent.at(files, again.write(files, "/savepoints", checkpoint_id=2))

    assert sorted((entry.operator, entry.key, entry.value) for entry in content.entries()) == [
        ("changed", 1, "changed"),
        ("changed", 3, "new"),
        ("kept", 1, "kept"),
        ("kept", 2, "kept"),
        ("other", 1, "renamed"),
        ("other", 2, "renamed"),
    ]
    (source,) = content.operators("source")
    assert source.subtasks[0].operator is not None
    assert source.subtasks[0].operator.states["positions"].mode is OperatorStateMode.SPLIT_DISTRIBUTE


def test_a_renamed_new_operator_has_the_new_uid() -> None:
    """Also before anything is written."""
    files = MemoryFileSystem()
    writer = SnapshotWriter("words")
    writer.keyed_operator("old", LONG).value_state(COUNT).update_many([1], [1])
    writer.change_uid("old", "new")

    content = SnapshotContent.at(files, writer.write(files, "/savepoints"))

    assert [entry.operator for entry in content.entries()] == ["new"]


def test_uids_are_checked() -> None:
    """An unknown uid, one that is taken, and a savepoint of nothing are refused, with what there is."""
    files = MemoryFileSystem()
    content = SnapshotContent.at(files, savepoint(files, {"a": 1}))
    writer = SnapshotWriter("words", base=content)

    with pytest.raises(StateArgumentError, match="no operator with uid 'cuont'; it has 'count'"):
        writer.remove_operator("cuont")
    with pytest.raises(StateArgumentError, match="uid 'count' is taken"):
        writer.keyed_operator("count")
    with pytest.raises(StateArgumentError, match="no operator with uid 'x' to be changed"):
        writer.modify_keyed_operator("x")
    with pytest.raises(StateArgumentError, match="without operators"):
        SnapshotWriter("words").write(files, "/savepoints")
    with pytest.raises(StateArgumentError, match="no operator has uid 'x'; it has 'count'"):
        list(content.entries("x"))


def test_nothing_is_left_of_a_savepoint_that_cannot_be_written() -> None:
    """A value that cannot be written is an error, and its directory is gone."""
    files = MemoryFileSystem()
    writer = SnapshotWriter("words")
    writer.keyed_operator("count", LONG).value_state(COUNT).update_many([1], [{1, 2}])

    with pytest.raises(Exception, match="set"):
        writer.write(files, "/savepoints")

    assert list(files.walk_files("/savepoints")) == []


def test_damage_is_found_before_anything_is_read() -> None:
    """Every byte of a snapshot is verified when it is opened."""
    files = MemoryFileSystem()
    path = savepoint(files, {str(number): number for number in range(1, 9)})
    metadata = f"{path}/_metadata"
    data = files.read_bytes(metadata)
    for position in range(0, len(data), 37):
        with files.open_write(metadata) as file:
            file.write(data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :])
        with pytest.raises(CorruptStateError):
            SnapshotContent.at(files, path)
    with pytest.raises(MissingStateError):
        SnapshotContent.at(files, "/savepoints/none")
