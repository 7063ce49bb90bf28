"""How keyed state is written in the full format, whatever keeps it: a view that is pinned, and a task that writes it.

A backend implements :class:`FullSnapshotResources`: which states and key groups have entries, and the entries of one
key group as encoded columns. Everything else is the same for all, so that equal state gives equal bytes on every
backend: the order, the header, how much a step does, and what becomes of a file that is not finished.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from state_backends.base import KeyGroupRange, KeyType
from state_backends.codec import StateCodec
from state_backends.snapshots.contract import (
    CheckpointStream,
    SnapshotOptions,
    SnapshotResources,
    SnapshotResult,
    SnapshotTask,
    StreamFactory,
)
from state_backends.snapshots.full_format import EncodedBlock, FullSnapshotWriter, SnapshotHeader, StateId
from state_backends.snapshots.handles import StateScope
from state_backends.snapshots.keyed_handles import KeyedStateHandle


class Contents(NamedTuple):
    """What a pinned view has entries in.

    :ivar states: the states with entries, sorted
    :ivar key_groups: the key groups with entries, ascending
    """

    states: list[StateId]
    key_groups: list[int]


class FullSnapshotResources(SnapshotResources):
    """A pinned view of all keyed state of a subtask.

    :ivar codec: encodes what the header says
    :ivar key_type: the type of all keys; ``None`` only when no key was ever seen
    :ivar max_parallelism: the number of key groups of the operator
    :ivar key_group_range: those that the subtask owns
    :ivar schema: how its values are written, for the header
    """

    def __init__(
        self,
        codec: StateCodec,
        key_type: KeyType | None,
        max_parallelism: int,
        key_group_range: KeyGroupRange,
        schema: Any = None,
    ) -> None:
        super().__init__()
        self.codec = codec
        self.key_type = key_type
        self.max_parallelism = max_parallelism
        self.key_group_range = key_group_range
        self.schema = schema

    @abstractmethod
    def contents(self) -> Contents:
        """Where there are entries. It is asked once, before any block."""

    @abstractmethod
    def blocks(self, key_group: int) -> list[EncodedBlock]:
        """The entries of a key group, a block for each state that has some, by state.

        It is asked once for each key group of :meth:`contents`, in that order.

        :raises StateSerializationError: naming the value that cannot be written
        """


class FullSnapshotTask(SnapshotTask[KeyedStateHandle]):
    """Writes a pinned view in the full format.

    A step writes whole key groups, at least one, until it has written ``entries_per_step``. Without entries there is no
    file and the result is empty.
    """

    def __init__(
        self, resources: FullSnapshotResources, stream_factory: StreamFactory, options: SnapshotOptions
    ) -> None:
        super().__init__(resources)
        self._pinned = resources
        self._stream_factory = stream_factory
        self._options = options
        self._stream: CheckpointStream | None = None
        self._writer: FullSnapshotWriter | None = None
        self._groups: list[int] = []
        self._next_group = 0

    def _advance(self) -> SnapshotResult[KeyedStateHandle] | None:
        if self._writer is None:
            states, self._groups = self._pinned.contents()
            if not states:
                return SnapshotResult(None)
            self._writer = self._open(states)
        self._writer.write_groups(self._some_groups())
        if self._next_group < len(self._groups):
            return None
        return SnapshotResult(self._writer.finish())

    def _some_groups(self) -> Iterator[tuple[int, list[EncodedBlock]]]:
        """The key groups of one step."""
        passed = 0
        while self._next_group < len(self._groups) and passed < self._options.entries_per_step:
            group = self._groups[self._next_group]
            blocks = self._pinned.blocks(group)
            passed += sum([block.num_entries for block in blocks])
            self._next_group += 1
            yield group, blocks

    def _open(self, states: list[StateId]) -> FullSnapshotWriter:
        pinned = self._pinned
        assert pinned.key_type is not None, "there are entries, so some key had a type"
        header = SnapshotHeader(
            pinned.key_type,
            pinned.max_parallelism,
            pinned.key_group_range,
            tuple(states),
            self._options.compression,
            pinned.schema,
        )
        self._stream = self._stream_factory.create_stream(StateScope.EXCLUSIVE)
        return FullSnapshotWriter(self._stream, pinned.codec, header)

    def _discard(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def fingerprint(self) -> tuple[object, ...]:
        """How far the task has come."""
        return (self.status.value, tuple(self._groups), self._next_group)


class FullSnapshotStrategy:
    """Snapshots that are always full: pins a view and writes it."""

    def __init__(self, pin: Callable[[], FullSnapshotResources]) -> None:
        """A strategy for one backend.

        :param pin: pins its present state
        """
        self._pin = pin

    def sync_prepare_resources(self, checkpoint_id: int) -> FullSnapshotResources:
        """Pin the present state."""
        return self._pin()

    def async_snapshot(
        self,
        resources: SnapshotResources,
        checkpoint_id: int,
        timestamp: int,
        stream_factory: StreamFactory,
        options: SnapshotOptions,
    ) -> FullSnapshotTask:
        """A task that writes what was pinned. It owns the resources from here on."""
        assert isinstance(resources, FullSnapshotResources)
        return FullSnapshotTask(resources, stream_factory, options)
