"""What every keyed state backend offers, whatever it is made of.

The engine and the operators are written against these protocols; the heap backend implements them in
memory, and others (log-structured, native, changelog) stand behind the same ones. Semantics of the states
are in :mod:`state_backends.heap.states`, those of a snapshot in :mod:`state_backends.snapshots.contract`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from state_backends.api.timers import TimerService
from state_backends.base import (
    AggregatingStateDescriptor,
    KeyGroupRange,
    KeyType,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from state_backends.snapshots import KeyedSnapshotStrategy, KeyedStateHandle, SnapshotOptions, StateReader

Namespaces = Sequence[Any] | None
"""Per record its namespace, or ``None`` when the whole batch has none."""


class KeyedState(Protocol):
    """What all states have."""

    def set_namespace(self, namespace: Any) -> None:
        """Scope single access to a namespace; ``None`` = no namespace."""

    def clear(self) -> None:
        """Remove the entry of the current key and namespace."""

    def clear_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> None:
        """Remove the entry of each key (and namespace)."""


class ValueState(KeyedState, Protocol):
    """One value."""

    def get(self) -> Any:
        """The value, or a fresh copy of the default."""

    def update(self, value: Any) -> None:
        """Store a value; ``None`` clears."""

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> list[Any]:
        """:meth:`get` for each key."""

    def update_many(self, keys: Sequence[Any], values: Sequence[Any], namespaces: Namespaces = None) -> None:
        """:meth:`update` for each key, in order."""


class ListState(KeyedState, Protocol):
    """A list of elements."""

    def get(self) -> list[Any] | None:
        """A copy of the list; ``None`` when missing."""

    def add(self, element: Any) -> None:
        """Append one element."""

    def add_all(self, elements: Iterable[Any]) -> None:
        """Append elements."""

    def update(self, elements: Iterable[Any]) -> None:
        """Replace the list."""

    def add_many(self, keys: Sequence[Any], elements: Sequence[Any], namespaces: Namespaces = None) -> None:
        """Append to each key's list the element of the same index."""

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> list[list[Any] | None]:
        """:meth:`get` for each key."""

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Append the lists of some namespaces of the current key to that of ``target``."""


class MapState(KeyedState, Protocol):
    """A map."""

    def get(self, map_key: Any) -> Any:
        """The value under a map key, or ``None``."""

    def contains(self, map_key: Any) -> bool:
        """Whether the map has the key."""

    def put(self, map_key: Any, value: Any) -> None:
        """Store one entry."""

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        """Store several entries."""

    def remove(self, map_key: Any) -> None:
        """Remove an entry if it is there."""

    def entries(self) -> list[tuple[Any, Any]]:
        """All entries, in the order of their encoded keys."""

    def keys(self) -> list[Any]:
        """All map keys, in the order of their encoding."""

    def values(self) -> list[Any]:
        """All values, in the order of their encoded keys."""

    def is_empty(self) -> bool:
        """Whether the map has no entry."""


class ReducingState(KeyedState, Protocol):
    """One value into which added values are folded."""

    failed_index: int | None

    def get(self) -> Any:
        """The reduced value, or ``None``."""

    def add(self, value: Any) -> None:
        """Fold a value in."""

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> list[Any]:
        """:meth:`get` for each key."""

    def add_many(
        self, keys: Sequence[Any], values: Sequence[Any], out: list[Any], namespaces: Namespaces = None
    ) -> None:
        """:meth:`add` for each record, appending the value after each to ``out``."""

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Fold the values of some namespaces of the current key into that of ``target``."""


class AggregatingState(KeyedState, Protocol):
    """One accumulator."""

    failed_index: int | None

    def get(self) -> Any:
        """The result of the accumulator, or ``None``."""

    def add(self, value: Any) -> None:
        """Add a value to the accumulator."""

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> list[Any]:
        """:meth:`get` for each key."""

    def add_many(
        self, keys: Sequence[Any], namespaces: Namespaces, values: Sequence[Any], out: list[Any] | None = None
    ) -> None:
        """:meth:`add` for each record; with ``out``, appends the result after each."""

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Merge the accumulators of some namespaces of the current key into that of ``target``."""


class KeyedStateBackend(Protocol):
    """Keyed state of one subtask: states by name, timers, snapshots, restore."""

    @property
    def key_type(self) -> KeyType | None:
        """The type of all keys; ``None`` until the first one when it was not declared."""

    @property
    def max_parallelism(self) -> int:
        """The number of key groups of the operator."""

    @property
    def key_group_range(self) -> KeyGroupRange:
        """The key groups that this subtask owns."""

    @property
    def current_key(self) -> Any:
        """The key that single access refers to."""

    def set_current_key(self, key: Any) -> None:
        """Scope single access to a key."""

    def clear_current_key(self) -> None:
        """Scope single access to no key: it raises until another key is set."""

    def value_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        """The value state of that name."""

    def list_state(self, descriptor: ListStateDescriptor) -> ListState:
        """The list state of that name."""

    def map_state(self, descriptor: MapStateDescriptor) -> MapState:
        """The map state of that name."""

    def reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState:
        """The reducing state of that name."""

    def aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState:
        """The aggregating state of that name."""

    def timer_service(self, name: str) -> TimerService:
        """The timers of that name."""

    def num_entries(self, state_name: str | None = None) -> int:
        """How many (key, namespace) have content, in one state or in all."""

    def keys(self, state_name: str, namespace: Any = None) -> list[Any]:
        """The keys with content in a state and namespace, ordered by key group and encoded key."""

    def state_names(self) -> list[str]:
        """The names of all states that were declared or restored, sorted; those of timers included."""

    def snapshot_strategy(self, options: SnapshotOptions) -> KeyedSnapshotStrategy:
        """How a snapshot of that type is taken: both of its parts go to the strategy returned."""

    def restore(self, handles: Iterable[KeyedStateHandle], reader: StateReader) -> None:
        """Read the entries of the own key groups from snapshots into this fresh backend.

        :raises CorruptStateError: when a file is damaged
        :raises MissingStateError: when a file is not there
        :raises StateSchemaError: when the snapshot is not of this key type, number of key groups, kinds of state, or
            in a form that this backend cannot read
        """

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is durable and complete."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """The checkpoint will never complete."""

    def notify_checkpoint_subsumed(self, checkpoint_id: int) -> None:
        """The checkpoint will never be restored from again."""

    def dispose(self) -> None:
        """The subtask is over: close and delete local files. A second call does nothing. Snapshots must have ended."""

    def fingerprint(self) -> bytes:
        """A digest of the content: equal for equal state, whatever its history and its backend."""
