"""Reducing state of the heap backend held in columns: keys and values in arrays, for folds over whole batches.

It is the same state that :class:`state_backends.api.ReducingState` keeps in dicts: it has the same name, the same
kind and the same bytes in a snapshot. So a job may change from one form to the other, by a restore or while it runs.
Values must be ints of 64 bits or floats, all of one type, without namespace: a column cannot hold others.

Rules.
1. A key keeps its slot for ever; keys are only added. So a snapshot needs only a count to know its keys.
2. A snapshot holds the array of values itself. The first write after it copies the array and continues with the
   copy. That is one copy for each snapshot, however many writes follow: a millisecond for a million values.
3. A snapshot encodes a *run* of neighbouring key groups at a time, because encoding groups of some dozen entries one by
   one is slow. The next snapshot uses the order and the encoding of a run's keys again, unless one of its groups has a
   new key.
4. A state is in one form at a time. Declaring it as rows moves it back into dicts; the columns then refuse to be used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from state_backends.base import (
    FrozenShard,
    KeyGroupRange,
    KeyType,
    ReducingStateDescriptor,
    StateSchemaError,
    foreign_key,
    np,
)
from state_backends.codec import StateCodec
from state_backends.columns import (
    ColumnFold,
    Grouping,
    KeyColumn,
    LongSlots,
    ObjectSlots,
    Positions,
    Slots,
    encoded_columns,
    encoded_order,
    key_column_type,
    key_groups_of,
)
from state_backends.heap.state_table import StateTable
from state_backends.snapshots import EncodedBlock, StateId

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from state_backends.heap.keyed_backend import HeapKeyedStateBackend

_LEAST_SLOTS = 1 << 10
_RUN_ENTRIES = 1 << 12
"""The approximate number of entries encoded together; at least one key group."""
_NO_NAMESPACES = b"\xc0"
"""The encoded ``None``."""


class KeyGroupSlots(NamedTuple):
    """A key group and the slots of its keys, ascending."""

    number: int
    slots: Positions


@dataclass(frozen=True, slots=True)
class _EncodedKeys:
    """The keys of a run as a snapshot writes them.

    :ivar groups: the key groups
    :ivar bounds: the position in ``slots`` where each group begins, and the end of the last one
    :ivar slots: the slots by key group, and in a group in the order of the encoded keys
    :ivar columns: for each key group, the encoded list of its keys
    """

    groups: list[int]
    bounds: list[int]
    slots: Positions
    columns: list[bytes]


class ColumnEntries:
    """Keys of one type, their slots and, by slot, their values. The array of values has room for further keys."""

    def __init__(
        self, key_type: KeyType, max_parallelism: int, key_group_range: KeyGroupRange, codec: StateCodec, dtype: Any
    ) -> None:
        self.key_type = key_type
        self.values: NDArray[Any] = np.zeros(_LEAST_SLOTS, dtype=dtype)
        self._max_parallelism = max_parallelism
        self._range = key_group_range
        self.codec = codec
        self._slots: Slots = LongSlots() if key_type.name in ("INT", "LONG") else ObjectSlots()
        self._groups: NDArray[np.int16] = np.zeros(_LEAST_SLOTS, dtype=np.int16)
        self._pins = 0
        self._shared = False
        """Whether a snapshot holds the array of values."""
        self._layout: tuple[int, list[list[KeyGroupSlots]]] = (0, [])
        """The runs, by the number of keys."""
        self._encoded: dict[int, _EncodedKeys] = {}
        """By the first key group of the run."""

    def __len__(self) -> int:
        return len(self._slots)

    def find(self, keys: KeyColumn) -> Positions:
        return self._slots.find(keys)

    def add(self, keys: KeyColumn) -> Positions:
        """Give slots to keys that are all different and have none. The caller must write their values next.

        :raises KeyGroupError: when a key's group is not in the backend's range
        :raises KeyTypeError: when a key is too wide for its type
        """
        groups = key_groups_of(keys, self.key_type, self._max_parallelism)
        foreign = np.flatnonzero((groups < self._range.first) | (groups > self._range.last))
        if len(foreign):
            at = int(foreign[0])
            raise foreign_key(_plain(keys[at]), groups[at], self._range)
        before, after = len(self._slots), len(self._slots) + len(keys)
        if after > len(self.values):
            # This also copies: the values of a snapshot must not change.
            self.values = _grown(self.values, before, after)
            self._groups = _grown(self._groups, before, after)
            self._shared = False
        self._slots.add(keys)
        self._groups[before:after] = groups
        return np.arange(before, after)

    def write(self, slots: Positions, values: NDArray[Any]) -> None:
        if self._shared:
            self.values, self._shared = self.values.copy(), False
        self.values[slots] = values

    # --- for snapshots, as any table of entries --------------------------------------------------------------------

    @property
    def shards(self) -> dict[int, ColumnShard]:
        """The present entries of each key group that has some."""
        return self.shards_of(self.values, len(self))

    def shards_of(self, values: NDArray[Any], count: int) -> dict[int, ColumnShard]:
        """The entries of each key group that had some when there were ``count`` keys with these values."""
        if self._layout[0] != count:
            self._layout = count, _runs(_slots_by_group(self._groups[:count]), count)
        runs = [(_RunAtOneMoment(self, groups, values), groups) for groups in self._layout[1]]
        return {
            group.number: ColumnShard(run, index, group.slots)
            for run, groups in runs
            for index, group in enumerate(groups)
        }

    def snapshot(self) -> ColumnSnapshot:
        self._shared = True
        self._pins += 1
        return ColumnSnapshot(self, self.values, len(self))

    def unpin(self) -> None:
        """One snapshot less holds the array. Without any, writers use the present array further."""
        self._pins -= 1
        if not self._pins:
            self._shared = False

    def encoded_keys(self, run: list[KeyGroupSlots]) -> _EncodedKeys:
        """The keys of a run of a snapshot, as it writes them."""
        groups = [group.number for group in run]
        bounds = [0, *accumulate(len(group.slots) for group in run)]
        found = self._encoded.get(groups[0])
        if found is None or found.groups != groups or found.bounds != bounds:
            # Keys are only added: a group with the same number of keys has the same keys.
            slots, columns = self._encode_keys(run, bounds)
            found = self._encoded[groups[0]] = _EncodedKeys(groups, bounds, slots, columns)
        return found

    def _encode_keys(self, run: list[KeyGroupSlots], bounds: list[int]) -> tuple[Positions, list[bytes]]:
        keys = self._slots.keys(len(self))
        slots = np.concatenate([group.slots for group in run])
        if isinstance(keys, np.ndarray):
            chosen = keys[slots]
            order = encoded_order(chosen, np.repeat(np.arange(len(run)), np.diff(bounds)))
            return slots[order], encoded_columns(chosen[order], bounds, self.codec)
        columns = []
        for group, start in zip(run, bounds[:-1], strict=True):
            encoded = [self.codec.pack(keys[slot]) for slot in group.slots.tolist()]
            order = sorted(range(len(encoded)), key=encoded.__getitem__)
            columns.append(self.codec.joined([encoded[one] for one in order]))
            slots[start : start + len(encoded)] = group.slots[order]
        return slots, columns

    def keys_at(self, slots: Positions) -> list[Any]:
        keys = self._slots.keys(len(self))
        if isinstance(keys, np.ndarray):
            longs: list[Any] = keys[slots].tolist()
            return longs
        return [keys[slot] for slot in slots.tolist()]


class _RunAtOneMoment:
    """The entries of a run; they are encoded together with the first of its key groups."""

    __slots__ = ("_columns", "_groups", "entries", "values")

    def __init__(self, entries: ColumnEntries, groups: list[KeyGroupSlots], values: NDArray[Any]) -> None:
        self.entries = entries
        self.values = values
        self._groups = groups
        self._columns: tuple[list[bytes], list[bytes]] | None = None

    def encoded(self, index: int) -> tuple[bytes, bytes]:
        """The encoded lists of the keys and of the values of one of the key groups."""
        if self._columns is None:
            keys = self.entries.encoded_keys(self._groups)
            values = self.values.take(keys.slots)
            self._columns = keys.columns, encoded_columns(values, keys.bounds, self.entries.codec)
        key_columns, value_columns = self._columns
        return key_columns[index], value_columns[index]


class ColumnShard:
    """The entries of one key group at one moment. Iterating gives the keys."""

    __slots__ = ("_index", "_run", "_slots")

    def __init__(self, run: _RunAtOneMoment, index: int, slots: Positions) -> None:
        """The group with this index in its run."""
        self._run = run
        self._index = index
        self._slots = slots

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._run.entries.keys_at(self._slots))

    def items(self) -> Iterator[tuple[Any, Any]]:
        return zip(self, self._run.values[self._slots].tolist(), strict=True)

    def encode(self, state: StateId) -> EncodedBlock:
        keys, values = self._run.encoded(self._index)
        return EncodedBlock(state, len(self._slots), keys, _NO_NAMESPACES, values)


class ColumnSnapshot:
    """The entries at one moment (the counterpart of ``sharded_table.TableSnapshot``)."""

    def __init__(self, entries: ColumnEntries, values: NDArray[Any], count: int) -> None:
        self._entries: ColumnEntries | None = entries
        self._values = values
        self._count = count
        self._shards: dict[int, ColumnShard] | None = None

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
            self._entries.unpin()
            self._entries = None
            self._shards = {}

    def _split(self) -> dict[int, ColumnShard]:
        if self._shards is None:
            assert self._entries is not None
            self._shards = self._entries.shards_of(self._values, self._count)
        return self._shards


class ColumnStateTable(StateTable):
    """One reducing state in columns, while ``is_live`` is true. Entries with a namespace stay in rows; only a restore
    can bring them."""

    __slots__ = ("is_live",)

    plain: ColumnEntries  # type: ignore[assignment]

    def __init__(self, rows: StateTable, entries: ColumnEntries) -> None:
        """Take the place of ``rows``. ``entries``: the entries without namespace."""
        self.name = rows.name
        self.kind = rows.kind
        self.codec = rows.codec
        self.registered = True
        self._ids = rows._ids
        self.plain = entries
        self.namespaced = rows.namespaced
        self.is_live = True

    def encode_block(self, state: StateId, shard: FrozenShard) -> EncodedBlock:
        entries: object = shard.entries
        if isinstance(entries, ColumnShard):
            return entries.encode(state)
        return super().encode_block(state, shard)

    def as_rows(self, empty: Callable[[], StateTable]) -> StateTable:
        rows = empty()
        rows.namespaced = self.namespaced
        for group, shard in sorted(self.plain.shards.items()):
            rows.plain.shard_for_group(group).update(shard.items())
        self.is_live = False
        return rows


class HeapReducingColumns:
    """Folds batches of columns into one reducing state of a backend."""

    __slots__ = ("_backend", "_descriptor", "_table")

    def __init__(self, backend: HeapKeyedStateBackend, descriptor: ReducingStateDescriptor) -> None:
        self._backend = backend
        self._descriptor = descriptor
        self._table: ColumnStateTable | None = None

    def add_groups(self, grouping: Grouping, values: NDArray[Any], fold: ColumnFold) -> NDArray[Any]:
        """Fold in a batch; returns the result for each record, in the order of the batch.

        When it raises, the state has not changed.

        :param grouping: the records by key; keys are of the backend's type
        :param values: an ``int64`` or ``float64`` array
        :raises StateSchemaError: when the values are of another type than those in the state
        :raises LongOverflowError: when a sum leaves 64 bits
        :raises KeyGroupError: when a key belongs to another subtask
        """
        table = self._table
        if table is None or not table.is_live:
            key_type = key_column_type(grouping.keys)
            table = self._table = self._backend.column_table(self._descriptor.name, key_type, values.dtype)
        entries = table.plain
        if entries.values.dtype != values.dtype:
            raise _other_type(table.name, f"{values.dtype} values", f"{entries.values.dtype} values")
        slots = entries.find(grouping.keys)
        before = entries.values[slots]
        is_new = slots < 0
        new = np.flatnonzero(is_new)
        before[new] = 0
        running, after = fold.fold(grouping, values, before, is_new)
        if len(new):
            slots[new] = entries.add(_chosen(grouping.keys, new))
        entries.write(slots, after)
        return grouping.to_batch_order(running)


def columns_of(rows: StateTable, entries: ColumnEntries) -> ColumnStateTable:
    """The entries of ``rows`` in columns. ``entries`` is empty and gives their types.

    :raises StateSchemaError: when a value is not of the type of the column
    """
    python_type = int if entries.values.dtype == np.int64 else float
    keys: list[Any] = []
    values: list[Any] = []
    for _, shard in sorted(rows.plain.shards.items()):
        keys += shard
        values += shard.values()
    for key, value in zip(keys, values, strict=True):
        if type(value) is not python_type or (python_type is int and not -(2**63) <= value < 2**63):
            wanted = "an int of 64 bits" if python_type is int else "a float"
            raise _other_type(rows.name, wanted, f"{value!r} of type {type(value).__name__} for key {key!r}")
    if keys:
        is_long = entries.key_type.name in ("INT", "LONG")
        slots = entries.add(np.array(keys, dtype=np.int64) if is_long else keys)
        entries.write(slots, np.array(values, dtype=entries.values.dtype))
    table = ColumnStateTable(rows, entries)
    # A handle may still hold the rows. It must not write there, because reads now go to the columns.
    rows.plain = _MovedToColumns(rows.name)  # type: ignore[assignment]
    return table


class _MovedToColumns:
    """Takes the place of a state's rows: handles that still use the rows fail."""

    def __init__(self, state: str) -> None:
        self._state = state

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            # Python looks these names up on any object, for example to copy it.
            raise AttributeError(name)
        raise StateSchemaError(
            f"state {self._state!r} is held in columns now: an operator folds columns into it. Declare it again to "
            "have it in rows."
        )


