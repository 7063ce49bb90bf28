"""How a checkpoint is triggered: the periodic timer, the queue of requests (Flink: ``CheckpointRequestDecider``), and
the way from the chosen one to the tasks (Flink: ``CheckpointCoordinator.startTriggeringCheckpoint``).

The timer has one planned time. When it comes, it moves on by one interval: no drift, no coupling to completions. While
any source works off a backlog another interval applies, perhaps none. When that changes, the planned time becomes
earlier if the new interval asks for it, never later (Flink: ``rescheduleTrigger``).

Rules of the queue
------------------
R1  Order: savepoints before checkpoints, forced before others, requested before periodic, older before
    younger (by time of request, then by submission: Flink leaves that tie open).
R2  At most ``max_queued`` wait. When full: if the last in order is not periodic, the new request fails
    whatever its rank; else it is inserted and the last fails. Reason TOO_MANY_CHECKPOINT_REQUESTS.
R3  Nothing is chosen while another trigger is on its way to the tasks, while nothing waits, or while more than
    ``max_concurrent`` checkpoints are still being deleted: a slow file system throttles checkpoints.
R4  With ``max_concurrent`` or more pending only the head, and only if forced, is chosen.
R5  A periodic, not forced head that comes before ``last completion + min_pause`` fails (only it) with
    MINIMUM_TIME_BETWEEN_CHECKPOINTS, and the periodic timer is armed anew with exactly the rest. Equality of times
    lets it pass.
R6  Otherwise the head is chosen.

From the chosen request to the triggers
---------------------------------------
Make the plan, draw an id (a later failure leaves a gap), register the checkpoint and arm its timeout, initialize the
location, snapshot the operator coordinators, call the master hooks, send the triggers: one after the other, and one
checkpoint at a time. An error in any step aborts the checkpoint: IO_EXCEPTION, which counts against the failure
budget, or TRIGGER_CHECKPOINT_FAILURE, which does not. Answers for a checkpoint that is over are ignored.

*Ids* start at 1, grow, and are never used twice, restarts included.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from engine.checkpoint.coordinator.checkpoint_statistics import CheckpointStatistics
from engine.checkpoint.coordinator.coordinator_messages import (
    ArmPeriodicTimer,
    ArmTimeout,
    CallMasterHooks,
    DisarmPeriodicTimer,
    DiscardPendingCheckpoint,
    InitializeLocation,
    Out,
    SendTrigger,
    SnapshotOperatorCoordinators,
    TaskId,
)
from engine.checkpoint.coordinator.deployment import CheckpointPlan, Deployment, TasksNotRunningError
from engine.checkpoint.coordinator.pending import PendingCheckpoint, PendingPhase, PendingSet, TriggerRequest
from engine.checkpoint.coordinator.retained_checkpoints import Deletions
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import CheckpointBarrier, CheckpointOptions
from state_backends.base import value_class

DEFAULT_MAX_QUEUED = 1000
"""Requests that may wait (Flink: ``DEFAULT_MAX_QUEUED_REQUESTS``)."""


@value_class
class Situation:
    """The facts besides the queue that the choice depends on. ``last_completion_ns``: 0 before the first (Flink: the
    same), so a clock that starts at 0 has to wait for the pause first; a virtual clock starts far from 0."""

    now_ns: int
    is_triggering: bool = False
    pending: int = 0
    being_deleted: int = 0
    last_completion_ns: int = 0


@value_class
class Decision:
    """``chosen`` is to be triggered now, ``failed`` never; ``rearm_after_ns``: new delay of the periodic timer."""

    chosen: TriggerRequest | None = None
    failed: tuple[tuple[TriggerRequest, CheckpointFailureReason], ...] = ()
    rearm_after_ns: int | None = None


class CheckpointRequestDecider:
    """Holds the waiting requests; see the rules of the queue at the top of the module."""

    def __init__(self, max_concurrent: int = 1, min_pause_ns: int = 0, max_queued: int = DEFAULT_MAX_QUEUED) -> None:
        assert max_concurrent >= 1, max_concurrent
        assert max_queued >= 1, max_queued
        self._max_concurrent = max_concurrent
        self._min_pause_ns = min_pause_ns
        self._max_queued = max_queued
        self._queue: list[TriggerRequest] = []

    @property
    def queued(self) -> tuple[TriggerRequest, ...]:
        """The waiting requests in order."""
        return tuple(self._queue)

    def submit(self, request: TriggerRequest, situation: Situation) -> Decision:
        """Take in a new request and choose."""
        if len(self._queue) >= self._max_queued and not self._queue[-1].is_periodic:
            return Decision(failed=((request, CheckpointFailureReason.TOO_MANY_CHECKPOINT_REQUESTS),))
        insort(self._queue, request, key=TriggerRequest.rank)
        evicted: tuple[tuple[TriggerRequest, CheckpointFailureReason], ...] = ()
        if len(self._queue) > self._max_queued:
            evicted = ((self._queue.pop(), CheckpointFailureReason.TOO_MANY_CHECKPOINT_REQUESTS),)
        decision = self.choose(situation)
        return Decision(decision.chosen, evicted + decision.failed, decision.rearm_after_ns)

    def choose(self, situation: Situation) -> Decision:
        """Choose among the waiting requests."""
        if situation.is_triggering or not self._queue or situation.being_deleted > self._max_concurrent:
            return Decision()
        head = self._queue[0]
        if situation.pending >= self._max_concurrent and not head.is_forced:
            return Decision()
        if head.is_periodic and not head.is_forced:
            rest_ns = self._rest_of_pause_ns(situation)
            if rest_ns > 0:
                self._queue.pop(0)
                too_early = CheckpointFailureReason.MINIMUM_TIME_BETWEEN_CHECKPOINTS
                return Decision(failed=((head, too_early),), rearm_after_ns=rest_ns)
        return Decision(chosen=self._queue.pop(0))

    def _rest_of_pause_ns(self, situation: Situation) -> int:
        return situation.last_completion_ns + self._min_pause_ns - situation.now_ns

    def drain(self) -> tuple[TriggerRequest, ...]:
        """Take out all waiting requests, in order."""
        drained = tuple(self._queue)
        self._queue.clear()
        return drained

    def validate(self) -> None:
        ranks = [request.rank() for request in self._queue]
        assert ranks == sorted(ranks), ranks
        assert len(ranks) <= self._max_queued, len(ranks)

    def fingerprint(self) -> tuple[object, ...]:
        return tuple(request.fingerprint() for request in self._queue)


class PeriodicSchedule:
    """The periodic timer; the rules for its moves are at the top of the module.

    ``interval_ns``          time between two periodic triggers, ``None`` = there are none;
    ``backlog_interval_ns``  the same while a source works off a backlog.
    """

    def __init__(self, interval_ns: int | None, backlog_interval_ns: int | None) -> None:
        self._usual_ns = interval_ns
        self._backlog_ns = backlog_interval_ns
        self._in_backlog: dict[TaskId, None] = {}
        self._planned_ns: int | None = None
        self.is_running = False
        """Whether periodic checkpoints are being taken."""

    @property
    def _interval_ns(self) -> int | None:
        return self._backlog_ns if self._in_backlog else self._usual_ns

    def start(self, now_ns: int, first_delay_ns: int | None, out: Out) -> None:
        """All tasks run: fire after ``first_delay_ns``, by default after one interval."""
        self.is_running = True
        interval_ns = self._interval_ns
        if interval_ns is not None:
            self._arm(now_ns + (interval_ns if first_delay_ns is None else first_delay_ns), out)

    def stop(self, out: Out) -> None:
        """No periodic checkpoint is taken any more."""
        self.is_running = False
        if self._planned_ns is not None:
            self._planned_ns = None
            out.append(DisarmPeriodicTimer())

    def fire(self, now_ns: int, out: Out) -> bool:
        """The timer has fired; returns whether a checkpoint is due. A moved timer may still fire at its old time."""
        if self._planned_ns is None or now_ns < self._planned_ns:
            return False
        interval_ns = self._interval_ns
        if interval_ns is None:
            self._planned_ns = None
        else:
            # From the planned time, not from now: a late timer must not shift all later ones
            # (test_first_firing_comes_after_one_interval_and_firings_do_not_drift).
            self._arm(self._planned_ns + interval_ns, out)
        return True

    def postpone(self, at_ns: int, out: Out) -> None:
        """A request came too early after a completion: fire at ``at_ns`` instead."""
        # With an interval in records there is no timer to move (test_pause_without_a_timer_arms_none).
        if self.is_running and self._usual_ns is not None:
            self._arm(at_ns, out)

    def on_backlog(self, source: TaskId, is_backlog: bool, now_ns: int, out: Out) -> None:
        """A source has begun, or ended, to work off a backlog."""
        if is_backlog:
            self._in_backlog[source] = None
        else:
            self._in_backlog.pop(source, None)
        interval_ns = self._interval_ns
        if interval_ns is not None and self.is_running:
            at_ns = now_ns + interval_ns
            # Never later: sources that change often would put off checkpoints for ever
            # (test_a_backlog_slows_the_schedule_down).
            if self._planned_ns is None or at_ns < self._planned_ns:
                self._arm(at_ns, out)

    def forget_backlog(self, tasks: Iterable[TaskId]) -> None:
        """These tasks are deployed anew; each source among them reports its backlog again."""
        for task in tasks:
            self._in_backlog.pop(task, None)

    def _arm(self, at_ns: int, out: Out) -> None:
        self._planned_ns = at_ns
        out.append(ArmPeriodicTimer(at_ns))

    def validate(self) -> None:
        assert self._planned_ns is None or self.is_running, self._planned_ns

    def undisturbed_fingerprint(self) -> tuple[object, ...]:
        """Without the planned time."""
        return (self.is_running, tuple(sorted(self._in_backlog)))

    def fingerprint(self, now_ns: int) -> tuple[object, ...]:
        return (*self.undisturbed_fingerprint(), self._planned_ns and self._planned_ns - now_ns)


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """The settings that all checkpoints of a job share.

    ``options``  those of the barriers of an ordinary checkpoint; ``timeout_ns``, ``after_tasks_finish`` as in
    ``CoordinatorConfig``; ``operator_coordinators``, ``master_hooks``: the names of those that deliver first.
    """

    options: CheckpointOptions
    timeout_ns: int
    after_tasks_finish: bool
    operator_coordinators: tuple[str, ...]
    master_hooks: tuple[str, ...]


class Refusals(Protocol):
    """Takes requests that get no id."""

    def refuse(self, request: TriggerRequest, reason: CheckpointFailureReason, out: Out) -> None:
        """It was tried and failed."""


class TriggerPipeline:
    """Prepares one checkpoint at a time; see the top of the module."""

    def __init__(
        self,
        settings: PipelineSettings,
        deployment: Deployment,
        pending: PendingSet,
        deletions: Deletions,
        refusals: Refusals,
        statistics: CheckpointStatistics,
    ) -> None:
        self._settings = settings
        self._deployment = deployment
        self._pending = pending
        self._deletions = deletions
        self._refusals = refusals
        self._statistics = statistics
        self.next_id = 1
        """The id that the next checkpoint will get."""
        self._id_refusal: CheckpointFailureReason | None = None

    def keep_ids_above(self, checkpoint_id: int) -> None:
        """This id is taken, and so are those below."""
        self.next_id = max(self.next_id, checkpoint_id + 1)

    def refuse_next_id(self, reason: CheckpointFailureReason) -> None:
        """The next request that would draw an id fails with ``reason``."""
        self._id_refusal = reason

    # --- the steps ------------------------------------------------------------------------------------------------

    def begin(self, request: TriggerRequest, must_be_full: bool, now_ns: int, out: Out) -> None:
        """Trigger a checkpoint for ``request``. ``must_be_full``: it must not refer to the files of earlier ones."""
        try:
            plan = self._deployment.plan(after_tasks_finish=self._settings.after_tasks_finish)
        except TasksNotRunningError:
            reason = CheckpointFailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING
            self._refusals.refuse(request, reason, out)
            return
        if self._id_refusal is not None:
            refusal, self._id_refusal = self._id_refusal, None
            self._refusals.refuse(request, refusal, out)
            return
        self._register(request, plan, must_be_full, now_ns, out)

    def _register(
        self, request: TriggerRequest, plan: CheckpointPlan, must_be_full: bool, now_ns: int, out: Out
    ) -> None:
        settings, checkpoint_id = self._settings, self.next_id
        self.next_id += 1
        kind = request.kind(full_required=must_be_full)
        options = settings.options.for_snapshot(kind, request.stop, request.savepoint_format)
        # The clock of the trigger, not of the request, which may have waited
        # (test_a_request_that_waited_is_triggered_with_the_time_of_the_trigger).
        barrier = CheckpointBarrier(checkpoint_id, now_ns, options)
        self._pending.add(
            PendingCheckpoint(barrier, request, plan, settings.operator_coordinators, settings.master_hooks)
        )
        self._statistics.on_triggered(
            checkpoint_id,
            kind,
            now_ns,
            len(plan.wait),
            requested_ns=request.requested_ns,
            finished=plan.finished,
            is_synchronous=request.is_synchronous,
            savepoint_format=request.savepoint_format and request.savepoint_format.name,
        )
        # Before the location: a storage that hangs must not hang the coordinator
        # (test_timeout_is_armed_before_the_location_exists).
        out.append(ArmTimeout(checkpoint_id, now_ns + settings.timeout_ns))
        out.append(InitializeLocation(checkpoint_id, kind, request.label))

    def is_late(self, pending: PendingCheckpoint, now_ns: int) -> bool:
        """Whether its timeout has passed."""
        return now_ns >= pending.barrier.timestamp_ns + self._settings.timeout_ns

    # --- answers; each returns whether it has triggered the tasks -------------------------------------------------

    def on_location_ready(self, checkpoint_id: int, out: Out) -> bool:
        """The place for the snapshot exists: snapshot the operator coordinators, or trigger the tasks."""
        pending = self._pending.by_id.get(checkpoint_id)
        if pending is None:
            # Aborted meanwhile; nothing was deleted then because nothing was there
            # (test_location_that_comes_too_late_is_deleted).
            self._deletions.begin(DiscardPendingCheckpoint(checkpoint_id, ()), out)
            return False
        assert pending.phase is PendingPhase.INITIALIZING, (checkpoint_id, pending.phase)
        pending.phase = PendingPhase.PREPARING
        waiting = pending.waiting_coordinators
        if not waiting:
            return self._coordinators_delivered(pending, out)
        out.append(SnapshotOperatorCoordinators(checkpoint_id, waiting))
        return False

    def on_operator_coordinator_state(self, checkpoint_id: int, name: str, state: object, out: Out) -> bool:
        """An operator coordinator has delivered its state."""
        pending = self._pending.in_preparation(checkpoint_id)
        if pending is None:
            return False
        pending.on_coordinator_state(name, state)
        return not pending.waiting_coordinators and self._coordinators_delivered(pending, out)

    def on_master_hook_state(self, checkpoint_id: int, name: str, state: object, out: Out) -> bool:
        """A master hook has answered."""
        pending = self._pending.in_preparation(checkpoint_id)
        if pending is None:
            return False
        pending.on_hook_state(name, state)
        return not pending.waiting_hooks and self._trigger_tasks(pending, out)

    def _coordinators_delivered(self, pending: PendingCheckpoint, out: Out) -> bool:
        waiting = pending.waiting_hooks
        if not waiting:
            return self._trigger_tasks(pending, out)
        # Only now: a hook may look at what the coordinators have handed out (test_coordinators_then_hooks_then_tasks).
        out.append(CallMasterHooks(pending.checkpoint_id, waiting))
        return False

    def _trigger_tasks(self, pending: PendingCheckpoint, out: Out) -> bool:
        self._pending.triggered(pending)
        out.append(SendTrigger(pending.barrier, pending.plan.trigger))
        return True

    def fingerprint(self) -> tuple[object, ...]:
        return (self.next_id, self._id_refusal and self._id_refusal.name)
