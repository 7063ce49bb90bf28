"""How state moves when the parallelism changes: pure functions on plain data.

Rules
-----
*Keyed state* (Flink: ``StateAssignmentOperation``). Same parallelism: subtask ``i`` gets back exactly what subtask
``i`` wrote. Otherwise subtask ``i`` gets, in the order of the old subtasks, every handle whose key groups intersect
its own, cut to the intersection.

*Operator state* (Flink: ``RoundRobinOperatorStateRepartitioner``), per state name:

* SPLIT, same parallelism: untouched. Otherwise the n items in the order of the old subtasks are dealt out as
  contiguous chunks: ``n div p`` each, and one more for ``n mod p`` targets. The walk over the targets begins at
  ``start`` (0 for the first name); the next name's ``start`` is the first target of this walk that got no extra, so
  that extras rotate over the names. Names are visited in sorted order unless told otherwise: Flink's order is that of
  a Java hash map.
* UNION: every new subtask gets every item of every old one, also when the parallelism is unchanged.
* BROADCAST: new subtask ``j`` gets the copy of reporting entry ``j mod k``, k = number of old subtasks that reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from state_backends.handles import OperatorStateMode, StateOffsets
from state_backends.key_groups import KeyGroupRange, key_group_range_for_index

Stream = TypeVar("Stream")


class OperatorStatePart(NamedTuple, Generic[Stream]):
    """Some items of one written stream: which, by state name."""

    stream: Stream
    states: Mapping[str, StateOffsets]


class KeyedStatePart(NamedTuple):
    """The key groups that a new subtask reads from what old subtask ``old_subtask`` wrote."""

    old_subtask: int
    key_groups: KeyGroupRange


def keyed_state_parts(
    max_parallelism: int, old_ranges: Sequence[KeyGroupRange | None], new_parallelism: int
) -> tuple[tuple[KeyedStatePart, ...], ...]:
    """For each new subtask what it reads of which old one. ``old_ranges``: what each old subtask wrote, if anything."""
    parts = []
    for new_subtask in range(new_parallelism):
        own = key_group_range_for_index(max_parallelism, new_parallelism, new_subtask)
        common = [
            (old, written.intersection(own)) for old, written in enumerate(old_ranges) if written is not None
        ]
        parts.append(tuple(KeyedStatePart(old, groups) for old, groups in common if groups is not None))
    return tuple(parts)


class _Share(Generic[Stream]):
    """What one new subtask has got so far: per stream, in the order of first use, per name the offsets."""

    def __init__(self) -> None:
        self._streams: list[Stream] = []
        self._states: list[dict[str, tuple[OperatorStateMode, list[int]]]] = []

    def add(self, stream: Stream, name: str, mode: OperatorStateMode, offsets: Sequence[int]) -> None:
        position = next((i for i, one in enumerate(self._streams) if one is stream), len(self._streams))
        if position == len(self._streams):
            self._streams.append(stream)
            self._states.append({})
        self._states[position].setdefault(name, (mode, []))[1].extend(offsets)

    def parts(self) -> tuple[OperatorStatePart[Stream], ...]:
        return tuple(
            OperatorStatePart(
                stream,
                {name: StateOffsets(mode, tuple(offsets)) for name, (mode, offsets) in sorted(states.items())},
            )
            for stream, states in zip(self._streams, self._states, strict=True)
        )


def redistribute_operator_state(
    old: Sequence[Sequence[OperatorStatePart[Stream]]],
    new_parallelism: int,
    split_order: Sequence[str] | None = None,
) -> tuple[tuple[OperatorStatePart[Stream], ...], ...]:
    """For each new subtask the parts it reads. ``old``: for each old subtask what it wrote (nothing: empty).
    ``split_order``: the order in which SPLIT names are visited, by default sorted. Streams are told apart by
    identity."""
    assert new_parallelism >= 1, new_parallelism
    shares: list[_Share[Stream]] = [_Share() for _ in range(new_parallelism)]
    if len(old) == new_parallelism:
        _hand_back_split(old, shares)
    else:
        _deal_out_split(old, shares, split_order)
    _copy_union(old, shares)
    _copy_broadcast(old, shares)
    return tuple(share.parts() for share in shares)


def _hand_back_split(
    old: Sequence[Sequence[OperatorStatePart[Stream]]], shares: list[_Share[Stream]]
) -> None:
    for parts, share in zip(old, shares, strict=True):
        for part in parts:
            for name, one in part.states.items():
                if one.mode is OperatorStateMode.SPLIT_DISTRIBUTE:
                    share.add(part.stream, name, one.mode, one.offsets)


def _deal_out_split(
    old: Sequence[Sequence[OperatorStatePart[Stream]]],
    shares: list[_Share[Stream]],
    split_order: Sequence[str] | None,
) -> None:
    mode = OperatorStateMode.SPLIT_DISTRIBUTE
    items: dict[str, list[tuple[Stream, int]]] = {}
    for parts in old:
        for part in parts:
            for name, one in part.states.items():
                if one.mode is mode:
                    items.setdefault(name, []).extend((part.stream, offset) for offset in one.offsets)
    names = sorted(items) if split_order is None else list(split_order)
    assert sorted(names) == sorted(items), (names, sorted(items))
    start = 0
    for name in names:
        base, extras = divmod(len(items[name]), len(shares))
        taken = 0
        for step in range(len(shares)):
            chunk = base + (1 if step < extras else 0)
            share = shares[(start + step) % len(shares)]
            for stream, offset in items[name][taken : taken + chunk]:
                share.add(stream, name, mode, (offset,))
            taken += chunk
        start = (start + extras) % len(shares)


def _copy_union(old: Sequence[Sequence[OperatorStatePart[Stream]]], shares: list[_Share[Stream]]) -> None:
    for share in shares:
        for parts in old:
            for part in parts:
                for name, one in part.states.items():
                    if one.mode is OperatorStateMode.UNION:
                        share.add(part.stream, name, one.mode, one.offsets)


def _copy_broadcast(old: Sequence[Sequence[OperatorStatePart[Stream]]], shares: list[_Share[Stream]]) -> None:
    reported: dict[str, list[tuple[Stream, StateOffsets]]] = {}
    for parts in old:
        for part in parts:
            for name, one in part.states.items():
                if one.mode is OperatorStateMode.BROADCAST:
                    reported.setdefault(name, []).append((part.stream, one))
    for name, copies in reported.items():
        for position, share in enumerate(shares):
            stream, one = copies[position % len(copies)]
            share.add(stream, name, one.mode, one.offsets)
