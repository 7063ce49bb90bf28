"""The copy-on-write table under every heap state: one live dict ("shard") per key group.

Rules:

* A shard's *identity never changes*. So one bounded cache maps a key straight to its shard, and an
  update is ``shard = shard_of[key]; shard[key] = fn(shard[key], value)``: no group, no flag, no call.
* A snapshot is a list of references to the live shards. The first access to a shard after that
  *freezes* it: the open snapshots that still hold it get one common copy, and writers keep the live shard.
* Records are tested one by one only while some shard is still held (``stale`` is not 0).
* A snapshot sees exactly the state of its sync point, even if a program changes a list or dict that it
  got from state. A shallow copy is enough when every value is immutable. Otherwise the shard is frozen
  *encoded*, which the snapshot must do anyway. So a read through a state counts as touching.

* *Running values* are those of keys that batches fold into again and again, in one dict in front of the shards. A fold
  then needs one look-up instead of three, and freezes nothing. Every other access finds them in the shards: while there
  are any, ``stale`` is not 0 either, and touching writes them back. The shards have their keys at once. If all keys
  have running values, a snapshot copies the values and leaves the shards alone.

Versions decide whether to freeze: the table counts snapshots; a shard's ``stamp`` is the count at its last
freeze (or birth); while ``stamp`` is below the count of the newest open snapshot, some snapshot may hold it.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

from state_backends.base.key_groups import KeyGroupRange, foreign_key

IMMUTABLE_TYPES = frozenset(
    [
        type(None), bool, int, float, str, bytes, datetime.date, datetime.datetime, datetime.time, datetime.timedelta,
        decimal.Decimal,
    ]
)
"""Exact types of immutable objects, which a snapshot may share."""

RUNNING_VALUES = 1 << 15
"""A table has no more running values than these, so that a snapshot never waits long for them."""

MISSING = object()
"""In the place of the value of a key that has none."""


class ValueFormat(Protocol):
    """How a table's values are written, should it have to write some early."""

    def encode_value(self, value: Any) -> bytes:
        """The bytes of a stored value; may raise anything."""

    def refusal(self, stored_key: Any, value: Any, problem: Exception) -> Exception:
        """The error to show when :meth:`encode_value` raised ``problem``."""


class Shard(dict[Any, Any]):
    """The live entries of one key group.

    :ivar group: its key group
    :ivar stamp: the table's version when the shard was last frozen, or born
    """

    __slots__ = ("group", "stamp")

    group: int
    stamp: int


@dataclass(slots=True, eq=False)
class FrozenShard:
    """What a snapshot holds instead of a shard that has gone on.

    :ivar entries: stored key to value, or to the encoded value
    :ivar encoded: whether the values are encoded
    :ivar problem: why encoding failed, if it did: the snapshot fails with it, the running job does not
    """

    entries: dict[Any, Any]
    encoded: bool
    problem: Exception | None = None


class RunningKeys:
    """The keys of a key group that all have running values, and the positions of these values among all.

    :ivar keys: a list that is replaced, not changed
    :ivar column: the encoded list of these keys, once an encoder has put them in the order of their encodings
    """

    __slots__ = ("column", "keys", "positions")

    def __init__(self, keys: list[Any], position_of: dict[Any, int]) -> None:
        self.keys = keys
        self.positions = list(map(position_of.__getitem__, keys))
        self.column: bytes | None = None

    def put_in_order(self, keys: list[Any], column: bytes) -> None:
        """The same keys in the order of their encodings."""
        position_of = dict(zip(self.keys, self.positions, strict=True))
        self.keys, self.positions, self.column = keys, list(map(position_of.__getitem__, keys)), column


class PinnedValues:
    """What a snapshot holds instead of a shard whose values run: its keys, and all values at that moment."""

    __slots__ = ("_all_values", "_positions", "keys", "origin")

    def __init__(self, origin: RunningKeys, all_values: list[Any]) -> None:
        self.origin = origin
        self.keys = origin.keys
        self._positions = origin.positions
        self._all_values = all_values

    def __len__(self) -> int:
        return len(self.keys)

    def values(self) -> list[Any]:
        """Those of the keys."""
        return list(map(self._all_values.__getitem__, self._positions))


class KeyCache(dict[Any, Any]):
    """From a key to what is computed of it at a miss. Emptied when it has grown to its limit."""

    __slots__ = ("_compute", "_limit")

    def __init__(self, compute: Callable[[Any], Any], limit: int) -> None:
        super().__init__()
        self._compute = compute
        self._limit = limit

    def __missing__(self, key: Any) -> Any:
        found = self._compute(key)
        if len(self) >= self._limit:
            self.clear()
        self[key] = found
        return found


