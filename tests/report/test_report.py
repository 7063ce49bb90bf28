"""The report holds what came of the run, is plain JSON, and is the same for the same run."""

from __future__ import annotations

import json

import pytest

from tests.report.runs import Run, make_run

FLINK_HISTORY = (
    "id", "status", "acknowledged", "trigger_time_ns", "latest_acknowledgement_ns", "end_to_end_duration_ns",
    "checkpointed_data_size_bytes", "full_checkpoint_data_size_bytes", "processed_in_flight_data_bytes",
    "persisted_in_flight_data_bytes",
)  # fmt: skip


@pytest.fixture(scope="module")
def killed() -> Run:
    """A run in which a task was killed once."""
    return make_run(kill=True)


def test_a_report_is_plain_json(killed: Run) -> None:
    """What goes in comes out: no value that JSON would change."""
    assert json.loads(json.dumps(killed.report)) == killed.report


def test_the_same_run_gives_the_same_report(killed: Run) -> None:
    """Nothing of the wall clock or the process is in it."""
    assert json.dumps(make_run(kill=True).report) == json.dumps(killed.report)


def test_another_run_gives_another_digest(killed: Run) -> None:
    """The digests name the behaviour: without the kill it is another."""
    assert make_run().report["run"]["trace_digest"] != killed.report["run"]["trace_digest"]


def test_overview_counts_add_up(killed: Run) -> None:
    """Every triggered checkpoint completed, failed or is in progress, and the history says the same."""
    overview, history = killed.report["checkpoints"]["overview"], killed.report["checkpoints"]["history"]
    statuses = [row["status"] for row in history]

    assert overview["triggered"] == overview["completed"] + overview["failed"] + overview["in_progress"]
    assert (statuses.count("COMPLETED"), statuses.count("FAILED")) == (overview["completed"], overview["failed"])
    assert overview["latest_completed"] == max(row["id"] for row in history if row["status"] == "COMPLETED")
    assert overview["restored"] == 1
    assert overview["latest_restore"] == killed.report["restores"][1]["checkpoint_id"]


def test_history_has_flinks_columns(killed: Run) -> None:
    """A reader of Flink's checkpoint tab finds every column, per checkpoint and per operator and subtask."""
    row = killed.report["checkpoints"]["history"][-1]

    assert all(name in row for name in FLINK_HISTORY)
    assert row["acknowledged"] == row["subtasks"] == 4
    assert [operator["name"] for operator in row["operators"]] == list(killed.report["job"]["parallelism"])
    assert {one["subtask"] for operator in row["operators"] for one in operator["subtasks"]} == {0, 1}


def test_sizes_of_subtasks_add_up_to_the_checkpoint(killed: Run) -> None:
    """The row of a checkpoint is the sum of its subtasks; Min, Avg and Max lie as they must."""
    row = killed.report["checkpoints"]["history"][-1]
    name = "checkpointed_data_size_bytes"
    sizes = [one[name] for operator in row["operators"] for one in operator["subtasks"]]

    assert sum(sizes) == row[name] > 0
    for operator in row["operators"]:
        spread, own = operator["spread"][name], [one[name] for one in operator["subtasks"]]
        assert (spread["min"], spread["avg"], spread["max"]) == (min(own), sum(own) / len(own), max(own))


def test_summary_is_over_completed_checkpoints(killed: Run) -> None:
    """Min, avg, max and the percentiles of the sizes in the history."""
    checkpoints = killed.report["checkpoints"]
    name = "checkpointed_data_size_bytes"
    sizes = sorted(row[name] for row in checkpoints["history"] if row["status"] == "COMPLETED")
    spread = checkpoints["summary"][name]

    assert list(spread) == ["min", "avg", "max", "p50", "p90", "p99", "p99.9"]
    assert (spread["min"], spread["max"], spread["p99.9"]) == (sizes[0], sizes[-1], sizes[-1])
    assert spread["avg"] == pytest.approx(sum(sizes) / len(sizes))


def test_each_completed_checkpoint_carries_its_cut(killed: Run) -> None:
    """The oracle's finding stands in the history, and failed checkpoints have none."""
    history = killed.report["checkpoints"]["history"]

    assert all((row["orphans"] == 0) == (row["status"] == "COMPLETED") for row in history)
    assert [cut["checkpoint_id"] for cut in killed.report["cuts"]] == [
        row["id"] for row in history if row["status"] == "COMPLETED"
    ]
    assert all(cut["consistent"] and cut["as_promised"] for cut in killed.report["cuts"])


def test_metrics_have_flinks_names(killed: Run) -> None:
    """Of the job, of each task and of each operator, from the result alone."""
    metrics = killed.report["metrics"]

    assert metrics["job"]["numRestarts"] == 1
    assert metrics["job"]["numberOfCompletedCheckpoints"] == killed.report["checkpoints"]["overview"]["completed"]
    assert metrics["tasks"]["sum -> out[0]"].keys() == {
        "numRecordsIn", "numRecordsOut", "checkpointAlignmentTime", "checkpointStartDelayNanos",
    }  # fmt: skip


def test_a_failed_run_reports_its_error_and_causes() -> None:
    """The user's function, the record and the original exception are all there."""
    report = make_run(fail=True).report

    assert report["verdict"]["name"] == "failed"
    assert report["verdict"]["exit_code"] == report["run"]["error"]["exit_code"] == 12
    assert [cause["type"] for cause in report["run"]["error"]["causes"]] == ["UserFunctionError", "ValueError"]
    assert "30" in report["run"]["error"]["causes"][0]["message"]


def test_a_mode_without_checkpoints_has_an_empty_table() -> None:
    """Nothing triggered, nothing summarised, and still a whole report."""
    checkpoints = make_run(mode="none").report["checkpoints"]

    assert checkpoints["history"] == []
    assert set(checkpoints["summary"].values()) == {None}
    assert checkpoints["overview"]["latest_completed"] is None
