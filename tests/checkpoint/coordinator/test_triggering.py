"""The queue of trigger requests, rule by rule; recorded scenarios are replayed by the conformance tests."""

from __future__ import annotations

import pytest

from engine.checkpoint.coordinator import TriggerRequest
from engine.checkpoint.coordinator.pending import RequestedForm
from engine.checkpoint.coordinator.triggering import CheckpointRequestDecider, Situation
from engine.elements.events import SnapshotKind


def periodic(sequence: int, timestamp_ns: int = 0) -> TriggerRequest:
    return TriggerRequest(sequence, timestamp_ns, is_periodic=True)


def test_too_early_periodic_request_is_dropped_and_the_rest_armed() -> None:
    """A periodic request within the pause fails, alone, and the timer gets exactly the rest of the pause."""
    decider = CheckpointRequestDecider(1, min_pause_ns=100)
    decider.submit(periodic(0), Situation(50, is_triggering=True))

    decision = decider.submit(periodic(1), Situation(120, last_completion_ns=50))

    assert decision.chosen is None
    assert [(request.sequence, reason.name) for request, reason in decision.failed] == [
        (0, "MINIMUM_TIME_BETWEEN_CHECKPOINTS")
    ]
    assert decision.rearm_after_ns == 30
    assert decider.queued == (periodic(1),)


@pytest.mark.parametrize(("now_ns", "passes"), [(149, False), (150, True)])
def test_the_end_of_the_pause_lets_pass(now_ns: int, passes: bool) -> None:
    """The pause is over at its last instant, not one later."""
    decider = CheckpointRequestDecider(1, min_pause_ns=100)

    decision = decider.submit(periodic(0), Situation(now_ns, last_completion_ns=50))

    assert passes is (decision.chosen is not None)


@pytest.mark.parametrize(("now_ns", "passes"), [(0, False), (99, False), (100, True), (10**15, True)])
def test_before_the_first_completion_the_pause_runs_from_zero(now_ns: int, passes: bool) -> None:
    """A clock that starts at zero makes the first checkpoint wait; one that starts far from it does not."""
    decider = CheckpointRequestDecider(1, min_pause_ns=100)

    assert passes is (decider.submit(periodic(0), Situation(now_ns)).chosen is not None)


def test_manual_requests_ignore_the_pause() -> None:
    """Only periodic requests wait for the pause."""
    decider = CheckpointRequestDecider(1, min_pause_ns=100)
    manual = TriggerRequest(0, 0)

    assert decider.submit(manual, Situation(60, last_completion_ns=50)).chosen == manual


def test_equal_timestamps_keep_the_order_of_submission() -> None:
    """Two requests of one instant run in the order in which they came."""
    decider = CheckpointRequestDecider(1)
    for sequence in range(3):
        decider.submit(periodic(sequence, 7), Situation(7, is_triggering=True))

    assert [request.sequence for request in decider.queued] == [0, 1, 2]


def test_pending_limit_holds_for_requests_that_are_not_forced() -> None:
    """With as many pending as allowed only a forced head goes on."""
    decider = CheckpointRequestDecider(2)
    assert decider.submit(TriggerRequest(0, 0), Situation(0, pending=2)).chosen is None

    forced = TriggerRequest(1, 5, is_savepoint=True, is_forced=True)

    assert decider.submit(forced, Situation(5, pending=2)).chosen == forced
    assert decider.choose(Situation(5, pending=1)).chosen == TriggerRequest(0, 0)


def test_drain_empties_the_queue_in_order() -> None:
    """Everything queued can be taken out to be failed."""
    decider = CheckpointRequestDecider(1)
    for sequence in range(2):
        decider.submit(periodic(sequence), Situation(0, is_triggering=True))

    assert (periodic(0), periodic(1)) == decider.drain()
    assert decider.queued == ()
    assert decider.fingerprint() == ()


@pytest.mark.parametrize(
    ("request_", "full_required", "kind"),
    [
        (TriggerRequest(0, 0), False, SnapshotKind.CHECKPOINT),
        (TriggerRequest(0, 0), True, SnapshotKind.FULL_CHECKPOINT),
        (TriggerRequest(0, 0, form=RequestedForm.FULL), False, SnapshotKind.FULL_CHECKPOINT),
        (TriggerRequest(0, 0, form=RequestedForm.INCREMENTAL), False, SnapshotKind.CHECKPOINT),
        (TriggerRequest(0, 0, form=RequestedForm.INCREMENTAL), True, SnapshotKind.FULL_CHECKPOINT),
        (TriggerRequest(0, 0, is_savepoint=True), True, SnapshotKind.SAVEPOINT),
    ],
)
def test_kind_of_snapshot(request_: TriggerRequest, full_required: bool, kind: SnapshotKind) -> None:
    """A checkpoint that must not refer to earlier files is full, whatever was requested; a savepoint stays one."""
    assert request_.kind(full_required) is kind
