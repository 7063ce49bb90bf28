"""The verdict follows from the promise of the mode, and is never *valid* for want of evidence."""

from __future__ import annotations

from typing import cast

import pytest

from engine.elements.errors import JobFailedError, StateError, WeirError
from engine.observe.cut_oracle import CutOracle, CutVerdict
from engine.protocols.acking.statistics import AckingStatistics
from engine.protocols.protocol_names import protocol_named
from engine.report import judge_run
from engine.report.verdict import exit_code_of
from engine.runtime.execution import ExecutionResult
from engine.runtime.job import SavepointOrder, SavepointReport


class Ended:
    """The part of a result that a verdict reads."""

    def __init__(
        self, error: Exception | None = None, state: str = "finished", savepoints: tuple[SavepointReport, ...] = ()
    ) -> None:
        self.error = error
        self.state = state
        self.savepoints = savepoints
        self.acking: AckingStatistics | None = None
        self.source_records, self.replayed_records, self.attempts = 0, 0, 1
        self.losses: tuple[str, ...] = ()


def judge(
    mode: str, *cuts: tuple[int, int], error: Exception | None = None, state: str = "finished"
) -> tuple[str, int, str]:
    """Name, exit code and reason for checkpoints with these (orphans, in transit)."""
    oracle = CutOracle(
        [CutVerdict(1, number, 4, 100, orphans, lost) for number, (orphans, lost) in enumerate(cuts, start=1)]
    )
    verdict = judge_run(cast(ExecutionResult, Ended(error, state)), oracle, protocol_named(mode))
    return verdict.name, verdict.exit_code, verdict.reason


def test_consistent_cuts_are_valid() -> None:
    """Exit code 0, and the reason counts the judged cuts."""
    assert judge("aligned", (0, 0), (0, 0)) == (
        "valid", 0, "the job finished; 2 completed checkpoints, each a consistent cut",
    )  # fmt: skip


@pytest.mark.parametrize("error", [None, JobFailedError("later")])
def test_a_loss_that_a_sink_reports_is_a_violation(error: Exception | None) -> None:
    """So it is for any cuts, and whether the job has finished or failed; the reason names the first loss."""
    ended = Ended(error)
    ended.losses = ("part-0-1 is gone", "part-0-2 is gone")
    oracle = CutOracle([CutVerdict(1, 1, 4, 100, 0, 0)])
    verdict = judge_run(cast(ExecutionResult, ended), oracle, protocol_named("aligned"))
    assert (verdict.name, verdict.exit_code) == ("violated", 1)
    assert verdict.reason.endswith("are lost: part-0-1 is gone (and 1 further loss)")


def test_acking_is_judged_by_what_was_acknowledged() -> None:
    """A job ends once all records are acknowledged; without ackers none is known; state after a death is not judged."""
    def reason(attempts: int = 1, replayed: int = 0, **counts: int) -> str:
        ended = Ended()
        ended.acking = AckingStatistics(**counts)
        ended.source_records, ended.replayed_records, ended.attempts = 7 + replayed, replayed, attempts
        verdict = judge_run(cast(ExecutionResult, ended), CutOracle(), protocol_named("acking"))
        assert (verdict.name, verdict.exit_code) == ("valid", 0)
        return verdict.reason

    assert reason(tracked=7, completed=7) == "the job finished, and all of 7 records are acknowledged"
    assert "all of 7 records are acknowledged; 2 records were sent again" in reason(tracked=9, completed=7, replayed=2)
    assert "; the state that tasks lost when they died is not judged" in reason(attempts=2, tracked=7, completed=7)
    assert "without ackers nothing is tracked, and nothing is promised" in reason(completed=7)


def test_a_job_stopped_with_a_savepoint_is_judged_like_one_that_finished() -> None:
    """Only the words differ: it was stopped."""
    assert judge("aligned", (0, 0), state="stopped") == (
        "valid", 0, "the job stopped; 1 completed checkpoint, each a consistent cut",
    )  # fmt: skip
    assert judge("at-least-once", (0, 1), state="stopped")[:2] == ("violated", 1)
    assert judge("aligned", state="stopped")[2].startswith("the job stopped, but no checkpoint completed")


def test_a_savepoint_that_was_not_taken_is_not_valid() -> None:
    """Exit code 2: a script must not go on as if there were one."""
    oracle = CutOracle([CutVerdict(1, 1, 4, 100, 0, 0)])
    taken = SavepointReport(SavepointOrder(1, "/sp"), 2, "/sp/savepoint-1")
    missed = SavepointReport(SavepointOrder(2, "/sp"), error="disk full")

    def judged(*savepoints: SavepointReport) -> tuple[str, int, str]:
        result = cast(ExecutionResult, Ended(savepoints=savepoints))
        verdict = judge_run(result, oracle, protocol_named("aligned"))
        return verdict.name, verdict.exit_code, verdict.reason

    assert judged(taken)[:2] == ("valid", 0)
    assert judged(missed) == ("unknown", 2, "the job finished, but 1 savepoint asked for was not taken")
    assert judged(taken, missed)[2] == "the job finished, but 1 savepoint of the 2 asked for was not taken"


@pytest.mark.parametrize("cut", [(1, 0), (0, 1)])
def test_one_inconsistent_cut_violates_exactly_once(cut: tuple[int, int]) -> None:
    """Aligned barriers promise neither orphans nor lost records; the first bad checkpoint is named."""
    name, exit_code, reason = judge("aligned", (0, 0), cut, (2, 2))

    assert (name, exit_code) == ("violated", 1)
    assert "checkpoint 2 of attempt 1" in reason
    assert "1 further checkpoint" in reason


def test_at_least_once_may_count_twice_but_not_lose() -> None:
    """The mode predicts orphans; records in transit are lost in every mode."""
    name, exit_code, reason = judge("at-least-once", (3, 0))
    assert (name, exit_code) == ("valid", 0)
    assert "3 records that a restore would count twice" in reason

    assert judge("at-least-once", (3, 1))[:2] == ("violated", 1)


def test_nothing_judged_is_unknown() -> None:
    """A run without a completed checkpoint proves nothing, unless its mode takes none."""
    assert judge("aligned")[:2] == ("unknown", 2)
    assert judge("none")[:2] == ("valid", 0)


def test_a_violation_outweighs_a_failure() -> None:
    """That the job failed is known; that a checkpoint was wrong is the news."""
    error = JobFailedError("x")

    assert judge("aligned", (0, 0), error=error)[:2] == ("failed", 18)
    assert judge("aligned", (1, 0), error=error)[:2] == ("violated", 1)


def test_a_failed_job_has_the_exit_code_of_its_cause() -> None:
    """The cause says more than that the job failed; without one of its own it is 18."""
    failure = JobFailedError("x")
    failure.exit_code = StateError.exit_code
    killed = JobFailedError("x")
    killed.exit_code = WeirError.exit_code

    assert [exit_code_of(one) for one in (failure, killed, JobFailedError("x"), ValueError("x"))] == [15, 18, 18, 3]
