"""What the replays of sinks refuse: vectors that do not follow the documented format, and wrong expectations."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.compare import MalformedVector, Vector
from tests.conformance.runner import DATA, Verdict, load, replay
from tests.conformance.sinks import SINK_KINDS
from tests.conformance.sinks.partition_commit import KINDS as OF_PARTITIONS

CONFIG = {"version": "2.x", "batch_mode": False, "checkpointing": True, "max_retries": 10, "committer": "accept_all"}
BY_CHECKPOINT: dict[str, Any] = {"rolling_policy": {"type": "on_checkpoint"}}

# --- record acking ----------------------------------------------------------------------------------------------------


def acker(events: list[Vector], **expect: Any) -> Vector:
    return {"kind": "acker", "input": {"events": events}, "expect": expect}


def topology(kind: str, reads: str, **expect: Any) -> Vector:
    """A vector of a topology with one bolt, and a message of spout 1."""
    given = {"bolts": [{"id": "x", "type": kind, "inputs": [reads]}], "feeds": [{"spout": "1", "msg": "a"}]}
    return {"kind": "acker_topology", "input": {"spouts": ["1"], **given}, "expect": expect}


INIT = {"op": "init", "root": "r", "val": "0x5"}


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        (acker([{"op": "nack", "root": "r"}], emits=[]), "there is no operation 'nack'"),
        (acker([INIT], emits=[]), "init lacks task"),
        (acker([{"op": "fail", "root": "r", "val": "0x5"}], emits=[]), "unknown fields: val"),
        (acker([{"op": "ack", "root": "r", "val": 5}], emits=[]), "5 is no hexadecimal number"),
        (acker([{**INIT, "task": 7}], replies=[]), "unknown fields: replies"),
        (topology("juggle", "1", per_feed=[]), "there is no type 'juggle'"),
        (topology("ack", "9", per_feed=[]), "reads 9, which is not there"),
        (topology("agg", "1", per_feed=[]), "agg needs n"),
    ],
)
def test_what_an_acker_cannot_be_asked_is_an_error(vector: Vector, message: str) -> None:
    """A vector of acking that the replay does not understand is refused with the reason."""
    with pytest.raises(MalformedVector, match=message):
        SINK_KINDS[vector["kind"]](vector)


def test_a_wrong_expectation_of_acking_is_a_mismatch() -> None:
    """The comparison finds the wrong value."""
    vector = topology("ack", "1", per_feed=[{"acked": {}, "failed": {}}], messages={"data": 2})
    assert len(SINK_KINDS["acker_topology"](vector)) == 2


# --- committers, writers and compaction -------------------------------------------------------------------------------


def committer(events: list[Vector], expect: Vector, **config: Any) -> Vector:
    return {"kind": "sink_v2_committer", "input": {"config": CONFIG | config, "events": events}, "expect": expect}


def writer(events: list[Vector], expect: Vector, **given: Any) -> Vector:
    settings = {"rolling_policy": {"type": "default"}, "bucket_check_interval": 10, "resume_supported": True} | given
    events = [{"task": "A", **event} for event in events]
    return {"kind": "file_sink_writer", "input": {**settings, "events": events}, "expect": expect}


SUMMARY: Vector = {"op": "summary", "checkpoint": 1, "subtask": 0, "count": 1}
NOTIFY: Vector = {"op": "notify_complete", "id": 1}
WRITE: Vector = {"op": "write", "bucket": "b", "t": 0}


@pytest.mark.parametrize(
    "vector",
    [
        committer([{"op": "explode"}], {"errors": []}),
        committer([NOTIFY | {"late": True}], {"errors": []}),
        committer([], {"colour": "blue"}),
        committer([], {"errors": []}, committer="shrug"),
        committer([], {"errors": []}, version="3.0"),
        committer([{"op": "restore", "from": "nowhere", "restored_checkpoint": 1}], {"errors": []}),
        committer([SUMMARY | {"checkpoint": "soon"}], {"errors": []}),
        committer([], {}),
        writer([{"op": "explode"}], {}),
        writer([WRITE], {"nowhere": {}}),
        writer([WRITE], {}, rolling_policy={"type": "never"}),
        {
            "kind": "global_committer",
            "input": {"commit_on_input": True, "events": [{"op": "commit", "only_fully_received": True}]},
            "expect": {"commits": []},
        },
        {"kind": "subtask_committables", "input": {"expected": 1, "events": [["lose", 1]]}, "expect": {}},
        {"kind": "file_committer", "input": {"committables": ["unknown"]}, "expect": {}},
        {"kind": "filesink_compactor", "input": {"events": [["explode"]]}, "expect": {"emits": []}},
        {"kind": "filesink_compactor", "input": {"events": [["snapshot"]]}, "expect": {"emits": []}},
    ],
)
def test_what_is_not_documented_is_refused(vector: Vector) -> None:
    """No undocumented part is ignored."""
    with pytest.raises(MalformedVector):
        SINK_KINDS[vector["kind"]](vector)


def test_a_wrong_outcome_is_a_mismatch() -> None:
    """The replay can fail."""
    committable = {"op": "committable", "value": "a", "checkpoint": 1, "subtask": 0}
    wrong = committer([SUMMARY, committable, NOTIFY], {"committed_total": ["b"], "rounds": 1})

    assert SINK_KINDS["sink_v2_committer"](wrong) == ["committed_total expected ['b'] observed ['a']"]


# --- bucketing, two-phase commit, staging -----------------------------------------------------------------------------

BUCKETING = {
    "part_prefix": "part", "part_suffix": None, "in_progress_prefix": "_", "in_progress_suffix": ".in-progress",
    "pending_prefix": "_", "pending_suffix": ".pending", "valid_length_prefix": "_",
    "valid_length_suffix": ".valid-length", "batch_size": 100, "batch_rollover_interval": 2**63 - 1,
    "inactive_check_interval": 100, "inactive_threshold": 100, "truncate_supported": True,
}  # fmt: skip
OPEN: Vector = {"op": "open", "task": "A", "subtask": 0, "parallelism": 1, "t": 0}
CHECK: Vector = {"op": "check", "label": "c"}
ANY: Vector = {"c": {"files": {}}}


@pytest.mark.parametrize(
    ("kind", "given", "expect"),
    [
        ("bucketing_sink", {"config": BUCKETING, "events": [{"op": "jump", "task": "A"}]}, {}),
        ("bucketing_sink", {"config": BUCKETING, "events": [OPEN | {"x": 1}]}, {}),
        ("bucketing_sink", {"config": BUCKETING, "events": [OPEN]}, {"c": {}}),
        ("bucketing_sink", {"config": BUCKETING, "events": [OPEN]}, {}),
        (
            "bucketing_sink",
            {"config": BUCKETING, "events": [OPEN, {"op": "write", "task": "A", "bucket": "b", "bytes": 0}, CHECK]},
            ANY,
        ),
        ("bucketing_sink", {"config": BUCKETING | {"batch": 1}, "events": [CHECK]}, ANY),
        ("two_phase_commit", {"config": {}, "events": [{"op": "jump", "task": "A"}]}, {"checks": {}}),
        ("two_phase_commit", {"config": {}, "events": [{"op": "open", "x": 1}]}, {"checks": {}}),
        ("two_phase_commit", {"config": {}, "events": [{"op": "open"}]}, {"checks": {"c": {}}}),
        (
            "staging_commit",
            {"partition_columns": [], "static_partition": {}, "policies": [], "events": [{"op": "jump"}]},
            {"c": []},
        ),
        (
            "staging_commit",
            {"partition_columns": [], "policies": ["no"], "events": [{"op": "commit", "overwrite": True}]},
            ANY,
        ),
        ("batch_output_format", {"table": "t"}, {}),
    ],
)
def test_what_other_sinks_do_not_document_is_refused(kind: str, given: Vector, expect: Vector) -> None:
    """Unknown operations, settings, fields, labels and policies; and vectors that expect nothing."""
    with pytest.raises(MalformedVector):
        SINK_KINDS[kind]({"input": given, "expect": expect})


# --- partitions -------------------------------------------------------------------------------------------------------

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


@pytest.mark.parametrize(("kind", "given", "expect"), MALFORMED)
def test_what_partitions_do_not_document_is_refused(kind: str, given: Vector, expect: Vector) -> None:
    """Unknown operations, settings and fields, and a writer that is used before it is opened."""
    with pytest.raises(MalformedVector):
        SINK_KINDS[kind]({"name": "x", "kind": kind, "input": given, "expect": expect})


def test_a_wrong_expectation_is_noticed() -> None:
    """Each field that these vectors expect is really compared."""
    kinds = {*OF_PARTITIONS, "bucketing_sink", "two_phase_commit", "staging_commit", "batch_output_format"}
    written = [vector for vector in load(DATA / "written" / "sink.json") if vector["kind"] in kinds]
    assert len(written) == 28

    for vector in written:
        for field in vector["expect"]:
            assert replay(vector | {"expect": {field: {"k": ["?"]}}}).verdict is Verdict.FAILED, (vector["name"], field)
