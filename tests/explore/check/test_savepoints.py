"""An exhaustive check with savepoints: each at any moment, and the jobs that go on from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.elements.errors import ConfigurationError, JobFileError
from engine.explore.cases import Savepoint, read_scenario
from engine.explore.cases.savepoint_plans import KINDS
from engine.explore.check import CheckOrder, CheckReport, check
from engine.explore.run import Subject
from engine.runtime.execution import Execution
from tests.explore.check.jobs import calm_case, counting, merging, outcomes, straight


def checked(subject: Subject, *kinds: str, faults: int = 1, checkpoints: int = 0, **bounds: Any) -> CheckReport:
    case = replace(calm_case(checkpoints), savepoints=tuple(Savepoint(kind, 0) for kind in kinds))
    return check(subject, CheckOrder(case, faults=faults, **bounds))


@pytest.mark.parametrize("kind", KINDS)
def test_every_moment_of_a_savepoint_is_tried(kind: str) -> None:
    """A crash of any victim at any time: in the end readers see what they would see without a savepoint."""
    report = checked(straight(1), kind)
    assert report.verdict[0] == "valid", report.verdict
    assert report.found.is_complete
    assert report.outputs == 1


def test_a_job_that_stops_in_vain_shows_rows_twice() -> None:
    """A task dies after its commit and before the job has stopped: both endings are judged as at-least-once."""
    report = checked(straight(1), "stop")
    in_vain = [ending for ending in report.found.endings if ending.stopped_in_vain]
    assert (("out", ("0", "0")),) in [ending.committed for ending in in_vain]
    assert all(ending.committed == (("out", ("0",)),) for ending in report.found.endings if not ending.stopped_in_vain)


@pytest.mark.slow
def test_two_sources_stop_and_go_on() -> None:
    """A barrier on one input and not on the other yet, at each moment."""
    assert checked(counting(1, 1), "stop").verdict[0] == "valid"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stop", "savepoint"])
def test_reduction_loses_no_ending_of_savepoints(kind: str) -> None:
    """A search that tries savepoints at every event finds the same endings."""
    case = replace(calm_case(), savepoints=(Savepoint(kind, 0),))
    order = CheckOrder(case, faults=0, seconds=600)
    assert outcomes(straight(1), order)[0] == outcomes(straight(1), replace(order, reduction=False))[0]


def test_a_mistake_without_a_fault_does_not_speak_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Endings without a fault are judged by those of the job without savepoints."""
    monkeypatch.setattr(Execution, "_newest_state", lambda _execution: (None, ()))
    report = checked(straight(1), "stop", faults=0)
    assert report.verdict[:2] == ("violated", "without any fault the output is not exactly-once")
    assert report.witness is not None
    assert [one.kind for one in report.witness.savepoints] == ["stop"]
    assert report.confirmed is not None
    assert "V19" in [violation.invariant for violation in report.confirmed.violations]


def test_too_large_a_job_is_refused() -> None:
    """Not all of its endings without savepoints are known."""
    with pytest.raises(ConfigurationError, match="too large to be checked with savepoints"):
        checked(merging(), "stop", max_states=5)


def test_a_job_file_names_savepoints() -> None:
    """By what becomes of the job."""
    assert read_scenario({"savepoints": ["stop", "savepoint"]}).savepoints == ("stop", "savepoint")
    with pytest.raises(JobFileError, match="savepoints: 'pause' is none of savepoint, stop, drain, cancel"):
        read_scenario({"savepoints": ["pause"]})
