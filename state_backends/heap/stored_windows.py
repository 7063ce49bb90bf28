"""Reducing state of the heap backend with a namespace, held in columns: the windows of columnar window operators.

The operator has the windows, and hands copies of its arrays over before each snapshot. The entries are those of
:class:`state_backends.api.ReducingState`: a snapshot has the same bytes, so any backend can restore it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from state_backends.base import FrozenShard, KeyGroupRange, foreign_key, np
from state_backends.codec import StateCodec
from state_backends.columns import (
    KeyColumn,
    encoded_columns,
    encoded_order,
    is_long_column,
    key_column_type,
    key_groups_of,
)
from state_backends.heap.state_table import StateTable
from state_backends.snapshots import EncodedBlock, StateId

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from state_backends.heap.keyed_backend import HeapKeyedStateBackend

Windows = Mapping[int, tuple[KeyColumn, Any]]
"""By the start of the window: keys, and an ``int64`` or ``float64`` array of as many numbers."""


class WindowEntries:
    """The entries of some windows. They never change: each snapshot is given others."""

    def __init__(self, windows: Windows, key_groups: NDArray[np.intp], codec: StateCodec) -> None:
        """``windows``: in the order of their encoded starts; ``key_groups``: of all keys, in the same order."""
        self._windows, self._key_groups, self._codec = windows, key_groups, codec
        self._shards: dict[int, WindowShard] | None = None

    def __len__(self) -> int:
        return len(self._key_groups)

    @property
    def shards(self) -> dict[int, WindowShard]:
        """The entries of each key group that has some, ascending."""
        if self._shards is None:
            self._shards = self._split() if len(self) else {}
        return self._shards

    def _split(self) -> dict[int, WindowShard]:
        columns = [keys for keys, _ in self._windows.values()]
        starts = np.repeat(np.array(list(self._windows), dtype=np.int64), list(map(len, columns)))
        values = np.concatenate([values for _, values in self._windows.values()])
        keys: Any
        # Both orders are stable, so entries of one key stay in the order of their windows.
        if is_long_column(columns[0]):
            keys = np.concatenate(columns)
            order = encoded_order(keys, self._key_groups)
            keys = keys[order]
        else:
            keys = [key for column in columns for key in column]
            packed, groups = list(map(self._codec.pack, keys)), self._key_groups.tolist()
            positions = sorted(range(len(keys)), key=lambda one: (groups[one], packed[one]))
            keys, order = [keys[one] for one in positions], np.array(positions, dtype=np.intp)
            packed = [packed[one] for one in positions]
        starts, values = starts[order], values[order]
        numbers, counts = np.unique(self._key_groups, return_counts=True)
        bounds = [0, *accumulate(counts.tolist())]
        if isinstance(keys, np.ndarray):
            key_lists = encoded_columns(keys, bounds, self._codec)
        else:
            key_lists = [self._codec.joined(packed[at:end]) for at, end in pairwise(bounds)]
        start_lists, value_lists = (encoded_columns(one, bounds, self._codec) for one in (starts, values))
        return {
            group: WindowShard(keys[at:end], starts[at:end], values[at:end], encoded)
            for group, at, end, encoded in zip(
                numbers.tolist(),
                bounds[:-1],
                bounds[1:],
                zip(key_lists, start_lists, value_lists, strict=True),
                strict=True,
            )
        }

    def forget_shards(self) -> None:
        """Free the sorted and encoded entries; who asks for them again waits for them."""
        self._shards = None

    def snapshot(self) -> WindowSnapshot:
        return WindowSnapshot(self)


class WindowShard:
    """The entries of one key group, ordered. Iterating gives pairs of key and start."""

    __slots__ = ("_encoded", "_keys", "_starts", "_values")

    def __init__(self, keys: KeyColumn, starts: Any, values: Any, encoded: tuple[bytes, bytes, bytes]) -> None:
        self._keys, self._starts, self._values, self._encoded = keys, starts, values, encoded

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[tuple[Any, int]]:
        keys = self._keys.tolist() if isinstance(self._keys, np.ndarray) else self._keys
        return zip(keys, self._starts.tolist(), strict=True)

    def items(self) -> Iterator[tuple[tuple[Any, int], Any]]:
        return zip(self, self._values.tolist(), strict=True)

    def encode(self, state: StateId) -> EncodedBlock:
        return EncodedBlock(state, len(self), *self._encoded)


class WindowSnapshot:
    """The entries for a snapshot (the counterpart of ``sharded_table.TableSnapshot``). They are encoded at the first
    question, which comes after the synchronous part."""

    def __init__(self, entries: WindowEntries) -> None:
        self._entries: WindowEntries | None = entries
        self._left: dict[int, WindowShard] | None = None

    def groups_with_entries(self) -> list[int]:
        """The key groups that hold entries and were not taken yet, ascending."""
        return sorted(self._split())

    def take(self, group: int) -> FrozenShard | None:
        """The entries of a group; ``None`` without entries."""
        shard = self._split().pop(group, None)
        # A frozen part only goes back to the table it came from.
        return None if shard is None else FrozenShard(shard, encoded=False)  # type: ignore[arg-type]

    def release(self) -> None:
        """Release the entries; a second call does nothing."""
        if self._entries is not None:
            self._entries.forget_shards()
        self._entries, self._left = None, {}

    def _split(self) -> dict[int, WindowShard]:
        if self._left is None:
            assert self._entries is not None
            self._left = dict(self._entries.shards)
        return self._left


class WindowTable(StateTable):
    """One reducing state whose entries with a namespace are windows in columns. It has no others."""

    __slots__ = ()

    namespaced: WindowEntries  # type: ignore[assignment]

    def __init__(self, rows: StateTable, entries: WindowEntries) -> None:
        """Take the place of ``rows``."""
        self.name, self.kind, self.codec, self.registered = rows.name, rows.kind, rows.codec, True
        self._ids = rows._ids
        self.plain = rows.plain
        self.namespaced = entries

    def encode_block(self, state: StateId, shard: FrozenShard) -> EncodedBlock:
        entries: object = shard.entries
        return entries.encode(state) if isinstance(entries, WindowShard) else super().encode_block(state, shard)

    def as_rows(self, empty: Callable[[], StateTable]) -> StateTable:
        rows = empty()
        rows.plain = self.plain
        for group, shard in self.namespaced.shards.items():
            rows.namespaced.shard_for_group(group).update(shard.items())
        return rows


class HeapWindowColumns:
    """Windows of one reducing state of a backend, whole windows at a time."""

    __slots__ = ("_backend", "_codec", "_name")

    def __init__(self, backend: HeapKeyedStateBackend, name: str, codec: StateCodec) -> None:
        self._backend, self._name, self._codec = backend, name, codec

    def load(self) -> dict[int, tuple[list[Any], list[Any]]]:
        """For each window in the state its keys and numbers."""
        found: dict[int, tuple[list[Any], list[Any]]] = {}
        for _, shard in sorted(self._backend.window_table(self._name).namespaced.shards.items()):
            for (key, start), value in shard.items():
                keys, values = found.setdefault(start, ([], []))
                keys.append(key)
                values.append(value)
        return found

    def store(self, windows: Windows) -> None:
        """The state has these windows and no others. The arrays must not change any more.

        :raises KeyGroupError: when a key belongs to another subtask
        """
        scope = self._backend.scope
        ordered = {start: windows[start] for start in sorted(windows, key=self._codec.encode)}
        groups: NDArray[np.intp] = np.empty(0, dtype=np.intp)
        if ordered:
            key_type = scope.key_type or scope.adopt(key_column_type(next(iter(ordered.values()))[0]))
            found = [key_groups_of(keys, key_type, scope.max_parallelism) for keys, _ in ordered.values()]
            groups = np.concatenate(found)
            _check_own(ordered, groups, scope.key_group_range)
        self._backend.put_windows(self._name, WindowEntries(ordered, groups, self._codec))


def _check_own(windows: Windows, groups: NDArray[np.intp], own: KeyGroupRange) -> None:
    foreign = np.flatnonzero((groups < own.first) | (groups > own.last))
    if len(foreign):
        at = int(foreign[0])
        keys = [key for column, _ in windows.values() for key in column]
        raise foreign_key(keys[at], groups[at], own)
