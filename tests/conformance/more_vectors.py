"""Further vectors of the same formats, written from the rules: operations and fields that the recorded ones miss."""

from __future__ import annotations

from typing import Any

from tests.conformance.compare import Vector

UNLIMITED = 2**31 - 1


def _vector(kind: str, name: str, given: Vector, expect: Vector) -> Vector:
    return {"name": f"{kind}: {name}", "kind": kind, "input": given, "expect": expect}


def _tasks(*names: str) -> list[Vector]:
    return [{"id": name, "source": True} for name in names]


def _sequence(name: str, steps: list[Vector], *checks: Vector, tasks: Any = None, **config: Any) -> Vector:
    given = {"config": config, "tasks": tasks or _tasks("A"), "steps": steps}
    return _vector("coordinator_sequence", name, given, {"checks": list(checks)})


def _trigger(label: str, kind: str = "checkpoint", **fields: Any) -> Vector:
    return {"op": "trigger", "kind": kind, "label": label, **fields}


def _ack(cp: int, task: str = "A", **fields: Any) -> Vector:
    return {"op": "ack", "cp": cp, "task": task, **fields}


def _decline(cp: int, task: str = "A", reason: str = "CHECKPOINT_DECLINED") -> Vector:
    return {"op": "decline", "cp": cp, "task": task, "reason": reason}


def _uploads(*names: str, private: str | None = None) -> Vector:
    shared = [{"key": name, "handle": name} for name in names]
    return {"shared": shared} if private is None else {"private": [private], "shared": shared}


