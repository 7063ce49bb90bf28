"""The four lines at the end of a run, before its verdict: each gives its facts, and fits a line."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest

from engine.report.summary import summary_lines
from tests.report.runs import make_run


def ended(report: dict[str, Any]) -> dict[str, Any]:
    report["run"]["output_dir"] = "/out"
    return report


def test_a_run_without_failures() -> None:
    """Records, time and digest; no failure; the cost of the checkpoints; the output, and the place of the rest."""
    ran, failures, checkpoints, output = summary_lines(ended(make_run().report))

    assert ran.startswith("60 records in ")
    assert ", 1 attempt, trace digest " in ran
    assert failures == "no task failed"
    assert checkpoints.startswith("4 checkpoints completed, 2 failed (CHECKPOINT_COORDINATOR_SUSPEND, ")
    assert "); longest 3µs, largest " in checkpoints
    assert checkpoints.endswith(" B (--table shows all)")
    assert output == "output in /out"


def test_a_failure_is_named_with_its_recovery() -> None:
    """The first failure, the checkpoint that the job resumed from, and the checkpoints that failed because of it."""
    ran, failures, checkpoints, _ = summary_lines(ended(make_run(kill=True).report), with_table=True)

    assert " of them again) in " in ran
    assert failures.startswith("attempt 1 ended: sum -> out[0] was killed; attempt 2 started from checkpoint 1 at +")
    assert ", 1 failed (CHECKPOINT_COORDINATOR_SUSPEND); longest " in checkpoints
    assert "--table" not in checkpoints


def test_of_many_failures_the_first_is_named_and_the_others_are_counted() -> None:
    """A checkpoint that was passed over is told in any case."""
    report = ended(copy.deepcopy(make_run(kill=True).report))
    report["notes"] += ["attempt 2 ended: sum -> out[1] was killed\nmore"]
    report["restores"][-1]["problems"] = ["checkpoint 3 is damaged"]

    failures = summary_lines(report)[1]
    assert "was killed; 1 further note; " in failures
    assert "checkpoint 3 is damaged; attempt 2 started" in failures


def test_a_job_that_failed_says_so() -> None:
    """Also when it never had a checkpoint."""
    _, failures, *_ = summary_lines(ended(make_run(fail=True).report))

    assert failures.endswith("the job failed")


def test_alignment_is_shown_where_there_is_any() -> None:
    """The longest of all subtasks."""
    report = ended(copy.deepcopy(make_run().report))
    for row in report["checkpoints"]["history"]:
        row["summary"]["alignment"]["duration"]["max"] = 1_000 * row["id"]

    assert " (alignment up to 5µs), largest " in summary_lines(report)[2]


def test_a_mode_without_checkpoints_says_so() -> None:
    """It is not a run whose checkpoints did not complete."""
    assert summary_lines(ended(make_run(mode="none").report))[2].startswith("no checkpoints: mode none takes none")


@pytest.mark.parametrize("kill", [False, True])
def test_the_result_is_shown_in_a_line(kill: bool) -> None:
    """Its fields would fill screens."""
    result = make_run(kill=kill).result

    assert repr(result).startswith("<ExecutionResult finished: ")
    assert len(repr(result)) < 120
    assert "\n" not in repr(dataclasses.replace(result, error=ValueError("a\nb")))
