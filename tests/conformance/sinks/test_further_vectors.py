"""Vectors of our own, worked out from the rules, for what the recorded ones leave untouched: the bucketing sink,
two-phase commit, staging. And vectors that are not of the documented format."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.compare import MalformedVector
from tests.conformance.sinks.bucketing import bucketing_sink
from tests.conformance.sinks.staging import batch_output_format, staging_commit, staging_task_dirs
from tests.conformance.sinks.two_phase import two_phase_commit

FOREVER = 2**63 - 1
CONFIG = {
    "part_prefix": "part", "part_suffix": None, "in_progress_prefix": "_", "in_progress_suffix": ".in-progress",
    "pending_prefix": "_", "pending_suffix": ".pending", "valid_length_prefix": "_",
    "valid_length_suffix": ".valid-length", "batch_size": 100, "batch_rollover_interval": FOREVER,
    "inactive_check_interval": 100, "inactive_threshold": 100, "truncate_supported": True,
}  # fmt: skip


def op(name: str, task: str | None = "A", **fields: Any) -> dict[str, Any]:
    return {"op": name, **({} if task is None else {"task": task}), **fields}


OPEN = op("open", subtask=0, parallelism=1, t=0)
CHECK = op("check", None, label="c")


def restore(*assigned: str, task: str = "B") -> dict[str, Any]:
    return op("restore", task, subtask=0, parallelism=1, assigned=list(assigned), t=0)


def bucketing(events: list[Any], files: dict[str, Any], **config: Any) -> list[str]:
    given = {"config": {**CONFIG, **config}, "events": events}
    return bucketing_sink({"input": given, "expect": {"c": {"files": files}}})


@pytest.mark.parametrize("truncates", [True, False])
def test_a_part_that_is_pending_meanwhile_is_cut_back(truncates: bool) -> None:
    """It was in progress at the checkpoint; what a later snapshot, not completed, made of it does not count."""
    events = [
        OPEN, op("write", bucket="b", bytes=6), op("snapshot", id=1, save_as="s"), op("write", bucket="b", bytes=5),
        op("processing_time", t=101), op("processing_time", t=202), op("write", bucket="b", bytes=7),
        op("snapshot", id=2), op("crash"), restore("s"), CHECK,
    ]  # fmt: skip
    cut: dict[str, Any] = {"b/part-0-0": 6} if truncates else {
        "b/part-0-0": 11, "b/_part-0-0.valid-length": {"valid_length": 6},
    }  # fmt: skip
    assert bucketing(events, {**cut, "b/_part-0-1.in-progress": 7}, truncate_supported=truncates) == []


def test_an_older_checkpoint_cuts_a_finished_part_but_changes_no_valid_length() -> None:
    """As in Flink: truncation goes back, a valid length is written once."""
    events = [
        OPEN, op("write", bucket="b", bytes=6), op("snapshot", id=1, save_as="s1"), op("write", bucket="b", bytes=5),
        op("snapshot", id=2, save_as="s2"), op("crash"), restore("s2"), op("crash", "B"), restore("s1"), CHECK,
    ]  # fmt: skip
    assert bucketing(events, {"b/part-0-0": 6}) == []
    marked = {"b/part-0-0": 11, "b/_part-0-0.valid-length": {"valid_length": 11}}
    assert bucketing(events, marked, truncate_supported=False) == []


def test_closing_is_finishing_when_pending_has_no_name() -> None:
    """The mode without checkpoints, by rolling and by an orderly end."""
    events = [OPEN, op("write", bucket="", bytes=3), op("write", bucket="", bytes=3), op("close"), CHECK]
    nameless = {"pending_prefix": "", "pending_suffix": "", "batch_size": 0}
    assert bucketing(events, {"part-0-0": 3, "part-0-1": 3}, **nameless) == []


def test_several_states_for_one_task() -> None:
    """After scaling down, in the order of the list; a late notification for an older checkpoint does nothing."""
    events = [
        OPEN, op("open", "C", subtask=1, parallelism=2, t=0), op("write", bucket="b", bytes=2),
        op("write", "C", bucket="b", bytes=3), op("snapshot", id=1, save_as="a"),
        op("snapshot", "C", id=1, save_as="c"), op("notify_complete", "C", id=0), op("close"), op("crash", "C"),
        restore("a", "c"), op("write", "B", bucket="b", bytes=1), CHECK,
    ]  # fmt: skip
    assert bucketing(events, {"b/part-0-0": 2, "b/part-1-0": 3, "b/_part-0-1.in-progress": 1}) == []


# --- two-phase commit ---------------------------------------------------------------------------------------------


def two_phase(events: list[Any], expect: dict[str, Any], **config: Any) -> list[str]:
    return two_phase_commit({"input": {"config": config, "events": events}, "expect": expect})


def test_warnings_are_about_commits_and_recoveries() -> None:
    """Each names its transaction and how long ago that was begun; a ratio below zero says never."""
    events = [
        {"op": "open"}, {"op": "snapshot", "id": 1, "save_as": "s"}, {"op": "clock", "t": 501},
        {"op": "notify_complete", "id": 1}, {"op": "crash"}, {"op": "clock", "t": 700},
        {"op": "restore", "from": ["s"]},
    ]  # fmt: skip
    warnings = [{"event": 3, "tx": "tx0", "elapsed_ms": 501}, {"event": 6, "tx": "tx0", "elapsed_ms": 700}]
    assert two_phase(events, {"warnings": warnings}, timeout_ms=1000, warning_ratio=0.5) == []
    assert two_phase(events, {"warnings": []}, timeout_ms=1000, warning_ratio=-1) == []
    assert two_phase(events, {"warnings": []}, warning_ratio=0.0) == []
    assert two_phase(events, {"warnings": warnings}, timeout_ms=1000, warning_ratio=0.6) != []


def test_a_timeout_alone_forgives_nothing() -> None:
    """Nor does anything in a notification."""
    events = [
        {"op": "open"}, {"op": "snapshot", "id": 1, "save_as": "s"}, {"op": "fail_commit", "txs": "all"},
        {"op": "clock", "t": 5000}, {"op": "notify_complete", "id": 1}, {"op": "crash"},
        {"op": "restore", "from": ["s"]},
    ]  # fmt: skip
    both = [{"event": 4, "error": "commit"}, {"event": 6, "error": "commit"}]
    assert two_phase(events, {"errors": both}, timeout_ms=1000) == []
    assert two_phase(events, {"errors": both[:1]}, timeout_ms=1000, ignore_failures_after_timeout=True) == []


def test_states_of_several_tasks_are_recovered_one_after_the_other() -> None:
    """Pending ones of a state, then its current one; then the next state."""
    events = [
        {"op": "open"}, op("open", "B"), op("write", value="a"), op("write", "B", value="b"),
        op("snapshot", id=1, save_as="a"), op("snapshot", "B", id=1, save_as="b"), op("crash"), op("crash", "B"),
        op("restore", "C", **{"from": ["b", "a"]}), CHECK,
    ]  # fmt: skip
    expect = {
        "checks": {"c": {"visible": ["a", "b"], "open_tx": ["tx4"]}},
        "commit_calls": ["tx1", "tx0"],
        "abort_calls": ["tx3", "tx2"],
    }
    assert two_phase(events, expect) == []


# --- staging ------------------------------------------------------------------------------------------------------


def staging(columns: list[str], static: dict[str, str], events: list[Any], files: list[str]) -> list[str]:
    given = {"partition_columns": columns, "static_partition": static, "policies": ["success-file"], "events": events}
    return staging_commit({"input": given, "expect": {"c": files}})


@pytest.mark.parametrize("overwrite", [True, False])
def test_nothing_staged(overwrite: bool) -> None:
    """A partition that is known is made, one that is half known is not; a task's directory alone is not nothing."""
    commit = {"op": "commit", "overwrite": overwrite}
    old = {"op": "put_output", "files": ["a=1/b=2/old"]}
    left = [] if overwrite else ["a=1/b=2/old"]
    assert staging(["a", "b"], {"a": "1", "b": "2"}, [old, commit, CHECK], ["a=1/b=2/_SUCCESS", *left]) == []
    assert staging(["a", "b"], {"a": "1"}, [old, commit, CHECK], ["a=1/b=2/old"]) == []
    task = {"op": "stage_dirs", "dirs": ["task-0-attempt-0"]}
    assert staging(["a", "b"], {"a": "1", "b": "2"}, [old, task, commit, CHECK], ["a=1/b=2/old"]) == []


