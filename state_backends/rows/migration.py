"""Migrates the rows of a store to the present form of the records in them, all at once.

A restored store has its files as they were, with values in the form of the program that wrote them. All rows are
rewritten before the job continues (as Flink does for RocksDB). So every row is in the present form, and so are the next
snapshots, which join the bytes of rows without decoding them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from state_backends.base import StateKind
from state_backends.codec import StateCodec
from state_backends.rows.layout import COUNT_BYTES, GROUP_BYTES, PART_BYTES, encode_list, encoded_length
from state_backends.rows.ordered_store import OrderedStore
from state_backends.snapshots import MigratingCodec, StateId, check_key

_ROWS_PER_WRITE = 1024


def rewrite_rows(
    store: OrderedStore, states: Iterable[tuple[int, StateId]], migrating: StateCodec, codec: StateCodec
) -> int:
    """Rewrite all values that are in an older form.

    :param states: the states by id
    :param migrating: the result of :meth:`state_backends.snapshots.StateSchemas.restore`; if it is the backend's own
        codec, no row is rewritten
    :param codec: the codec of the backend
    :return: the number of rows rewritten
    :raises StateMigrationError: when a value cannot be migrated, or a key would have to be migrated
    """
    if not isinstance(migrating, MigratingCodec):
        return 0
    state_of = {state_id.to_bytes(PART_BYTES - GROUP_BYTES, "big"): state for state_id, state in states}
    rewritten, batch = 0, dict[bytes, bytes | None]()
    for key, value in store.scan(b"", None):
        state = state_of[key[GROUP_BYTES:PART_BYTES]]
        if state.kind == StateKind.TIMERS.value:
            continue
        _check_row_key(key, state, migrating)
        present = _rewritten(value, state, migrating, codec)
        if present != value:
            batch[key] = present
        if len(batch) == _ROWS_PER_WRITE:
            rewritten += len(batch)
            store.write_many(batch)
            batch = {}
    if batch:
        store.write_many(batch)
    return rewritten + len(batch)


def _rewritten(value: bytes, state: StateId, migrating: StateCodec, codec: StateCodec) -> bytes:
    what = f"a value of state {state.name!r}"
    if state.kind != StateKind.LIST.value:
        return codec.encode(migrating.decode(value, what), what)
    elements = [migrating.decode(element, what) for element in _parts(value, COUNT_BYTES)]
    return encode_list(codec, elements)


def _check_row_key(key: bytes, state: StateId, migrating: MigratingCodec) -> None:
    if not state.namespaced and state.kind != StateKind.MAP.value:
        return  # the key of the stream, which is never a record
    for part in _parts(key, PART_BYTES):
        what = f"a map key or namespace of state {state.name!r}"
        check_key(migrating.decode(part, what), what, migrating.migrated)


def _parts(data: bytes, start: int) -> Iterator[bytes]:
    while start < len(data):
        length = encoded_length(data, start)
        yield data[start : start + length]
        start += length