SEQUENCES = [
    _sequence(
        "an unaligned savepoint waits, but before all checkpoints",
        [
            {"op": "start_scheduler", "delay": 10},
            {"op": "advance", "ms": 40},
            _trigger("s", "savepoint"),
            _decline(1, reason="CHECKPOINT_DECLINED"),
        ],
        {"after_step": 2, "pending": [1], "queued": 4},
        {"after_step": 3, "pending": [2], "queued": 3, "trigger_types": {"A": ["CHECKPOINT", "SAVEPOINT"]}},
        unaligned=True,
        interval_ms=10,
        tolerable_failed=UNLIMITED,
    ),
    _sequence(
        "a periodic request that comes too early is dropped and the timer moved",
        [
            {"op": "start_scheduler", "delay": 0},
            {"op": "advance", "ms": 0},
            _trigger("p", periodic=True),
            _ack(1),
            {"op": "advance", "ms": 999},
            {"op": "advance", "ms": 1},
        ],
        {"after_step": 2, "queued": 1, "requests": {"p": "pending"}},
        {"after_step": 3, "queued": 0, "requests": {"p": "failed:MINIMUM_TIME_BETWEEN_CHECKPOINTS"}},
        {"after_step": 4, "triggered": {"A": [1]}},
        {"after_step": 5, "triggered": {"A": [1, 2]}},
        interval_ms=5000,
        min_pause_ms=1000,
    ),
    _sequence(
        "a clock near zero makes the first periodic request wait for the pause",
        [{"op": "start_scheduler", "delay": 1}, {"op": "advance", "ms": 1}, {"op": "advance", "ms": 10}],
        {"after_step": 1, "triggered": {"A": []}, "pending": [], "queued": 0},
        {"after_step": 2, "triggered": {"A": [1]}},
        start_ms=989,
        interval_ms=5000,
        min_pause_ms=1000,
    ),
    _sequence(
        "completion aborts older ones first and tells the task both",
        [_trigger("a"), _trigger("b"), _ack(2)],
        {
            "after_step": 2,
            "pending": [],
            "completed": [2],
            "abort_notifications": {"A": [[1, 2]]},
            "complete_notifications": {"A": [[2, -1]]},
            "requests": {"a": "failed:CHECKPOINT_SUBSUMED", "b": "completed"},
        },
        max_concurrent=2,
    ),
    _sequence(
        "expired ids are remembered, sixteen of them",
        [step for number in range(17) for step in (_trigger(f"r{number}"), {"op": "advance", "ms": 5})]
        + [_ack(1), _ack(2, state={"private": ["late"]}), _ack(99)],
        {"after_step": 33, "expired": list(range(2, 18))},
        {"after_step": 34, "return": False},
        {"after_step": 35, "return": True, "discarded": ["late"]},
        {"after_step": 36, "return": False},
        timeout_ms=5,
        tolerable_failed=UNLIMITED,
    ),
    _sequence(
        "the timeout runs from the registration, not from the request",
        [_trigger("a"), _trigger("b"), {"op": "advance", "ms": 100}, {"op": "advance", "ms": 99}],
        {"after_step": 2, "requests": {"a": "failed:CHECKPOINT_EXPIRED"}, "pending": [2]},
        {"after_step": 3, "requests": {"b": "pending"}, "expired": [1]},
        timeout_ms=100,
        tolerable_failed=UNLIMITED,
    ),
    _sequence(
        "a decline from anybody aborts, one for an unknown id does nothing",
        [_trigger("a"), _decline(7), _decline(1, task="stranger")],
        {"after_step": 1, "pending": [1]},
        {"after_step": 2, "pending": [], "job_failures": 1},
    ),
    _sequence(
        "starting anew aborts what is pending",
        [{"op": "start_scheduler", "delay": 10}, _trigger("a"), {"op": "start_scheduler", "delay": 10}],
        {"after_step": 2, "pending": [], "requests": {"a": "failed:CHECKPOINT_COORDINATOR_SUSPEND"}},
        interval_ms=10,
    ),
    _sequence(
        "a plain savepoint notifies nobody, subsumes nothing and resets the failures",
        [
            _trigger("a"),
            _decline(1),
            _trigger("b"),
            _trigger("s", "savepoint"),
            _ack(3),
            _decline(2),
            _trigger("c"),
            _decline(4),
        ],
        {"after_step": 4, "pending": [2], "completed": [], "complete_notifications": {"A": []}},
        {"after_step": 7, "job_failures": 0, "pending": []},
        tolerable_failed=1,
        max_concurrent=2,
    ),
    _sequence(
        "late uploads are registered, those of a savepoint are its own",
        [
            _trigger("a"),
            _decline(1),
            _ack(1, state=_uploads("late", private="p")),
            _trigger("s", "savepoint"),
            _ack(2, "B", state=_uploads("own")),
            _decline(2),
            _trigger("b"),
            _ack(3, state={"shared": [{"key": "late", "placeholder": True}]}),
            _ack(3, "B"),
        ],
        {"after_step": 2, "return": False, "discarded": ["p"]},
        {"after_step": 5, "discarded": ["own", "p"]},
        {"after_step": 8, "completed": [3], "discarded": ["own", "p"]},
        tasks=_tasks("A", "B"),
        tolerable_failed=UNLIMITED,
    ),
    _sequence(
        "a failing store discards private files and keeps the shared ones",
        [_trigger("a"), _ack(1, state=_uploads("s", private="p"))],
        {"after_step": 1, "discarded": ["p"], "requests": {"a": "failed:FINALIZE_CHECKPOINT_FAILURE"}},
        store_fails=True,
    ),
    _sequence(
        "a finished task is neither triggered nor waited for",
        [{"op": "set_task", "task": "A", "state": "FINISHED"}, _trigger("a"), _ack(1, "B")],
        {"after_step": 1, "triggered": {"A": [], "B": [1]}},
        {"after_step": 2, "completed": [1], "complete_notifications": {"A": [], "B": [[1, -1]]}},
        tasks=[{"id": "A", "source": True}, {"id": "B", "source": False}],
    ),
    _sequence(
        "stopping without draining is a savepoint that notifies",
        [_trigger("s", "stop_no_drain"), _ack(1)],
        {"after_step": 1, "completed": [], "complete_notifications": {"A": [[1, -1]]}, "requests": {"s": "completed"}},
        {"after_step": 1, "trigger_types": {"A": ["SAVEPOINT"]}},
    ),
    _sequence(
        "an input or output error before the id counts",
        [{"op": "fail_next_trigger", "reason": "IO_EXCEPTION"}, _trigger("a"), _trigger("b", type="full")],
        {"after_step": 1, "job_failures": 1, "requests": {"a": "failed:IO_EXCEPTION"}, "triggered": {"A": []}},
        {"after_step": 2, "pending": [1], "trigger_types": {"A": ["FULL_CHECKPOINT"]}},
    ),
    _sequence(
        "a subsumed checkpoint is told when it was ours to delete",
        [_trigger("a"), _ack(1), _trigger("b"), _ack(2), {"op": "shutdown"}, _trigger("c")],
        {"after_step": 3, "complete_notifications": {"A": [[1, -1], [2, 1]]}, "completed": [2]},
        {"after_step": 5, "requests": {"c": "failed:CHECKPOINT_COORDINATOR_SHUTDOWN"}},
    ),
    _sequence(
        "a stranger's state is deleted also after the completion",
        [_trigger("a"), _ack(1, state={"private": ["mine"]}), _ack(1, "stranger", state={"private": ["theirs"]})],
        {"after_step": 2, "return": False, "discarded": ["theirs"], "completed": [1]},
    ),
    _sequence(
        "a store that fails is no business of savepoints",
        [
            _trigger("s", "savepoint"),
            _ack(1, state={"private": ["of the user"]}),
            _trigger("c"),
            _ack(2, state={"private": ["p"]}),
        ],
        {"after_step": 1, "requests": {"s": "completed"}, "discarded": [], "job_failures": 0},
        {"after_step": 3, "requests": {"c": "failed:FINALIZE_CHECKPOINT_FAILURE"}, "discarded": ["p"]},
        store_fails=True,
    ),
    _sequence(
        "one step may fail the job twice",
        [_trigger("a"), _trigger("b"), {"op": "abort_all", "reason": "CHECKPOINT_EXPIRED"}],
        {"after_step": 2, "job_failures": 2, "pending": [], "abort_notifications": {"A": [[1, 0], [2, 0]]}},
        max_concurrent=2,
    ),
    _sequence(
        "a task that is not deployed yet is waited for by nobody",
        [
            _trigger("a"),
            {"op": "set_task", "task": "A", "state": "INITIALIZING"},
            _trigger("b"),
            {"op": "set_task", "task": "A", "state": "RUNNING"},
            _trigger("c"),
        ],
        {"after_step": 0, "requests": {"a": "failed:NOT_ALL_REQUIRED_TASKS_RUNNING"}},
        {"after_step": 2, "requests": {"b": "failed:NOT_ALL_REQUIRED_TASKS_RUNNING"}},
        {"after_step": 4, "pending": [1], "triggered": {"A": [1], "B": []}},
        tasks=[{"id": "A", "source": True, "state": "RECONCILING"}, {"id": "B"}],
    ),
    _sequence(
        "another state for a completed checkpoint is part of nothing",
        [
            _trigger("a"),
            _ack(1, state={"private": ["taken"]}),
            _ack(1, state={"private": ["taken"]}),
            _ack(1, state=_uploads("kept", private="other")),
        ],
        {"after_step": 2, "completed": [1], "return": False, "discarded": []},
        {"after_step": 3, "return": False, "discarded": ["other"]},
    ),
]
REGISTRY = [
    _vector(
        "shared_state_registry",
        "the flag of a restored creator",
        {
            "ops": [
                {
                    "op": "restored",
                    "checkpoint": 1,
                    "mode": "LEGACY",
                    "sharing": "FORWARD",
                    "entries": [{"key": "a", "handle": "A"}],
                },
                {"op": "unregister_unused", "lowest_valid": 1},
                {"op": "register", "key": "a", "placeholder": True, "checkpoint": 2, "prevent_discard_creator": True},
                {"op": "unregister_unused", "lowest_valid": 2},
                {"op": "unregister_unused", "lowest_valid": 3},
            ]
        },
        {
            "per_op": [
                {},
                {"discarded": [], "checkpoints_in_use": []},
                {"returned": "A"},
                {"discarded": [], "checkpoints_in_use": [1]},
                {"discarded": [], "checkpoints_in_use": []},
            ]
        },
    ),
]

