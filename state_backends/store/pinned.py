"""Full snapshots of a store backend: the pinned view, which makes columns from rows, and the way back into a store.

Writing does not decode values: the rows are in the order of the format, and columns are their joined parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import attrgetter

from state_backends.base import StateKind
from state_backends.codec import StateCodec
from state_backends.rows import (
    Row,
    StoreSnapshot,
    encode_block,
    encode_list,
    encode_time,
    occupied_parts,
    part_prefix,
    part_rows,
)
from state_backends.snapshots import Contents, DecodedBlock, EncodedBlock, FullSnapshotResources, StateId
from state_backends.store.meta import StoreMeta
from state_backends.ttl import RowFilter


class StoreSnapshotResources(FullSnapshotResources):
    """The rows of a store at one moment."""

    def __init__(
        self, codec: StateCodec, meta: StoreMeta, pinned: StoreSnapshot | None, row_filter: RowFilter | None = None
    ) -> None:
        """The view owns the snapshot of the store from here on. ``None`` = there are no rows."""
        super().__init__(codec, meta.key_type, meta.max_parallelism, meta.key_group_range, meta.schema)
        self._states = dict(meta.states)
        self._pinned = pinned
        self._filter = row_filter
        self._parts: dict[int, list[int]] = {}

    def contents(self) -> Contents:
        if self._pinned is None:
            return Contents([], [])
        groups = self.key_group_range
        found: dict[StateId, None] = {}
        for group, state_id in occupied_parts(self._pinned, groups.first, groups.last):
            if self._filter is None or next(self._rows(group, state_id), None) is not None:
                self._parts.setdefault(group, []).append(state_id)
                found[self._states[state_id]] = None
        return Contents(sorted(found), sorted(self._parts))

    def blocks(self, key_group: int) -> list[EncodedBlock]:
        in_order = sorted(self._parts[key_group], key=self._states.__getitem__)
        return [
            encode_block(self.codec, self._states[state_id], self._rows(key_group, state_id)) for state_id in in_order
        ]

    def _rows(self, key_group: int, state_id: int) -> Iterator[Row]:
        assert self._pinned is not None
        rows = part_rows(self._pinned, key_group, state_id)
        return rows if self._filter is None else _filtered(rows, self._filter)

    def _release(self) -> None:
        if self._pinned is not None:
            self._pinned.release()


def _filtered(rows: Iterable[Row], row_filter: RowFilter) -> Iterator[Row]:
    for key, value in rows:
        kept = row_filter(key, value)
        if kept is not None:
            yield key, kept


def rows_of_blocks(
    blocks: Iterable[DecodedBlock], state_id_of: Callable[[StateId], int], codec: StateCodec
) -> Iterator[Row]:
    """The rows of the entries of a snapshot, ascending. Memory holds the blocks of one key group at a time."""
    for _, of_group in groupby(blocks, key=attrgetter("key_group")):
        numbered = [(state_id_of(block.state), block) for block in of_group]
        for state_id, block in sorted(numbered, key=lambda one: one[0]):
            # In a correct file they are sorted already; the store relies on the order.
            yield from sorted(_rows_of_block(block, part_prefix(block.key_group, state_id), codec))


def _rows_of_block(block: DecodedBlock, prefix: bytes, codec: StateCodec) -> Iterator[Row]:
    pack = codec.pack
    scopes: Iterable[bytes] = map(pack, block.keys)
    if block.namespaces is not None:
        scopes = [key + pack(namespace) for key, namespace in zip(scopes, block.namespaces, strict=True)]
    entries = zip(scopes, block.values, strict=True)
    kind = block.state.kind
    if kind == StateKind.MAP.value:
        for scope, value in entries:
            for map_key, element in value.items():
                yield prefix + scope + pack(map_key), pack(element)
    elif kind == StateKind.TIMERS.value:
        for scope, time in entries:
            yield prefix + encode_time(time) + scope, b""
    elif kind == StateKind.LIST.value:
        for scope, value in entries:
            yield prefix + scope, encode_list(codec, value)
    else:
        for scope, value in entries:
            yield prefix + scope, pack(value)