def test_partitions_that_are_not_staged_keep_theirs() -> None:
    """An overwrite is of what is written."""
    events = [
        {"op": "put_output", "files": ["p=1/old", "p=2/old"]}, {"op": "stage", "files": ["task-0/p=1/new"]},
        {"op": "commit", "overwrite": True}, CHECK,
    ]  # fmt: skip
    assert staging(["p"], {}, events, ["p=1/_SUCCESS", "p=1/new", "p=2/old"]) == []


def test_jobs_one_after_the_other() -> None:
    """An append leaves what is there, an overwrite does not; nulls have a partition."""
    jobs = [
        {"rows": [["a", None], ["b", "x"]], "staging": "s", "overwrite": False},
        {"rows": [["c", "x"]], "staging": "s", "overwrite": False},
        {"rows": [["d", ""]], "staging": "t", "overwrite": True},
    ]
    given = {"columns": ["v", "p"], "partition_columns": ["p"], "jobs": jobs, "finalize": ["after_each"]}
    null = "p=__DEFAULT_PARTITION__"
    expect = {
        "staged_file_counts": [2, 1, 1],
        "output_after_each_finalize": [
            {null: ["a\n"], "p=x": ["b\n"]},
            {null: ["a\n"], "p=x": ["c\n", "b\n"]},
            {null: ["d\n"], "p=x": ["b\n", "c\n"]},
        ],
        "staging_deleted": True,
    }
    assert batch_output_format({"input": given, "expect": expect}) == []
    expect["staged_file_counts"] = [1, 1, 1]
    assert batch_output_format({"input": given, "expect": expect}) != []


