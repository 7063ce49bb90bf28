"""Further vectors about state, written from the rules: operations and fields that the recorded ones miss."""

from __future__ import annotations

from typing import Any

from tests.conformance.compare import Vector


def vector_of(kind: str, name: str, given: Vector, expect: Vector) -> Vector:
    """One vector in the documented form."""
    return {"name": f"{kind}: {name}", "kind": kind, "input": given, "expect": expect}


STATE_OPS = [
    vector_of(
        "keyed_state_ops",
        "a list",
        {
            "state_type": "list",
            "ops": [
                {"op": "key", "key": "k"},
                {"op": "add", "value": 1},
                {"op": "addAll", "value": [2, 3]},
                {"op": "addAll", "value": []},
                {"op": "add", "value": None},
                {"op": "get"},
                {"op": "snapshot_and_restore"},
                {"op": "key", "key": "k"},
                {"op": "get"},
                {"op": "update", "value": []},
                {"op": "get"},
            ],
        },
        {
            "per_op": [
                {},
                {},
                {},
                {},
                {"error": "null_pointer"},
                {"value": [1, 2, 3]},
                {},
                {},
                {"value": [1, 2, 3]},
                {},
                {"value": None},
            ]
        },
    ),
    vector_of(
        "keyed_state_ops",
        "a reduced value",
        {
            "state_type": "reducing_sum",
            "ops": [
                {"op": "key", "key": 1},
                {"op": "get"},
                {"op": "add", "value": 4},
                {"op": "add", "value": 5},
                {"op": "get"},
                {"op": "num_entries"},
            ],
        },
        {"per_op": [{}, {"value": None}, {}, {}, {"value": 9}, {"value": 1}]},
    ),
    vector_of(
        "keyed_state_ops",
        "entries may be told as pairs, in any order",
        {
            "state_type": "map",
            "ops": [
                {"op": "key", "key": "k"},
                {"op": "put", "map_key": "b", "value": 2},
                {"op": "put", "map_key": "a", "value": 1},
                {"op": "entries"},
            ],
        },
        {"per_op": [{}, {}, {}, {"value": [["b", 2], ["a", 1]]}]},
    ),
    vector_of(
        "keyed_state_ops",
        "no key is no key",
        {
            "state_type": "value",
            "default": 1,
            "ops": [{"op": "get"}, {"op": "update", "value": 2}, {"op": "key", "key": None}],
        },
        {"per_op": [{"error": "null_pointer"}, {"error": "null_pointer"}, {"error": "null_pointer"}]},
    ),
    vector_of(
        "operator_state_backend",
        "an element that is none changes nothing",
        {
            "ops": [
                {"op": "get_list", "name": "a"},
                {"op": "add", "name": "a", "values": [1]},
                {"op": "add", "name": "a", "values": [2, None], "expect_error": "null_pointer"},
                {"op": "mutate_each", "name": "a", "plus": 10},
            ]
        },
        {"values": {"a": [11]}},
    ),
    vector_of(
        "keyed_state_merge_namespaces",
        "lists",
        {
            "state_type": "list",
            "target_namespace": 1,
            "source_namespaces": [2, 3],
            "per_key_namespace_adds": {"a": {"1": [3], "2": [1, 2], "3": []}, "b": {"1": [], "2": [], "3": []}},
        },
        {"target_value": {"a": [1, 2, 3], "b": None}, "source_namespaces_empty_after": True},
    ),
    vector_of(
        "empty_snapshot",
        "no keyed state",
        {"backend": "keyed", "registered_states": 0, "entries": 0},
        {"handle": None, "restored_entries": 0},
    ),
    vector_of(
        "empty_snapshot",
        "no operator state",
        {"backend": "operator", "registered_states": 0, "entries": 0},
        {"handle": None, "restored_entries": 0},
    ),
    vector_of(
        "empty_snapshot",
        "keyed state",
        {"backend": "keyed", "registered_states": 2, "entries": 3},
        {"handle": "present", "restored_entries": 3},
    ),
]