class ShardedTable:
    """Entries in shards by key group. A stored key is a key, a (key, namespace) or a timer.

    :ivar shard_of: key to shard
    :ivar stale: how many shards some open snapshot still holds, and one more while there are running values;
        0 = no access needs a test
    """

    __slots__ = (
        "_ahead",
        "_folds",
        "_format",
        "_group_of",
        "_may_run",
        "_open_snapshots",
        "_range",
        "_required",
        "_running",
        "_running_keys",
        "_shards",
        "_version",
        "shard_of",
        "stale",
    )

    def __init__(
        self,
        group_of: Callable[[Any], int],
        key_group_range: KeyGroupRange,
        value_format: ValueFormat,
        cache_limit: int,
    ) -> None:
        self._shards: dict[int, Shard] = {}
        self.shard_of: dict[Any, Shard] = KeyCache(self.shard_for_key, cache_limit)
        self.stale = 0
        self._group_of = group_of
        self._range = key_group_range
        self._format = value_format
        self._version = 0
        self._required = 0
        self._open_snapshots: list[TableSnapshot] = []
        self._running: dict[Any, Any] | None = None
        self._may_run = True
        self._folds = 0
        """Into running values, since the last snapshot."""
        self._ahead = False
        """Whether running values are newer than those in the shards."""
        self._running_keys: dict[int, RunningKeys] | None = None
        """By key group; ``None`` when keys have come or gone."""

    def __len__(self) -> int:
        return sum(map(len, self.shards.values()))

    @property
    def shards(self) -> dict[int, Shard]:
        """Key group to shard, only for groups that ever had a key."""
        if self._ahead:
            self._write_running()
        return self._shards

    def shard_for_key(self, key: Any) -> Shard:
        """The shard that owns a key.

        :raises KeyGroupError: when the key's group is not in the backend's range
        """
        group = self._group_of(key)
        shard = self._shards.get(group)
        if shard is not None:
            return shard
        if group not in self._range:
            raise foreign_key(key, group, self._range)
        return self.shard_for_group(group)

    def shard_for_group(self, group: int) -> Shard:
        shard = self._shards.get(group)
        if shard is None:
            shard = Shard()
            shard.group = group
            shard.stamp = self._version
            self._shards[group] = shard
        return shard

    # --- running values -------------------------------------------------------------------------------------------

    def running(self, folds: int) -> dict[Any, Any] | None:
        """The running values, by key, for a batch of so many folds into entries without namespace. ``None``: fold into
        the shards. The dict may be changed until anything else is called here but :meth:`begin_running` and
        :meth:`forget`."""
        running = self._running
        if running is None:
            if not self._may_run:
                return None
            running = self._running = {}
            self.stale += 1
        elif len(running) + folds > RUNNING_VALUES:
            self._end_running()
            return None
        self._folds += folds
        self._ahead = True
        return running

    def begin_running(self, key: Any, first: Any) -> Any:
        """The value of a key that has no running value, or ``MISSING``: then the key enters its shard with its first
        value.

        :raises KeyGroupError: when the key's group is not in the backend's range
        """
        shard = self.shard_of[key]
        # A fold may change the value in place.
        if shard.stamp < self._required:
            self._freeze(shard)
        found = shard.get(key, MISSING)
        if found is MISSING:
            shard[key] = first
        # A key has come, or is about to go (mutant "keys of running values remembered").
        self._running_keys = None
        return found

    def forget(self, key: Any) -> None:
        """Remove the value of a key, running or not."""
        assert self._running is not None
        self._running.pop(key, None)
        self.begin_running(key, None)
        del self.shard_of[key][key]

    def _write_running(self) -> None:
        assert self._running is not None
        shard_of, running, self._ahead = self.shard_of, self._running, False
        if self._required:
            self._freeze_older(map(shard_of.__getitem__, running))
        for key, value in running.items():
            shard_of[key][key] = value

    def _end_running(self) -> None:
        """Something else than folds has come: from now on, all values are in the shards."""
        self._write_running()
        self._running, self._running_keys, self._may_run = None, None, False
        self.stale -= 1

    # --- snapshots ------------------------------------------------------------------------------------------------

    def touch(self, shard: Shard) -> None:
        """Call before reading or changing values of a shard while ``stale`` is not 0."""
        if self._running is not None:
            self._end_running()
        if shard.stamp < self._required:
            self._freeze(shard)

    def touch_all(self, shards: Iterable[Shard]) -> None:
        """:meth:`touch` for many shards, repeated ones included."""
        if self._running is not None:
            self._end_running()
        self._freeze_older(shards)

    def _freeze_older(self, shards: Iterable[Shard]) -> None:
        required = self._required
        for shard in shards:
            if shard.stamp < required:
                self._freeze(shard)

    def snapshot(self) -> TableSnapshot:
        """Pin the present entries, in time proportional to the number of shards and running values, not of entries."""
        running = self._running
        if running is None:
            if not self._shards:
                # Nothing to hold: no key that comes later is in it.
                return TableSnapshot(None, {}, self._version)
        else:
            values = list(running.values())
            # What the snapshot shares must not be changed in place afterwards (mutant "running values shared").
            if self._folds <= len(running) or not values_are_immutable(values):
                self._end_running()
            elif len(running) == sum(map(len, self._shards.values())):
                return self._pin_running(running, values)
            else:
                # The key groups are behind (mutant "running values not in a snapshot").
                self._write_running()
            self._folds = 0
        self._version += 1
        snapshot = TableSnapshot(self, dict(self._shards), self._version)
        self._open_snapshots.append(snapshot)
        self._required = self._version
        self.stale = len(self._shards) + (self._running is not None)
        return snapshot

    def _pin_running(self, running: dict[Any, Any], values: list[Any]) -> TableSnapshot:
        self._folds = 0
        if self._running_keys is None:
            position_of = dict(zip(running, range(len(running)), strict=True))
            shards = sorted(self._shards.items())
            self._running_keys = {group: RunningKeys(list(shard), position_of) for group, shard in shards if shard}
        pinned: dict[int, Any] = {
            group: FrozenShard(PinnedValues(own, values), encoded=False)  # type: ignore[arg-type]
            for group, own in self._running_keys.items()
        }
        return TableSnapshot(None, pinned, self._version)

    def _freeze(self, shard: Shard) -> None:
        group = shard.group
        holders = [snapshot for snapshot in self._open_snapshots if snapshot.shards.get(group) is shard]
        if holders:
            frozen = _frozen_copy(shard, self._format)
            for snapshot in holders:
                snapshot.shards[group] = frozen
        shard.stamp = self._version
        self.stale -= 1
        assert self.stale >= 0

    def close_snapshot(self, snapshot: TableSnapshot) -> None:
        """Forget an open snapshot; shards that only it held need no freezing any more."""
        self._open_snapshots.remove(snapshot)
        required = held = 0
        if self._open_snapshots:
            required = max([one.version for one in self._open_snapshots])
            held = sum([shard.stamp < required for shard in self._shards.values()])
        self._required = required
        self.stale = held + (self._running is not None)