# --- the format ---------------------------------------------------------------------------------------------------


def test_what_is_not_documented_is_refused() -> None:
    """Unknown operations, fields, labels and policies; and vectors that expect nothing."""
    for events, expect in (([op("jump")], {}), ([{**OPEN, "x": 1}], {}), ([OPEN], {"c": {}}), ([OPEN], {})):
        with pytest.raises(MalformedVector):
            bucketing_sink({"input": {"config": CONFIG, "events": events}, "expect": expect})
        with pytest.raises(MalformedVector):
            two_phase_commit({"input": {"config": {}, "events": events}, "expect": {"checks": expect}})
    with pytest.raises(MalformedVector):
        bucketing([OPEN, op("write", bucket="b", bytes=0), CHECK], {})
    with pytest.raises(MalformedVector):
        bucketing([CHECK], {}, batch=1)
    with pytest.raises(MalformedVector):
        staging([], {}, [op("jump", None)], [])
    commit = {"op": "commit", "overwrite": True}
    with pytest.raises(MalformedVector):
        staging_commit({"input": {"partition_columns": [], "policies": ["no"], "events": [commit]}, "expect": {}})
    with pytest.raises(MalformedVector):
        staging_task_dirs({"input": {"dirs": [], "accepted": []}, "expect": {}})
    with pytest.raises(MalformedVector):
        batch_output_format({"input": {"table": "t"}, "expect": {}})
