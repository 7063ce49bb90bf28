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

from state_backends.base import KeyGroupRange, key_group_range_for_index
from state_backends.snapshots import OperatorStateMode, StateOffsets

Stream = TypeVar("Stream")


class OperatorStatePart(NamedTuple, Generic[Stream]):
    """Some items of one written stream, by state name."""

    stream: Stream
    states: Mapping[str, StateOffsets]


class KeyedStatePart(NamedTuple):
    """The key groups that a new subtask reads from the state of old subtask ``old_subtask``."""

    old_subtask: int
    key_groups: KeyGroupRange


def keyed_state_parts(
    max_parallelism: int, old_ranges: Sequence[KeyGroupRange | None], new_parallelism: int
) -> tuple[tuple[KeyedStatePart, ...], ...]:
    """For each new subtask the parts of old ones it reads. ``old_ranges``: what each old subtask wrote, if anything."""
    parts = []
    for new_subtask in range(new_parallelism):
        own = key_group_range_for_index(max_parallelism, new_parallelism, new_subtask)
        common = [(old, written.intersection(own)) for old, written in enumerate(old_ranges) if written is not None]
        parts.append(tuple(KeyedStatePart(old, groups) for old, groups in common if groups is not None))
    return tuple(parts)


class _Written(NamedTuple):
    """One state in one old part."""

    old_subtask: int
    part: int
    name: str
    offsets: tuple[int, ...]


class _Share:
    """The split and broadcast state of one new subtask: per old part, by name, the offsets."""

    def __init__(self) -> None:
        self.own: dict[int, dict[str, tuple[OperatorStateMode, list[int]]]] = {}

    def add(self, part: int, name: str, mode: OperatorStateMode, offsets: Sequence[int]) -> None:
        self.own.setdefault(part, {}).setdefault(name, (mode, []))[1].extend(offsets)

    def states(self, part: int) -> dict[str, StateOffsets]:
        return {name: StateOffsets(mode, tuple(at)) for name, (mode, at) in self.own[part].items()}


def redistribute_operator_state(
    old: Sequence[Sequence[OperatorStatePart[Stream]]], new_parallelism: int, split_order: Sequence[str] | None = None
) -> tuple[tuple[OperatorStatePart[Stream], ...], ...]:
    """For each new subtask the parts it reads, in the order of the old subtasks. ``old``: the state that each old
    subtask wrote (none: empty). ``split_order``: the order in which SPLIT names are visited, by default sorted."""
    assert new_parallelism >= 1, new_parallelism
    streams: list[Stream] = []
    written: dict[OperatorStateMode, list[_Written]] = {mode: [] for mode in OperatorStateMode}
    for old_subtask, parts in enumerate(old):
        for part in parts:
            for name, one in part.states.items():
                written[one.mode].append(_Written(old_subtask, len(streams), name, one.offsets))
            streams.append(part.stream)
    shares = [_Share() for _ in range(new_parallelism)]
    if len(old) == new_parallelism:
        for state in written[OperatorStateMode.SPLIT_DISTRIBUTE]:
            share = shares[state.old_subtask]
            share.add(state.part, state.name, OperatorStateMode.SPLIT_DISTRIBUTE, state.offsets)
    else:
        _deal_out(written[OperatorStateMode.SPLIT_DISTRIBUTE], shares, split_order)
    _copy_broadcast(written[OperatorStateMode.BROADCAST], shares)
    return _with_union(written[OperatorStateMode.UNION], shares, streams)


def _deal_out(written: Sequence[_Written], shares: list[_Share], split_order: Sequence[str] | None) -> None:
    items: dict[str, list[tuple[int, int]]] = {}
    for state in written:
        items.setdefault(state.name, []).extend((state.part, offset) for offset in state.offsets)
    names = sorted(items) if split_order is None else list(split_order)
    assert sorted(names) == sorted(items), (names, sorted(items))
    start = 0
    for name in names:
        base, extras = divmod(len(items[name]), len(shares))
        taken = 0
        for step in range(len(shares)):
            chunk = base + (1 if step < extras else 0)
            share = shares[(start + step) % len(shares)]
            for part, offset in items[name][taken : taken + chunk]:
                share.add(part, name, OperatorStateMode.SPLIT_DISTRIBUTE, (offset,))
            taken += chunk
        # Go on where the extras ended: over several names every target gets its turn.
        start = (start + extras) % len(shares)


def _copy_broadcast(written: Sequence[_Written], shares: list[_Share]) -> None:
    copies: dict[str, list[_Written]] = {}
    for state in written:
        copies.setdefault(state.name, []).append(state)
    for reported in copies.values():
        for position, share in enumerate(shares):
            state = reported[position % len(reported)]
            share.add(state.part, state.name, OperatorStateMode.BROADCAST, state.offsets)


def _with_union(
    written: Sequence[_Written], shares: Sequence[_Share], streams: Sequence[Stream]
) -> tuple[tuple[OperatorStatePart[Stream], ...], ...]:
    union: dict[int, dict[str, StateOffsets]] = {}
    for state in written:
        at = StateOffsets(OperatorStateMode.UNION, state.offsets)
        union.setdefault(state.part, {})[state.name] = at
    # Built once for all subtasks: with many of them on both sides there are millions of pairs.
    everywhere = {part: OperatorStatePart(streams[part], states) for part, states in union.items()}
    collected = []
    for share in shares:
        parts = dict(everywhere)
        for part in share.own:
            states = {**union.get(part, {}), **share.states(part)}
            parts[part] = OperatorStatePart(streams[part], dict(sorted(states.items())))
        collected.append(tuple(parts[part] for part in sorted(parts)))
    return tuple(collected)