STATE_OPS = [
    _vector(
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
    _vector(
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
    _vector(
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
    _vector(
        "empty_snapshot",
        "no keyed state",
        {"backend": "keyed", "registered_states": 0, "entries": 0},
        {"handle": None, "restored_entries": 0},
    ),
    _vector(
        "empty_snapshot",
        "no operator state",
        {"backend": "operator", "registered_states": 0, "entries": 0},
        {"handle": None, "restored_entries": 0},
    ),
    _vector(
        "empty_snapshot",
        "keyed state",
        {"backend": "keyed", "registered_states": 2, "entries": 3},
        {"handle": "present", "restored_entries": 3},
    ),
]

TIMERS = [
    _vector(
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

SNAPSHOTS = [
    _vector(
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
    _vector(
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
    _vector(
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

def _local(name: str, stored: list[int], op: str, checkpoint: int | None, expect: Vector, **flags: bool) -> Vector:
    return _vector("local_state_store", name, {"stored": stored, "op": op, "checkpoint": checkpoint, **flags}, expect)


def _alternatives(
    name: str, kind: str, remote: list[str], ids: Vector, local: list[list[str]], expect: list[list[str]]
) -> Vector:
    given = {"state_kind": kind, "remote": remote, "ids": ids, "alternatives_high_to_low": local}
    return _vector("restore_alternatives", name, given, {"options_as_sets": expect})


LOCAL_RECOVERY = [
    _local("a stored one is found", [1, 2], "retrieve", 2, {"returned": 2, "kept": [1, 2], "discarded": []}),
    _local("what was never stored is not", [1, 3], "retrieve", 2, {"returned": None, "local_directory_exists": False}),
    _local(
        "copies are used though none are made any more",
        [1],
        "retrieve",
        1,
        {"returned": 1},
        local_backup=False,
        local_recovery=True,
    ),
    _local("neither made nor used", [1], "retrieve", 1, {"returned": None}, local_backup=False, local_recovery=False),
    _local("an older one is confirmed late", [3, 4], "confirm", 2, {"kept": [3, 4], "discarded": []}),
    _local("one that left nothing is confirmed", [3, 4, 6], "confirm", 5, {"kept": [6], "discarded": [3, 4]}),
    _local("one that left nothing is aborted", [3, 4], "abort", 5, {"kept": [3, 4], "discarded": []}),
    _local("the restored one is not there", [3, 4], "prune_all_except", 5, {"kept": [], "discarded": [3, 4]}),
    _local(
        "only the damaged one goes",
        [0, 7],
        "corrupt_then_retrieve_in_new_process",
        7,
        {"returned": None, "local_directory_exists": False, "kept": [0], "discarded": [7]},
    ),
    _local("none is kept beside others", [1], "store_null_then_retrieve", 3, {"returned": None, "kept": [1]}),
    _alternatives(
        "two of three key group ranges are here",
        "keyed",
        ["r0", "r1", "r2"],
        {"r0": 0, "r1": 1, "r2": 2, "l1": 1, "l2": 2, "l9": 9},
        [["l2", "l9"], ["l1"]],
        [["r0", "l1", "l2"], ["r0", "r1", "r2"]],
    ),
    _alternatives(
        "the better of two copies is taken",
        "keyed",
        ["r0"],
        {"r0": "0-63", "good": "0-63", "worse": "0-63"},
        [["good"], ["worse"]],
        [["good"], ["r0"]],
    ),
    _alternatives("other key groups are no copy", "keyed", ["r0"], {"r0": 0, "l1": 1}, [["l1"]], [["r0"]]),
    _alternatives("nothing is here", "keyed", ["r0"], {"r0": 0}, [], [["r0"]]),
    _alternatives(
        "every copy that fits is tried",
        "operator",
        ["r"],
        {"r": 0, "a": 0, "b": 0},
        [["a"], ["b"]],
        [["a"], ["b"], ["r"]],
    ),
    _alternatives("other offsets are another state", "operator", ["r"], {"r": 0, "l": 1}, [["l"]], [["r"]]),
    _alternatives(
        "two handles tell of rescaling", "operator", ["r", "s"], {"r": 0, "s": 1, "l": 0}, [["l"]], [["r", "s"]]
    ),
    _alternatives("a pair is no copy of one", "operator", ["r"], {"r": 0, "k": 0, "l": 0}, [["k", "l"]], [["r"]]),
    _alternatives("no operator state", "operator", [], {"l": 0}, [["l"]], [[]]),
    *(
        _vector("restore_procedure", f"options {', '.join(options)}", {"options": options}, expect)
        for options, expect in (
            (["works"], {"tried": [0], "restored_from": 0}),
            (["fails"], {"tried": [0], "error": "could_not_restore"}),
            (["fails", "fails", "works"], {"tried": [0, 1, 2], "restored_from": 2}),
            (["fails", "blocks_then_task_cancelled", "works"], {"tried": [0, 1], "error": "cancelled"}),
            (["fails", "blocks_then_task_cancelled"], {"tried": [0, 1], "error": "cancelled"}),
        )
    ),
]

OTHERS = [
    _vector(
        "stream_handle_kind",
        "a small buffer does not make a file of what fits into the metadata",
        {"bytes_written": 300, "buffer_size": 100, "inline_threshold": 300},
        {"handle": "INLINE_BYTES"},
    ),
    _vector(
        "checkpoint_plan",
        "nothing begins while a task is only scheduled",
        {
            "vertices": [{"parallelism": 2, "finished": []}, {"parallelism": 1, "finished": [], "state": "SCHEDULED"}],
            "edges": [],
            "allow_checkpoints_after_tasks_finished": True,
        },
        {"error": "NOT_ALL_REQUIRED_TASKS_RUNNING"},
    ),
    _vector(
        "operator_state_backend",
        "a list without elements is restored as one",
        {
            "ops": [
                {"op": "get_list", "name": "x"},
                {"op": "mutate_each", "name": "x", "plus": 1},
                {"op": "snapshot_sync_part"},
                {"op": "add", "name": "x", "values": [1]},
                {"op": "snapshot_async_part"},
                {"op": "restore_from_snapshot"},
            ]
        },
        {"values": {"x": []}, "registered_names": 1},
    ),
    _vector(
        "task_checkpoint_protocol",
        "a barrier that comes again does not end the snapshot under way, and notes have no order",
        {
            "events": [
                {"e": "checkpoint_state", "cp": 1, "async_blocks": True},
                {"e": "checkpoint_state", "cp": 1},
                {"e": "notify_aborted", "cp": 9},
                {"e": "notify_aborted", "cp": 8},
                {"e": "notify_aborted", "cp": 1},
            ]
        },
        {"acked": [], "async_cancelled": [1], "state_snapshotted": [1], "remembered_aborts_after": [8, 9]},
    ),
    *(
        _vector(
            "discard_policy",
            policy,
            {"policy": policy},
            {
                "discard_when": {
                    "FINISHED": True,
                    "CANCELED": policy != "RETAIN_ON_CANCELLATION",
                    "FAILED": policy == "NEVER_RETAIN_AFTER_TERMINATION",
                    "SUSPENDED": policy != "RETAIN_ON_CANCELLATION",
                    "subsumed": True,
                }
            },
        )
        for policy in ("NEVER_RETAIN_AFTER_TERMINATION", "RETAIN_ON_FAILURE", "RETAIN_ON_CANCELLATION")
    ),
    *(
        _vector(
            "partitioner_state_mapper",
            partitioner,
            {"partitioner": partitioner},
            {
                "downstream_mapper": downstream,
                "upstream_mapper": "UNSUPPORTED" if downstream == "UNSUPPORTED" else "ARBITRARY",
                "unaligned_disabled_by_default": downstream == "UNSUPPORTED",
            },
        )
        for partitioner, downstream in (
            ("SHUFFLE", "ROUND_ROBIN"),
            ("GLOBAL", "FIRST"),
            ("CUSTOM", "FULL"),
            ("BROADCAST", "UNSUPPORTED"),
            ("RESCALE", "UNSUPPORTED"),
        )
    ),
    _vector(
        "subtask_state_mapping",
        "the first takes all",
        {"mapper": "FIRST", "old_parallelism": 2, "new_parallelism": 2},
        {"new_to_old": [[0, 1], []], "ambiguous_old": []},
    ),
    _vector(
        "checkpoint_plan",
        "a task that does not run",
        {
            "vertices": [{"parallelism": 1, "finished": []}, {"parallelism": 1, "finished": [], "state": "DEPLOYING"}],
            "edges": [],
            "allow_checkpoints_after_tasks_finished": True,
        },
        {"error": "NOT_ALL_REQUIRED_TASKS_RUNNING"},
    ),
    _vector(
        "finalize_finished_states",
        "operators that have finished do not mark their tasks",
        {
            "vertices": [
                {
                    "id": "v",
                    "parallelism": 2,
                    "finished_subtasks": [],
                    "operators_finished_subtasks": [0, 1],
                    "uses_union_list_state": True,
                }
            ]
        },
        {"operator_status": {}, "subtask_marked_finished": {}},
    ),
    *(
        _vector(
            "restore_max_parallelism_check",
            name,
            {
                "state_max_parallelism": 64,
                "vertex_max_parallelism": 128,
                "vertex_max_auto_derived": derived,
                "vertex_parallelism": parallelism,
            },
            {"outcome": outcome},
        )
        for name, derived, parallelism, outcome in (
            ("the number of the state wins", True, 3, "vertex max parallelism becomes 64"),
            ("an explicit other one", False, 3, "illegal_state"),
            ("more subtasks than key groups", True, 65, "illegal_state"),
        )
    ),
    *(
        _vector("stop_with_savepoint", f"{savepoint} {ends}", {"savepoint": savepoint, "executions": ends}, expect)
        for savepoint, ends, expect in (
            (
                "completed",
                ["FINISHED", "FAILED"],
                {
                    "result": "error",
                    "global_failover": True,
                    "scheduler_restarted": False,
                    "savepoint_discarded": False,
                },
            ),
            ("failed", ["FAILED"], {"result": "error", "global_failover": False, "scheduler_restarted": True}),
        )
    ),
    *(
        _vector(
            "storage_layout",
            f"{location} {scope}",
            {"location": location, "scope": scope, "checkpoint_id": 17},
            {"path": path},
        )
        for location, scope, path in (
            ("checkpoint", "EXCLUSIVE", "<base>/<job-id>/chk-17"),
            ("checkpoint", "SHARED", "<base>/<job-id>/shared"),
            ("checkpoint", "TASK_OWNED", "<base>/<job-id>/taskowned"),
            ("savepoint", "EXCLUSIVE", "<target>/savepoint-<job6>-<rand>"),
            ("savepoint", "METADATA", "<target>/savepoint-<job6>-<rand>/_metadata"),
        )
    ),
    *(
        _vector(
            "stream_handle_kind",
            f"{written} bytes",
            {"bytes_written": written, "buffer_size": 1024, "inline_threshold": 512},
            {"handle": handle},
        )
        for written, handle in ((0, None), (513, "FILE"), (511, "INLINE_BYTES"))
    ),
    _vector(
        "task_checkpoint_protocol",
        "a lost completion is repaired by an abort",
        {
            "events": [
                {"e": "checkpoint_state", "cp": 1},
                {"e": "notify_aborted", "cp": 2, "latest_completed": 1},
                {"e": "notify_complete", "cp": 1},
                {"e": "checkpoint_state", "cp": 3, "type": "CHECKPOINT", "alignment": "UNALIGNED"},
            ]
        },
        {
            "operator_calls": [["complete", 1], ["aborted", 2]],
            "remembered_aborts_after": [2],
            "barrier_is_priority": True,
            "acked": [1, 3],
            "state_snapshotted": [1, 3],
            "emitted": [{"type": "BARRIER", "cp": 1}, {"type": "BARRIER", "cp": 3}],
            "async_cancelled": [],
            "state_manager_told_aborted": [2],
        },
    ),
    _vector(
        "request_decider",
        "the pause drops only the head and moves the timer",
        {
            "config": {"max_concurrent": 1, "min_pause_ms": 10},
            "steps": [
                {
                    "op": "submit",
                    "request": {"id": "p", "savepoint": False, "forced": False, "periodic": True, "ts": 0},
                    "now_ms": 12,
                    "last_completion_ms": 5,
                }
            ],
        },
        {
            "per_step": [
                {
                    "chosen": None,
                    "failed": {"p": "MINIMUM_TIME_BETWEEN_CHECKPOINTS"},
                    "reschedule_after_ms": 3,
                    "queue": [],
                }
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
    return _vector("state_ttl", name, setting, {"read_results": [result for _, _, result in events]})


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


def _copies(name: str, *steps: tuple[str, ...]) -> Vector:
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
    return _vector("heap_copy_on_write", name, {"ops": ops}, {"returned_object": expected})


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

STATES = [*STATE_OPS, *TIMERS, *SNAPSHOTS, *TTL, *COPIES]

MORE_VECTORS: list[Vector] = [*SEQUENCES, *REGISTRY, *STATES, *LOCAL_RECOVERY, *OTHERS]