TIMERS = [
    vector_of(
        "timer_service",
        "processing timers that are deleted and registered by others",
        {
            "ops": [
                {"op": "key", "key": 1},
                {"op": "register_processing", "ns": "n", "time": 20},
                {"op": "register_processing", "ns": "n", "time": 10},
                {"op": "delete_processing", "ns": "n", "time": 10},
                {"op": "set_processing_time", "time": 10, "callback_registers": 30},
                {"op": "set_processing_time", "time": 25, "callback_registers": 30},
                {"op": "set_processing_time", "time": 30, "callback_registers": None},
            ]
        },
        {
            "per_op": [
                {"physical_timer": None},
                {"physical_timer": 20},
                {"physical_timer": 10, "processing_timers": 2},
                {"physical_timer": 10, "processing_timers": 1},
                {"physical_timer": 20, "fired": []},
                {"physical_timer": 30, "fired": [[20, 1, "n"]]},
                {"physical_timer": None, "fired": [[30, 1, "n"]], "processing_timers": 0},
            ]
        },
    ),
]

TIMERS += [
    vector_of(
        "timer_service",
        "a deleted timer leaves the wake-up until an earliest one moves it",
        {
            "ops": [
                {"op": "key", "key": 1},
                {"op": "register_processing", "ns": "n", "time": 20},
                {"op": "register_processing", "ns": "n", "time": 10},
                {"op": "delete_processing", "ns": "n", "time": 10},
                {"op": "register_processing", "ns": "n", "time": 15},
                {"op": "delete_processing", "ns": "n", "time": 15},
                {"op": "delete_processing", "ns": "n", "time": 20},
                {"op": "register_processing", "ns": "n", "time": 20},
                {"op": "set_processing_time", "time": 19},
                {"op": "set_processing_time", "time": 20},
            ]
        },
        {
            "per_op": [
                {"physical_timer": None},
                {"physical_timer": 20},
                {"physical_timer": 10},
                {"physical_timer": 10, "processing_timers": 1},
                {"physical_timer": 15},
                {"physical_timer": 15},
                {"physical_timer": 15, "processing_timers": 0},
                {"physical_timer": 20},
                {"physical_timer": 20, "fired": []},
                {"physical_timer": None, "fired": [[20, 1, "n"]]},
            ]
        },
    ),
    vector_of(
        "key_grouped_priority_queue",
        "numbers are of 32 bits, as everywhere in these vectors",
        {"max_parallelism": 10, "elements": [[-5, 2], [7, 1]], "order_by": "priority ascending"},
        {"subset_for_key_group": {"0": [[-5, 2]], "1": [[7, 1]]}, "then_peek": [7, 1]},
    ),
]

SNAPSHOTS = [
    vector_of(
        "full_snapshot_merge_order",
        "keys may be long, and their bytes above all letters",
        {"states": [[[1, "\u00e9"], [1, "a key of more than eight bytes"], [1, ""]], [[0, "\u00e9"], [1, "z"]]]},
        {
            "entries": [
                {"key_group": group, "state_id": state, "key": key, "new_key_group": at_group, "new_state": at_state}
                for group, state, key, at_group, at_state in (
                    (0, 1, "\u00e9", True, True),
                    (1, 0, "", True, True),
                    (1, 0, "a key of more than eight bytes", False, False),
                    (1, 0, "\u00e9", False, False),
                    (1, 1, "z", False, True),
                )
            ]
        },
    ),
    vector_of(
        "async_snapshot_lifecycle",
        "the backend is closed",
        {"events": ["run", "close_owner_registry"]},
        {
            "result": "cancelled",
            "invocation_order": ["call", "cancel", "cleanup"],
            "sync_resources_released_times": 1,
            "registered_closeables_left_in_owner": 0,
        },
    ),
    vector_of(
        "full_snapshot_merge_order",
        "groups, then states, then keys",
        {"states": [[[1, "b"], [0, "z"], [1, "aa"]], [], [[1, "a"], [2, ""]]]},
        {
            "entries": [
                {"key_group": group, "state_id": state, "key": key, "new_key_group": new_group, "new_state": new_state}
                for group, state, key, new_group, new_state in [
                    (0, 0, "z", True, True),
                    (1, 0, "aa", True, False),
                    (1, 0, "b", False, False),
                    (1, 2, "a", False, True),
                    (2, 2, "", True, False),
                ]
            ]
        },
    ),
]


def _ttl(name: str, update_type: str, visibility: str, *events: tuple[int, int | None, int | None]) -> Vector:
    """Events are (time, value to write or ``None`` to read, expected result)."""
    given = [
        {"op": "read", "time": time} if value is None else {"op": "update", "time": time, "value": value}
        for time, value, _ in events
    ]
    setting = {"ttl_ms": 100, "update_type": update_type, "visibility": visibility, "events": given}
    return vector_of("state_ttl", name, setting, {"read_results": [result for _, _, result in events]})


