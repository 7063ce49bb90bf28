"""What every keyed state backend offers, whatever it is made of.

The engine and the operators are written against this protocol. A backend says where the entries of a state are; the
handles of its states are the same for all, see :mod:`state_backends.api.states`. Semantics of a snapshot are in
:mod:`state_backends.snapshots.contract`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from state_backends.api.key_scope import KeyScope
from state_backends.api.states import AggregatingState, ListState, MapState, ReducingState, ValueState
from state_backends.api.timers import TimerService
from state_backends.base import (
    AggregatingStateDescriptor,
    KeyGroupRange,
    KeyType,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateKind,
    StateTtlConfig,
    ValueStateDescriptor,
)
from state_backends.snapshots import KeyedSnapshotStrategy, KeyedStateHandle, SnapshotOptions, StateReader


class KeyedStateBackend(Protocol):
    """Keyed state of one subtask: states by name, timers, snapshots, restore.

    :ivar scope: its keys
    """

    scope: KeyScope

    @property
    def key_type(self) -> KeyType | None:
        """The type of all keys; ``None`` until the first one when it was not declared."""
        return self.scope.key_type

    @property
    def max_parallelism(self) -> int:
        """The number of key groups of the operator."""
        return self.scope.max_parallelism

    @property
    def key_group_range(self) -> KeyGroupRange:
        """The key groups that this subtask owns."""
        return self.scope.key_group_range

    @property
    def current_key(self) -> Any:
        """The key that single access refers to.

        :raises StateArgumentError: when none was set
        """
        return self.scope.require()

    def set_current_key(self, key: Any) -> None:
        """Scope single access to a key.

        :raises KeyTypeError: when it is not of the declared type
        """
        scope = self.scope
        if type(key) is scope.plain_key_type:  # without another call on the way of every record
            scope.key = key
        else:
            scope.set(key)

    def clear_current_key(self) -> None:
        """Scope single access to no key: it raises until another key is set."""
        self.scope.key = None

    def table(self, descriptor: StateDescriptor) -> Any:
        """The table of a state, without what has expired: :class:`MapEntries` of a map, :class:`ListEntries` of a list,
        else :class:`Entries`.

        :raises StateSchemaError: when the name belongs to a state of another kind
        """

    def stored(self, name: str, kind: StateKind, ttl: StateTtlConfig | None) -> Any:
        """The same as it is stored: with time-to-live, pairs of last access and content."""

    def value_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        """The value state of that name.

        :raises StateSchemaError: when the name belongs to a state of another kind
        """
        return ValueState(self.table(descriptor), descriptor)

    def list_state(self, descriptor: ListStateDescriptor) -> ListState:
        """The list state of that name, see :meth:`value_state`."""
        return ListState(self.table(descriptor))

    def map_state(self, descriptor: MapStateDescriptor) -> MapState:
        """The map state of that name, see :meth:`value_state`."""
        return MapState(self.table(descriptor))

    def reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState:
        """The reducing state of that name, see :meth:`value_state`."""
        return ReducingState(self.table(descriptor), descriptor)

    def aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState:
        """The aggregating state of that name, see :meth:`value_state`."""
        return AggregatingState(self.table(descriptor), descriptor)

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
