"""Copy-on-write of the heap: which access makes a defensive copy while a snapshot holds the value.

The vectors express it as object identity, for a map (Flink's) that hands the *copy* to the program and leaves the
original to the snapshot. Here it is the other way round: the snapshot gets the copy, and the program always sees the
object that it has stored. Both have *when* a copy is made in common, and this is replayed:

* the label of a value is that of the object put, until an access makes the table copy it; then it is ``copyN``, N
  counting those copies, until the next one or the next put;
* an access makes a copy iff a snapshot is open that still held the live value before it, and holds a copy after it.

Copies are made by key group, not by value, so each key has a key group of its own here. A put over a value that a
snapshot holds makes a copy too (for the snapshot; Flink's map leaves it the old object). It does not hand out a value,
so it is not counted. The replay checks that no access hands out an object that an open snapshot refers to.
"""

from __future__ import annotations

from typing import Any

from state_backends.base import LONG, FrozenShard, KeyGroupRange, Shard, ValueStateDescriptor, key_group_for
from state_backends.heap import HeapKeyedStateBackend
from state_backends.heap.state_table import HeapSnapshotResources
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields

_GROUPS = 32768
_FIELDS = {"put": {"op", "key", "object"}, "get": {"op", "key"}, "snapshot": {"op", "name"}, "release": {"op", "name"}}


class _Map:
    """The table of one state, its open snapshots, and the label of each value."""

    def __init__(self) -> None:
        self._backend = HeapKeyedStateBackend(LONG, _GROUPS, KeyGroupRange(0, _GROUPS - 1))
        self._state = self._backend.value_state(ValueStateDescriptor("state"))
        self._snapshots: dict[str, HeapSnapshotResources] = {}
        self._group_of: dict[Any, int] = {}
        self._key_of: dict[Any, int] = {}
        self._labels: dict[Any, str] = {}
        self._objects: dict[Any, list[str]] = {}
        self._copies = 0

    def apply(self, op: Vector) -> str | None:
        """One operation; returns the label of the value that it hands out."""
        name = op["op"]
        if name not in _FIELDS:
            raise MalformedVector(f"unknown operation {name!r}")
        check_fields(op, _FIELDS[name], "an operation")
        match name:
            case "put":
                # A list, so that a copy has to copy more than one reference.
                stored = self._objects[op["key"]] = [op["object"]]
                self._at(op["key"]).update(stored)
                self._labels[op["key"]] = op["object"]
            case "get":
                return self._get(op["key"])
            case "snapshot":
                self._snapshots[op["name"]] = self._backend.sync_prepare_resources(len(self._snapshots))
            case "release":
                self._snapshots.pop(op["name"]).release()
        return None

    def _at(self, key: Any) -> Any:
        """The state at a key that stands for ``key``, in a key group of its own."""
        if key not in self._key_of:
            stand_in = max(self._key_of.values(), default=-1) + 1
            while key_group_for(stand_in, _GROUPS, LONG) in self._group_of.values():
                stand_in += 1
            self._key_of[key] = stand_in
            self._group_of[key] = key_group_for(stand_in, _GROUPS, LONG)
        self._backend.set_current_key(self._key_of[key])
        return self._state

    def _get(self, key: Any) -> str | None:
        state = self._at(key)
        before = self._holding(key)
        value = state.get()
        if value is None:
            return None
        held = self._holding(key)
        assert not held, f"an open snapshot still refers to what was handed out for {key!r}: {held}"
        if before:
            self._copies += 1
            self._labels[key] = f"copy{self._copies}"
        assert value is self._objects[key], "the program was handed another object than it has stored"
        return self._labels[key]

    def _holding(self, key: Any) -> list[str]:
        """The open snapshots that refer to the live value of a key."""
        found = []
        for name, snapshot in self._snapshots.items():
            for part in snapshot.parts:
                shard = part.entries.shards.get(self._group_of[key])
                if isinstance(shard, Shard) and self._key_of[key] in shard:
                    found.append(name)
                # A group that held no value was not copied at all.
                is_deep = not isinstance(shard, FrozenShard) or shard.encoded or not shard.entries
                assert is_deep, "a copy of lists must be a deep one"
        return found


def heap_copy_on_write(vector: Vector) -> list[str]:
    """``heap_copy_on_write``; a null in the expectation of a ``get`` is not compared."""
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"ops"}, "input")
    check_fields(vector["expect"], {"returned_object"}, "expect")
    wanted = vector["expect"]["returned_object"]
    if len(wanted) != len(given["ops"]):
        raise MalformedVector(f"{len(given['ops'])} operations have {len(wanted)} expectations")
    table = _Map()
    for position, (op, expected) in enumerate(zip(given["ops"], wanted, strict=True)):
        label = table.apply(op)
        if op["op"] != "get" or expected is not None:
            comparison.field(f"op {position} returned_object", expected, label)
    return comparison.finish()


KINDS = {"heap_copy_on_write": heap_copy_on_write}
"""The vectors of this file by kind."""