class TableSnapshot:
    """The entries of one table at one moment.

    :ivar shards: key group to what holds its entries; a group leaves when it is taken
    :ivar version: the table's version that this snapshot made
    """

    __slots__ = ("_table", "shards", "version")

    def __init__(self, table: ShardedTable | None, shards: dict[int, Shard | FrozenShard], version: int) -> None:
        """``table``: freezes the shards that it changes; ``None`` when no shard can change."""
        self._table = table
        self.shards = shards
        self.version = version

    def groups_with_entries(self) -> list[int]:
        """The key groups that hold entries and were not taken yet, ascending."""
        return sorted(group for group, shard in self.shards.items() if _entries_of(shard))

    def take(self, group: int) -> FrozenShard | None:
        """The entries of a group, to be read before anything else happens; ``None`` without entries.

        A taken group is no longer held: writers need not copy it on account of this snapshot.

        :raises StateSerializationError: when freezing the group failed
        """
        shard = self.shards.pop(group, None)
        if shard is None or not _entries_of(shard):
            return None
        if isinstance(shard, Shard):
            return FrozenShard(shard, encoded=False)
        if shard.problem is not None:
            raise shard.problem
        return shard

    def release(self) -> None:
        """Hold nothing any more; a second call does nothing."""
        if self._table is not None:
            self._table.close_snapshot(self)
            self._table = None
            self.shards = {}


def _entries_of(shard: Shard | FrozenShard) -> dict[Any, Any]:
    return shard if isinstance(shard, Shard) else shard.entries


def _frozen_copy(shard: Shard, value_format: ValueFormat) -> FrozenShard:
    if values_are_immutable(shard.values()):
        return FrozenShard(shard.copy(), encoded=False)
    encode_value = value_format.encode_value
    encoded: dict[Any, Any] = {}
    for stored_key, value in shard.items():
        try:
            encoded[stored_key] = encode_value(value)
        except Exception as problem:
            refusal = value_format.refusal(stored_key, value, problem)
            refusal.__cause__ = problem
            return FrozenShard(dict.fromkeys(shard), encoded=True, problem=refusal)
    return FrozenShard(encoded, encoded=True)


def values_are_immutable(values: Iterable[Any]) -> bool:
    """Whether all these values are immutable: scalars, or tuples of scalars. C-speed passes."""
    types = set(map(type, values))
    if types <= IMMUTABLE_TYPES:
        return True
    if types == {tuple}:
        return set(map(type, chain.from_iterable(values))) <= IMMUTABLE_TYPES
    return False
