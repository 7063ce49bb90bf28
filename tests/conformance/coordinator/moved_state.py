"""State that moves when the parallelism changes: keyed, operator and channel state, and the checks before."""

from __future__ import annotations

import re
from itertools import chain
from typing import Any

from engine.checkpoint.restore import RestoreTarget, UnsupportedMappingError, plan_restore
from engine.checkpoint.restore.redistribution import OperatorStatePart, keyed_state_parts, redistribute_operator_state
from engine.checkpoint.restore.restore_plan import MaxParallelismMismatchError, resolve_max_parallelism_of_state
from engine.checkpoint.restore.state_mapping import (
    PARTITIONER_STATE_MAPPINGS,
    SubtaskStateMapper,
    redistribute_channel_state,
)
from state_backends.base import KeyGroupRange
from state_backends.base.key_groups import key_group_ranges
from state_backends.snapshots import (
    ByteStreamStateHandle,
    FullKeyedStateHandle,
    KeyedStateHandle,
    OperatorSnapshot,
    OperatorStateMode,
    StateOffsets,
    SubtaskSnapshot,
)
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields

_PARTITIONERS = {
    "KEY_GROUP": "hash",
    "REBALANCE": "rebalance",
    "SHUFFLE": "shuffle",
    "GLOBAL": "global",
    "CUSTOM": "custom",
    "BROADCAST": "broadcast",
    "FORWARD": "forward",
    "RESCALE": "rescale",
}


def _part(written: Vector) -> OperatorStatePart[str]:
    check_fields(written, {"handle", "states"}, "a handle")
    states = {}
    for name, state in written["states"].items():
        check_fields(state, {"mode", "offsets"}, f"state {name}")
        if state["mode"] not in OperatorStateMode.__members__:
            raise MalformedVector(f"unknown mode {state['mode']!r}")
        states[name] = StateOffsets(OperatorStateMode[state["mode"]], tuple(state["offsets"]))
    return OperatorStatePart(written["handle"], states)


def operator_state(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"old", "new_parallelism", "split_state_order"}, "input")
    # A subtask that reported nothing may be null.
    old = [[_part(written) for written in subtask or ()] for subtask in given["old"]]
    new = redistribute_operator_state(old, given["new_parallelism"], _split_order(old, given.get("split_state_order")))
    layout: list[dict[str, dict[str, list[int]]]] = []
    for share in new:
        # A stream of which no part is read is not named.
        layout.append({})
        for part in share:
            layout[-1].setdefault(part.stream, {}).update(
                {name: list(state.offsets) for name, state in part.states.items()}
            )
    comparison.fields(vector["expect"], {"new": layout})
    return comparison.finish()


def _split_order(old: list[list[OperatorStatePart[str]]], told: list[str] | None) -> list[str] | None:
    """The order of exactly the split states. The vector may name more states than there are, and states without items
    may be missing: they move no item, wherever they stand."""
    if told is None:
        return None
    items: dict[str, int] = {}
    for part in chain.from_iterable(old):
        for name, state in part.states.items():
            if state.mode is OperatorStateMode.SPLIT_DISTRIBUTE:
                items[name] = items.get(name, 0) + len(state.offsets)
    missing = sorted(items.keys() - set(told))
    for name in missing:
        if items[name]:
            raise MalformedVector(f"split_state_order says nothing of {name!r}")
    return [*(name for name in told if name in items), *missing]


def keyed_state(vector: Vector) -> list[str]:
    """``keyed_state_redistribution``: the parts that are planned, and the handles that a restore hands out."""
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"max_parallelism", "old_parallelism", "new_parallelism"}, "input")
    maximum, new_parallelism = given["max_parallelism"], given["new_parallelism"]
    ranges = key_group_ranges(maximum, given["old_parallelism"])
    parts = keyed_state_parts(maximum, ranges, new_parallelism)
    planned = [
        [_read(part.old_subtask, ranges[part.old_subtask], part.key_groups) for part in share] for share in parts
    ]
    comparison.fields(vector["expect"], {"handles_per_new_subtask": planned})
    handles = [
        FullKeyedStateHandle(one, tuple((group, group) for group in one), ByteStreamStateHandle(b"%d" % subtask))
        for subtask, one in enumerate(ranges)
    ]
    snapshots = {subtask: SubtaskSnapshot(handle) for subtask, handle in enumerate(handles)}
    operators = [OperatorSnapshot("o", "o", len(ranges), maximum, snapshots)]
    restore = plan_restore(operators, [RestoreTarget("o", "o", new_parallelism, maximum)])
    restored = []
    for subtask in range(new_parallelism):
        state = restore.for_subtask("o", subtask)
        assert state is not None
        restored.append([_read(_old(one), ranges[_old(one)], one.key_group_range) for one in state.keyed])
    comparison.fields(vector["expect"], {"handles_per_new_subtask": restored}, "restored ")
    return comparison.finish()


