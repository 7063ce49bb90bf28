"""The meaning of the rows of a store: the type of the keys, the key groups, and the state of each id.

A snapshot has it beside the files of the store, which do not have it. The ids are in the rows, so a store that is
opened again keeps its ids; rows that are copied into another store get that store's ids (:meth:`StoreMeta.merged`).
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from state_backends.base import (
    UPPER_BOUND_MAX_PARALLELISM,
    CorruptStateError,
    KeyGroupRange,
    KeyType,
    StateArgumentError,
    StateSchemaError,
    check_shape,
    flag,
    key_type_shape,
    list_of,
    optional,
    positive,
    row,
    text,
    whole,
)
from state_backends.codec import WRITTEN_SCHEMA, StateCodec, seal, unseal
from state_backends.rows import MAX_STATE_ID, group_prefix
from state_backends.snapshots import StateId, check_kind, merge_written

MAGIC = b"WEIRKEYS"
FORMAT_VERSION = 1


_SHAPE = row(
    optional(key_type_shape), positive, row(whole, whole), list_of(row(whole, text, flag, text)), WRITTEN_SCHEMA
)


@dataclass(frozen=True, slots=True)
class StoreMeta:
    """The meaning of the rows of a store. There is no key type before the first key.

    :ivar key_group_range: the key groups whose rows are in the store
    :ivar states: (state id, state), ascending by id; ids and states are all different
    :ivar schema: the form of the values (:mod:`state_backends.snapshots.state_schemas`), if one is needed
    """

    key_type: KeyType | None
    max_parallelism: int
    key_group_range: KeyGroupRange
    states: tuple[tuple[int, StateId], ...]
    schema: Any = None

    def to_bytes(self, codec: StateCodec) -> bytes:
        """The content of a file of its own."""
        key_type = None if self.key_type is None else self.key_type.to_state()
        bounds = [self.key_group_range.first, self.key_group_range.last]
        states = [[state_id, *state.to_state()] for state_id, state in self.states]
        fields = [key_type, self.max_parallelism, bounds, states, self.schema]
        return seal(MAGIC, FORMAT_VERSION, codec.encode(fields))

    @classmethod
    def from_bytes(cls, data: bytes, path: str, codec: StateCodec) -> StoreMeta:
        """The inverse of :meth:`to_bytes`. ``path``: the name of the bytes in errors."""
        payload = unseal(io.BytesIO(data), path, MAGIC, FORMAT_VERSION)
        plain = codec.decode(payload, path)
        check_shape(plain, _SHAPE, path, "meta data")
        key_type, max_parallelism, (first, last), fields, schema = plain
        states = tuple((state_id, StateId(*state)) for state_id, *state in fields)
        for _, state in states:
            check_kind(state.name, state.kind, path)
        if len(dict(states)) < len(states) or len({state for _, state in states}) < len(states):
            raise CorruptStateError(path, "two of its states have the same id, or two ids stand for the same state")
        read_type = None if key_type is None else KeyType.from_state(key_type)
        return cls(read_type, max_parallelism, KeyGroupRange(first, last), states, schema)

    def merged(self, other: StoreMeta) -> tuple[StoreMeta, dict[int, int]]:
        """The states of both, and the id here for each id of the other; the ids of this one stay.

        :raises StateSchemaError: when key type, max parallelism or the kind of a state differ
        :raises StateArgumentError: when there are more states than ids
        """
        key_type = self.key_type
        if key_type is None:
            key_type = other.key_type
        elif other.key_type is not None and other.key_type != key_type:
            raise StateSchemaError(
                f"two parts of one snapshot have keys of different types, {key_type} and {other.key_type}: they do "
                "not belong together."
            )
        if self.max_parallelism != other.max_parallelism:
            raise StateSchemaError(
                f"two parts of one snapshot have different max parallelisms, {self.max_parallelism} and "
                f"{other.max_parallelism}: they do not belong together."
            )
        ids = {state: state_id for state_id, state in self.states}
        kinds = {state.name: state.kind for state in ids}
        new_ids: dict[int, int] = {}
        for state_id, state in other.states:
            if kinds.setdefault(state.name, state.kind) != state.kind:
                raise StateSchemaError(
                    f"state {state.name!r} is {kinds[state.name]} state in one part of the snapshot and {state.kind} "
                    "state in another: they do not belong together."
                )
            new_ids[state_id] = ids.setdefault(state, next_state_id(ids.values()))
        states = tuple(sorted((state_id, state) for state, state_id in ids.items()))
        schema = merge_written(self.schema, other.schema)
        return replace(self, key_type=key_type, states=states, schema=schema), new_ids


def next_state_id(used: Iterable[int]) -> int:
    """The id of a new state; an error when there are no more ids."""
    state_id = max(used, default=-1) + 1
    if state_id > MAX_STATE_ID:
        raise StateArgumentError(
            f"one operator cannot have more than {MAX_STATE_ID + 1} states. Put what belongs together into one map "
            "state, or use namespaces."
        )
    return state_id


def clip_ranges(key_groups: KeyGroupRange) -> list[tuple[bytes, bytes]]:
    """The ranges of rows, as (first, end), of all other key groups: a clip deletes them."""
    before = group_prefix(0), group_prefix(key_groups.first)
    behind = group_prefix(key_groups.last + 1), group_prefix(UPPER_BOUND_MAX_PARALLELISM)
    return [(first, end) for first, end in (before, behind) if first < end]
