"""The report holds the results of the run, is plain JSON, and is the same for the same run."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from engine.checkpoint.coordinator import CheckpointStatistics, SubtaskCheckpointMetrics
from engine.elements.events import SnapshotKind
from engine.report.report import error_entry, metrics_of
from tests.report.runs import Run, make_run


@pytest.fixture(scope="module")
def killed() -> Run:
    return make_run(kill=True)


def test_a_report_is_plain_json(killed: Run) -> None:
    """Reading it back gives the same data: it has no value that JSON would change."""
    assert json.loads(json.dumps(killed.report)) == killed.report


def test_the_same_run_gives_the_same_report(killed: Run) -> None:
    """The report has no data of the wall clock or the process."""
    assert json.dumps(make_run(kill=True).report) == json.dumps(killed.report)


def test_another_run_gives_another_digest(killed: Run) -> None:
    """The digests name the behaviour: without the kill it is another."""
    assert make_run().report["run"]["trace_digest"] != killed.report["run"]["trace_digest"]


def test_metrics_have_flinks_names(killed: Run) -> None:
    """Of the job, of each task and of each operator, from the result alone."""
    metrics = killed.report["metrics"]

    assert metrics["job"]["numRestarts"] == 1
    assert metrics["job"]["numberOfCompletedCheckpoints"] == killed.report["checkpoints"]["counts"]["completed"]
    latest = killed.report["checkpoints"]["latest"]["completed"]
    names = {"Size": "checkpointed_size", "FullSize": "state_size"}
    names |= {"ProcessedData": "processed_data", "PersistedData": "persisted_data"}
    for name, field in names.items():
        assert metrics["job"][f"lastCheckpoint{name}"] == latest[field]
    assert metrics["tasks"]["sum -> out[0]"].keys() == {
        "numRecordsIn", "numRecordsOut", "checkpointAlignmentTime", "checkpointStartDelayNanos",
        "busyTimeMsPerSecond", "backPressuredTimeMsPerSecond", "idleTimeMsPerSecond",
        "accumulateBusyTimeMs", "accumulateBackPressuredTimeMs", "accumulateIdleTimeMs",
    }  # fmt: skip


def test_a_finished_task_keeps_the_numbers_of_its_last_snapshot() -> None:
    """A later checkpoint counts it as acknowledged, with zeros; these are no measurements."""
    run = make_run()
    statistics = CheckpointStatistics()
    statistics.on_triggered(1, SnapshotKind.CHECKPOINT, 0, 1)
    statistics.on_acknowledged(1, (0, 0), SubtaskCheckpointMetrics(alignment_ns=7, start_delay_ns=5), 9)
    statistics.on_completed(1, 10)
    statistics.on_triggered(2, SnapshotKind.CHECKPOINT, 20, 0, finished=[(0, 0)])
    statistics.on_completed(2, 20)
    task = metrics_of(replace(run.result, checkpoints=statistics), run.execution.plan).tasks["numbers -> check[0]"]

    assert (task["checkpointAlignmentTime"], task["checkpointStartDelayNanos"]) == (7, 5)


def test_an_error_raised_from_itself_has_an_end() -> None:
    """`raise error from error` makes a chain of causes without one."""
    first, second = ValueError("first"), TypeError("second")
    first.__cause__, second.__cause__ = second, first

    assert [one["message"] for one in error_entry(first)["causes"]] == ["second"]


def test_a_failed_run_reports_its_error_and_causes() -> None:
    """The user's function, the record and the original exception are all there."""
    report = make_run(fail=True).report

    assert report["verdict"]["name"] == "failed"
    assert report["verdict"]["exit_code"] == report["run"]["error"]["exit_code"] == 12
    assert [cause["type"] for cause in report["run"]["error"]["causes"]] == ["UserFunctionError", "ValueError"]
    assert "30" in report["run"]["error"]["causes"][0]["message"]