def _old(handle: KeyedStateHandle) -> int:
    assert isinstance(handle.stream, ByteStreamStateHandle)
    return int(handle.stream.data)


def _read(old: int, whole: KeyGroupRange, cut: KeyGroupRange) -> dict[str, Any]:
    return {"old": old, "native": [whole.first, whole.last], "trimmed": [cut.first, cut.last]}


def _mapper(name: str) -> SubtaskStateMapper:
    if name not in SubtaskStateMapper.__members__:
        raise MalformedVector(f"unknown mapper {name!r}")
    return SubtaskStateMapper[name]


def subtask_state_mapping(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"mapper", "old_parallelism", "new_parallelism"}, "input")
    observed: dict[str, object] = {"new_to_old": None, "ambiguous_old": None, "error": None}
    try:
        mapping = _mapper(given["mapper"]).mapping(given["old_parallelism"], given["new_parallelism"])
        observed |= {"new_to_old": mapping.new_to_old, "ambiguous_old": mapping.ambiguous_old}
    except UnsupportedMappingError:
        observed["error"] = "unsupported"
    comparison.fields(vector["expect"], observed)
    return comparison.finish()


def partitioner_state_mapper(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"partitioner"}, "input")
    if given["partitioner"] not in _PARTITIONERS:
        raise MalformedVector(f"unknown partitioner {given['partitioner']!r}")
    mapping = PARTITIONER_STATE_MAPPINGS[_PARTITIONERS[given["partitioner"]]]
    observed = {
        "downstream_mapper": mapping.downstream.name,
        "upstream_mapper": mapping.upstream.name,
        "unaligned_disabled_by_default": mapping.is_unaligned_refused,
    }
    comparison.fields(vector["expect"], observed)
    return comparison.finish()


def channel_state(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"mapper", "old", "new_parallelism"}, "input")
    observed: dict[str, object] = {"new": None, "error": None}
    try:
        observed["new"] = redistribute_channel_state(_mapper(given["mapper"]), given["old"], given["new_parallelism"])
    except UnsupportedMappingError:
        observed["error"] = "unsupported"
    comparison.fields(vector["expect"], observed)
    return comparison.finish()


def restore_max_parallelism(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    known = {"state_max_parallelism", "vertex_max_parallelism", "vertex_max_auto_derived", "vertex_parallelism"}
    check_fields(given, known, "input")
    target = RestoreTarget(
        "o", "o", given["vertex_parallelism"], given["vertex_max_parallelism"], given["vertex_max_auto_derived"]
    )
    expected, adopted = vector["expect"].get("outcome"), None
    try:
        adopted = resolve_max_parallelism_of_state(given["state_max_parallelism"], target)
    except MaxParallelismMismatchError:
        outcome = "illegal_state"
    else:
        outcome = "ok" if adopted == given["state_max_parallelism"] else f"runs with {adopted}"
    if _is_told_by(expected, adopted, takes_over=adopted != given["vertex_max_parallelism"]):
        outcome = expected
    comparison.fields(vector["expect"], {"outcome": outcome})
    return comparison.finish()


def _is_told_by(text: object, adopted: int | None, *, takes_over: bool) -> bool:
    """Whether an expectation in words says the same: that it is illegal (``adopted`` is ``None``), or that the vertex
    adopts another number than its own, and which."""
    if not isinstance(text, str) or text in ("ok", "illegal_state"):
        return False
    if adopted is None:
        return re.match(r"illegal_state\s*[:(,]", text) is not None
    numbers = re.findall(r"\d+", text)
    return takes_over and "illegal" not in text and (not numbers or str(adopted) in numbers)


KINDS = {
    "operator_state_redistribution": operator_state,
    "keyed_state_redistribution": keyed_state,
    "subtask_state_mapping": subtask_state_mapping,
    "partitioner_state_mapper": partitioner_state_mapper,
    "channel_state_redistribution": channel_state,
    "restore_max_parallelism_check": restore_max_parallelism,
}
