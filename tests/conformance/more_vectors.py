"""Further vectors of the same formats, written from the rules: operations and fields that the recorded ones miss."""

from __future__ import annotations

from typing import Any

from tests.conformance.compare import Vector
from tests.conformance.local_recovery_vectors import LOCAL_RECOVERY
from tests.conformance.state_vectors import STATES, vector_of

UNLIMITED = 2**31 - 1


def _tasks(*names: str) -> list[Vector]:
    return [{"id": name, "source": True} for name in names]


def _sequence(name: str, steps: list[Vector], *checks: Vector, tasks: Any = None, **config: Any) -> Vector:
    given = {"config": config, "tasks": tasks or _tasks("A"), "steps": steps}
    return vector_of("coordinator_sequence", name, given, {"checks": list(checks)})


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
    vector_of(
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

OTHERS = [
    vector_of(
        "stream_handle_kind",
        "a small buffer does not make a file of what fits into the metadata",
        {"bytes_written": 300, "buffer_size": 100, "inline_threshold": 300},
        {"handle": "INLINE_BYTES"},
    ),
    vector_of(
        "checkpoint_plan",
        "nothing begins while a task is only scheduled",
        {
            "vertices": [{"parallelism": 2, "finished": []}, {"parallelism": 1, "finished": [], "state": "SCHEDULED"}],
            "edges": [],
            "allow_checkpoints_after_tasks_finished": True,
        },
        {"error": "NOT_ALL_REQUIRED_TASKS_RUNNING"},
    ),
    vector_of(
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
    vector_of(
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
        vector_of(
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
        vector_of(
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
    vector_of(
        "subtask_state_mapping",
        "the first takes all",
        {"mapper": "FIRST", "old_parallelism": 2, "new_parallelism": 2},
        {"new_to_old": [[0, 1], []], "ambiguous_old": []},
    ),
    vector_of(
        "checkpoint_plan",
        "a task that does not run",
        {
            "vertices": [{"parallelism": 1, "finished": []}, {"parallelism": 1, "finished": [], "state": "DEPLOYING"}],
            "edges": [],
            "allow_checkpoints_after_tasks_finished": True,
        },
        {"error": "NOT_ALL_REQUIRED_TASKS_RUNNING"},
    ),
    vector_of(
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
        vector_of(
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
        vector_of("stop_with_savepoint", f"{savepoint} {ends}", {"savepoint": savepoint, "executions": ends}, expect)
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
        vector_of(
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
        vector_of(
            "stream_handle_kind",
            f"{written} bytes",
            {"bytes_written": written, "buffer_size": 1024, "inline_threshold": 512},
            {"handle": handle},
        )
        for written, handle in ((0, None), (513, "FILE"), (511, "INLINE_BYTES"))
    ),
    vector_of(
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
    vector_of(
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


MORE_VECTORS: list[Vector] = [*SEQUENCES, *REGISTRY, *STATES, *LOCAL_RECOVERY, *OTHERS]
