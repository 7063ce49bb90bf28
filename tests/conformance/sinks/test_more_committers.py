"""Further vectors about committers, writers and compaction, worked out from the rules, for what the recorded ones leave
out; and what their replays refuse.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.compare import MalformedVector, Vector
from tests.conformance.sinks import SINK_KINDS

CONFIG = {"version": "2.x", "batch_mode": False, "checkpointing": True, "max_retries": 10, "committer": "accept_all"}


def summary(checkpoint: Any, subtask: int = 0, count: int = 1) -> Vector:
    return {"op": "summary", "checkpoint": checkpoint, "subtask": subtask, "count": count}


def committable(value: Any, checkpoint: Any, subtask: int = 0) -> Vector:
    return {"op": "committable", "value": value, "checkpoint": checkpoint, "subtask": subtask}


def notify(known: int) -> Vector:
    return {"op": "notify_complete", "id": known}


def committer(events: list[Vector], expect: Vector, **config: Any) -> Vector:
    return {"kind": "sink_v2_committer", "input": {"config": CONFIG | config, "events": events}, "expect": expect}


def global_committer(commit_on_input: bool, events: list[Vector], commits: list[Vector]) -> Vector:
    given = {"commit_on_input": commit_on_input, "events": events}
    return {"kind": "global_committer", "input": given, "expect": {"commits": commits}}


def writer(events: list[Vector], expect: Vector, **given: Any) -> Vector:
    settings = {"rolling_policy": {"type": "default"}, "bucket_check_interval": 10, "resume_supported": True} | given
    events = [{"task": "A", **event} for event in events]
    return {"kind": "file_sink_writer", "input": {**settings, "events": events}, "expect": expect}


END = "end_of_input"
WRITE, PREPARE = {"op": "write", "bucket": "b", "t": 0}, {"op": "prepare_commit", "flush": False}
SAVED = {"op": "snapshot", "id": 1, "save_as": "s"}

VECTORS: dict[str, Vector] = {
    "the rest waits for the next notification": committer(
        [summary(1), committable("a", 1), summary(END), committable("b", END), {"op": "end_input"}, notify(1)],
        {"errors": [], "committed_total": ["a", "b"], "committed_at_event": 5},
    ),
    "the end may be announced twice": committer(
        [summary(END), committable("a", END), summary(END), committable("b", END), {"op": "end_input"}],
        {"errors": [], "committed": [["a", "b"]]},
        batch_mode=True,
        checkpointing=False,
    ),
    "without checkpointing the end commits": committer(
        [summary(1), committable("a", 1), {"op": "end_input"}],
        {"errors": [], "committed_at_event": 2},
        checkpointing=False,
    ),
    "a late notification is none": committer(
        [summary(1), committable("a", 1), notify(2), notify(1)], {"errors": [], "rounds": 1, "pending_total": []}
    ),
    "retries end": committer(
        [summary(1), committable("a", 1), notify(1)],
        {"errors": [{"event": 2, "error": "retries_exhausted"}], "rounds": 4, "pending_total": ["a"]},
        committer="always_retry",
        max_retries=3,
    ),
    "an unknown failure is tried again by a restore": committer(
        [
            summary(1), committable("a", 1), {"op": "snapshot", "id": 1, "save_as": "s"}, notify(1),
            {"op": "restore", "from": "s", "restored_checkpoint": 1},
        ],
        {"errors": [{"event": 3, "error": "unknown_failure"}, {"event": 4, "error": "unknown_failure"}], "rounds": 2},
        committer="fail_unknown",
    ),
    "a direct commit of a checkpoint that is not whole": committer(
        [summary(1, count=2), committable("a", 1), {"op": "commit", "only_fully_received": False}],
        {"errors": [{"event": 2, "error": "incomplete_batch"}], "rounds": 0},
    ),
    "1.15 at the end does not wait between rounds": committer(
        [summary(END), committable("a", END), {"op": "end_input"}],
        {"errors": [], "rounds": 2, "committed_at_event": 2},
        version="1.15",
        committer="retry_once",
        batch_mode=True,
        checkpointing=False,
    ),
    "1.15 forgets its timer with a restore": committer(
        [
            summary(1), committable("a", 1), {"op": "snapshot", "id": 1, "save_as": "s"}, notify(1),
            {"op": "processing_time", "t": 500}, {"op": "restore", "from": "s", "restored_checkpoint": 1},
            {"op": "processing_time", "t": 1499}, {"op": "processing_time", "t": 1500},
        ],
        {"errors": [], "rounds": 3, "committed_at_event": 7},
        version="1.15",
        committer="retry_once",
    ),
    "global: all subtasks": global_committer(
        True,
        [summary(1, 0), committable("a", 1), notify(1), summary(1, 1), committable("b", 1, 1)],
        [{"event": 4, "values": ["a", "b"]}],
    ),
    "global: not on input": global_committer(
        False,
        [summary(1, count=2), committable("a", 1), notify(1), committable("b", 1), notify(2)],
        [{"event": 4, "values": ["a", "b"]}],
    ),
    "global: behind writers the end of the input is committed with the next notification": global_committer(
        False,
        [
            summary(END, 0), summary(END, 1), committable("a", END), committable("b", END, 1), {"op": "end_input"},
            notify(1),
        ],
        [{"event": 5, "values": ["a", "b"]}],
    ),
    "a book that has more than was announced to come": {
        "kind": "subtask_committables",
        "input": {"expected": 2, "events": [["add", "a"], ["mark_failed", "a"], ["drain"], ["check", "c"]]},
        "expect": {"drains": [[]], "c": {"pending": 0, "failed": 1, "committables": 1, "finished": False}},
    },
    "a writer that cannot resume": writer(
        [WRITE, {**PREPARE, "label": "p1"}, SAVED, {"op": "restore", "task": "B", "from": ["s"]},
         {"op": "check", "task": "B", "label": "c"}, {**PREPARE, "task": "B", "label": "p2"}],
        {"p1": {"pending": 0, "cleanup": 0}, "c": {"buckets": {"b": {"in_progress": False, "pending": 1}}},
         "p2": {"pending": 1, "cleanup": 0}},
        resume_supported=False,
    ),
    "two buckets of one id": writer(
        [WRITE, SAVED, {**WRITE, "task": "B"}, {**SAVED, "task": "B", "save_as": "s2"},
         {"op": "restore", "task": "C", "from": ["s", "s2"]}, {"op": "check", "task": "C", "label": "c"}],
        {"c": {"buckets": {"b": {"in_progress": True, "pending": 1}}}},
    ),
    "the end closes what is open": writer(
        [WRITE, {**PREPARE, "flush": True, "label": "p"}, {"op": "check", "label": "c"},
         {**PREPARE, "label": "p2"}, {"op": "check", "label": "c2"}],
        {"p": {"pending": 1, "cleanup": 0}, "c": {"buckets": {"b": {"in_progress": False, "pending": 0}}},
         "p2": {"pending": 0, "cleanup": 0}, "c2": {"buckets": {}}},
    ),
    "every policy is known": writer(
        [{"op": "open", "t": 0}, WRITE, {"op": "processing_time", "t": 10}, {"op": "check", "label": "c"}],
        {"c": {"buckets": {"b": {"in_progress": False, "pending": 1}}}},
        rolling_policy={"type": "on_processing_time", "rollover_interval": 10},
    ),
    "a table's policy rolls at checkpoints": writer(
        [WRITE, {**PREPARE, "label": "p"}],
        {"p": {"pending": 1, "cleanup": 0}},
        rolling_policy={"type": "table", "roll_on_checkpoint": True},
    ),
    "a custom policy asks for the size first": writer(
        [WRITE, WRITE, {"op": "check", "label": "c"}],
        {"c": {"buckets": {"b": {"in_progress": True, "pending": 1}}}},
        rolling_policy={"type": "custom_size", "max_part_size": 5, "inactivity_interval": 1000},
    ),
    "a lowered threshold fires during the restore": {
        "kind": "filesink_compact_coordinator",
        "input": {
            "config": {"size_threshold": 10},
            "events": [
                {"op": "committable", "bucket": "0", "name": ".0", "size": 5, "kind": "pending"},
                {"op": "checkpoint", "id": 1, "save_as": "s"},
                {"op": "restore", "from": "s", "size_threshold": 5},
            ],
        },
        "expect": {"requests": [{"event": 2, "bucket": "0", "compact": [".0"], "passthrough": []}]},
    },
    "passed through on the way": {
        "kind": "filesink_compactor",
        "input": {
            "events": [
                ["request", "0", [[".0", 5]], [["cleanup", ".x"]]], ["snapshot", 1], ["notify", 2], ["pre_barrier", 3],
            ]
        },
        "expect": {
            "emits": [
                {"event": 3, "summary": 3,
                 "committables": [["pending", "compacted-0", 5], ["cleanup", ".x"], ["cleanup", ".0"]]}
            ]
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS)
def test_further_vectors(vector: Vector) -> None:
    """The engine does what the rules say."""
    assert SINK_KINDS[vector["kind"]](vector) == []


@pytest.mark.parametrize(
    "vector",
    [
        committer([{"op": "explode"}], {"errors": []}),
        committer([notify(1) | {"late": True}], {"errors": []}),
        committer([], {"colour": "blue"}),
        committer([], {"errors": []}, committer="shrug"),
        committer([], {"errors": []}, version="3.0"),
        committer([{"op": "restore", "from": "nowhere", "restored_checkpoint": 1}], {"errors": []}),
        committer([summary("soon")], {"errors": []}),
        committer([], {}),
        global_committer(True, [{"op": "commit", "only_fully_received": True}], []),
        writer([{"op": "explode"}], {}),
        writer([WRITE], {"nowhere": {}}),
        writer([WRITE], {}, rolling_policy={"type": "never"}),
        {"kind": "subtask_committables", "input": {"expected": 1, "events": [["lose", 1]]}, "expect": {}},
        {"kind": "file_committer", "input": {"committables": ["unknown"]}, "expect": {}},
        {"kind": "filesink_compactor", "input": {"events": [["explode"]]}, "expect": {"emits": []}},
        {"kind": "filesink_compactor", "input": {"events": [["snapshot"]]}, "expect": {"emits": []}},
    ],
)
def test_what_is_not_documented_is_refused(vector: Vector) -> None:
    """Nothing is passed over."""
    with pytest.raises(MalformedVector):
        SINK_KINDS[vector["kind"]](vector)


def test_a_wrong_outcome_is_a_mismatch() -> None:
    """The replay can fail."""
    wrong = committer([summary(1), committable("a", 1), notify(1)], {"committed_total": ["b"], "rounds": 1})

    assert SINK_KINDS["sink_v2_committer"](wrong) == ["committed_total expected ['b'] observed ['a']"]