_WRITES, _READS = "OnCreateAndWrite", "OnReadAndWrite"
_NEVER, _ONCE = "NeverReturnExpired", "ReturnExpiredIfNotCleanedUp"

TTL = [
    _ttl("at its end a value has expired", _WRITES, _NEVER, (0, 1, None), (99, None, 1), (100, None, None)),
    _ttl("reading does not put off the end", _WRITES, _NEVER, (0, 1, None), (99, None, 1), (101, None, None)),
    _ttl("reading puts off the end", _READS, _NEVER, (0, 1, None), (99, None, 1), (198, None, 1), (298, None, None)),
    _ttl("writing puts off the end", _WRITES, _NEVER, (0, 1, None), (99, 2, None), (198, None, 2), (199, None, None)),
    _ttl("what has expired can be written anew", _WRITES, _NEVER, (0, 1, None), (500, 2, None), (599, None, 2)),
    _ttl("what was returned late is not refreshed", _READS, _ONCE, (0, 1, None), (100, None, 1), (100, None, None)),
    _ttl("nothing was ever written", _READS, _ONCE, (7, None, None), (8, 3, None), (9, None, 3)),
    _ttl(
        "the end of time is not passed",
        _WRITES,
        _NEVER,
        (2**63 - 50, 1, None),
        (2**63 - 2, None, 1),
        (2**63 - 1, None, None),
    ),
]


def _copies(name: str, *steps: tuple[Any, ...]) -> Vector:
    """Steps are (op, key or name, object put or label expected)."""
    ops: list[Vector] = []
    expected: list[str | None] = []
    for op, what, *rest in steps:
        if op == "put":
            ops.append({"op": op, "key": int(what), "object": rest[0]})
        elif op == "get":
            ops.append({"op": op, "key": int(what)})
        else:
            ops.append({"op": op, "name": what})
        expected.append(rest[0] if op == "get" else None)
    return vector_of("heap_copy_on_write", name, {"ops": ops}, {"returned_object": expected})


COPIES = [
    _copies(
        "a put makes no copy for the program",
        ("put", "1", "a"),
        ("snapshot", "s"),
        ("put", "1", "b"),
        ("get", "1", "b"),
        ("snapshot", "t"),
        ("get", "1", "copy1"),
        ("put", "1", "c"),
        ("get", "1", "c"),
    ),
    _copies(
        "a value that is newer than the snapshot, where nothing was before",
        ("put", "1", "a"),
        ("put", "2", "b"),
        ("snapshot", "s"),
        ("get", "3", None),
        ("snapshot", "t"),
        ("put", "3", "c"),
        ("get", "3", "c"),
        ("snapshot", "u"),
        ("get", "3", "copy1"),
        ("get", "2", "copy2"),
    ),
    _copies(
        "two snapshots of one state need one copy",
        ("put", "1", "a"),
        ("snapshot", "s"),
        ("snapshot", "t"),
        ("get", "1", "copy1"),
        ("get", "1", "copy1"),
        ("release", "t"),
        ("release", "s"),
        ("get", "1", "copy1"),
        ("snapshot", "u"),
        ("get", "1", "copy2"),
    ),
    _copies(
        "the older snapshot outlives the newer",
        ("put", "1", "a"),
        ("put", "2", "b"),
        ("snapshot", "s"),
        ("get", "1", "copy1"),
        ("snapshot", "t"),
        ("release", "t"),
        ("get", "1", "copy1"),
        ("get", "2", "copy2"),
        ("release", "s"),
        ("get", "2", "copy2"),
    ),
]

MOVED = [
    vector_of(
        "operator_state_redistribution",
        "the order tells of more than is there, and of nothing without items; a subtask may have reported nothing",
        {
            "old": [
                None,
                [
                    {
                        "handle": "h",
                        "states": {
                            "u": {"mode": "UNION", "offsets": []},
                            "none": {"mode": "SPLIT_DISTRIBUTE", "offsets": []},
                            "b": {"mode": "SPLIT_DISTRIBUTE", "offsets": [1, 2, 3]},
                            "a": {"mode": "SPLIT_DISTRIBUTE", "offsets": [7]},
                        },
                    }
                ],
                [],
            ],
            "new_parallelism": 2,
            "split_state_order": ["b", "u", "a"],
        },
        {"new": [{"h": {"u": [], "b": [1, 2]}}, {"h": {"u": [], "b": [3], "a": [7]}}]},
    ),
]

STATES: list[Vector] = [*MOVED, *STATE_OPS, *TIMERS, *SNAPSHOTS, *TTL, *COPIES]