def _other_type(state: str, wanted: str, found: str) -> StateSchemaError:
    return StateSchemaError(
        f"reducing state {state!r} holds {found}, but the column folded into it takes {wanted}. A column has one type: "
        "convert the column, or go on with reduce() on rows, which takes both."
    )


def _slots_by_group(groups: NDArray[np.int16]) -> list[KeyGroupSlots]:
    """The slots of each key group that has some, both ascending."""
    if not len(groups):
        return []
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist()]
    ends = [*starts[1:], len(groups)]
    return [KeyGroupSlots(int(ordered[start]), order[start:end]) for start, end in zip(starts, ends, strict=True)]


def _runs(groups: list[KeyGroupSlots], entries: int) -> list[list[KeyGroupSlots]]:
    """Neighbouring groups as runs. Runs change only when the entries double, so remembered encodings stay useful."""
    width = 1
    while width * 2 * entries <= _RUN_ENTRIES * len(groups) and width < len(groups):
        width *= 2
    return [list(run) for _, run in groupby(groups, lambda group: group.number // width)]


def _grown(array: NDArray[Any], count: int, wanted: int) -> NDArray[Any]:
    grown = np.zeros(max(wanted, 2 * len(array)), dtype=array.dtype)
    grown[:count] = array[:count]
    return grown


def _chosen(keys: KeyColumn, positions: Positions) -> KeyColumn:
    if isinstance(keys, np.ndarray):
        return keys[positions]
    return [keys[position] for position in positions.tolist()]


def _plain(key: Any) -> Any:
    return key.item() if isinstance(key, np.generic) else key
