"""Further vectors about partitions, written from the rules; and what is not of the documented format is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.compare import MalformedVector
from tests.conformance.runner import Verdict, replay
from tests.conformance.sinks.partition_commit import KINDS

END = 2**63 - 1
BY_CHECKPOINT: dict[str, Any] = {"rolling_policy": {"type": "on_checkpoint"}}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "metastore-on-a-plain-table": (
        "commit_policy",
        {"table": "filesystem", "policy_kind": "metastore,success-file", "commits": ["d=1"]},
        {"valid": False, "files": {}, "calls": []},
    ),
    "custom-policy": (
        "commit_policy",
        {"table": "filesystem", "policy_kind": "custom,success-file", "commits": ["d=1/e=2"]},
        {
            "valid": True,
            "files": {"d=1/e=2/_SUCCESS": ""},
            "calls": [["custom", "d=1/e=2"], ["success-file", "d=1/e=2"]],
        },
    ),
    "path-of-several-columns": (
        "partition_path",
        {"op": "generate", "spec": [["a b", "x/y"], ["c", "}"]]},
        {"path": "a b=x%2Fy/c=}/"},
    ),
    "path-of-no-column": ("partition_path", {"op": "generate", "spec": []}, {"path": ""}),
    "pattern-of-two-columns": (
        "partition_time_extract",
        {"keys": ["d", "h"], "values": ["2020-05-03", "7"], "timestamp_pattern": "$d $h:00:00",
         "timestamp_formatter": None},
        {"local": "2020-05-03T07:00"},
    ),
    "compactor-announces-at-the-end": (
        "table_compact_operator",
        {"parallelism": 1, "subtask": 0, "events": [["unit", 0, "p0", [".uncompacted-a"]], ["end_input"]]},
        {"commit_info": {"checkpoint": END, "partitions": ["p0"]}},
    ),
    "coordinator-ends-an-empty-checkpoint": (
        "table_compact_coordinator",
        {"target_size": 9, "checkpoints": [{"id": 1, "files": []}, {"id": 2, "files": [["p0", "f7", 3]]}],
         "restart_between": False, "end_checkpoint": 1},
        {"outputs": [{"units": [], "end_compaction": 1}]},
    ),
    "restored-pending-files-are-announced-again": (
        "streaming_file_writer",
        {
            "config": BY_CHECKPOINT,
            "events": [
                {"op": "open", "t": 0},
                {"op": "write", "partition": "1"},
                {"op": "snapshot", "id": 1, "save_as": "s"},
                {"op": "restore", "t": 0, "from": "s"},
                {"op": "write", "partition": "2"},
                {"op": "end_input"},
                {"op": "check", "label": "k"},
            ],
        },
        {
            "emits": [{"event": 5, "checkpoint": END, "partitions": ["1", "2"]}],
            "checks": {"k": ["1/part-0-0", "2/part-0-1"]},
        },
    ),
}  # fmt: skip

MALFORMED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("commit_policy", {"table": "iceberg", "policy_kind": "success-file", "commits": []}, {"valid": True}),
    ("partition_path", {"op": "normalise", "path": "a"}, {"path": "a"}),
    ("partition_path", {"op": "generate", "spec": []}, {"directory": ""}),
    ("partition_commit", {"config": {"trigger": "process-time", "when": 1}, "events": []}, {"commits": []}),
    (
        "partition_commit",
        {"config": {"trigger": "process-time", "delay_ms": 0, "partition_keys": ["d"]}, "events": [{"op": "close"}]},
        {"commits": []},
    ),
    ("streaming_file_writer", {"config": BY_CHECKPOINT, "events": [{"op": "snapshot", "id": 1}]}, {"emits": []}),
    ("streaming_file_writer", {"config": BY_CHECKPOINT, "events": []}, {"checks": {"k": []}}),
    ("table_compact_operator", {"parallelism": 1, "subtask": 0, "events": [["close"]]}, {"compacted": []}),
]


@pytest.mark.parametrize("name", CASES)
def test_further_vector(name: str) -> None:
    """The engine does what the rules say."""
    kind, given, expect = CASES[name]
    assert KINDS[kind]({"name": name, "kind": kind, "input": given, "expect": expect}) == []


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_expectation_is_noticed(name: str) -> None:
    """Each field is really compared."""
    kind, given, expect = CASES[name]
    for field in expect:
        wrong = {"name": name, "kind": kind, "input": given, "expect": {field: {"k": ["?"]}}}
        assert replay(wrong).verdict is Verdict.FAILED


@pytest.mark.parametrize(("kind", "given", "expect"), MALFORMED)
def test_what_nobody_documented_is_refused(kind: str, given: dict[str, Any], expect: dict[str, Any]) -> None:
    """Unknown operations, settings and fields, and a writer that is used before it is opened."""
    with pytest.raises(MalformedVector):
        KINDS[kind]({"name": "x", "kind": kind, "input": given, "expect": expect})
