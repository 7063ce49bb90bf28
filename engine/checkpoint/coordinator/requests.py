"""When a checkpoint is triggered: the periodic timer, and the queue of requests (Flink: ``CheckpointRequestDecider``).

The timer has one planned time. When it comes, it moves on by one interval: no drift, no coupling to completions. While
any source works off a backlog the interval is another one, perhaps none. When that changes, the plan becomes earlier
if the new interval asks for it, never later (Flink: ``rescheduleTrigger``).

Rules of the queue
------------------
R1  Order: savepoints before checkpoints, forced before others, requested by somebody before periodic, older before
    younger (by time of request, then by submission: Flink leaves that tie open).
R2  At most ``max_queued`` wait. When full: if the last in order was requested by somebody, the new request fails
    whatever its rank; else it is inserted and the last fails. Reason TOO_MANY_CHECKPOINT_REQUESTS.
R3  Nothing is chosen while another trigger is on its way to the tasks, while nothing waits, or while more than
    ``max_concurrent`` checkpoints are still being deleted: a slow file system throttles checkpoints.
R4  With ``max_concurrent`` or more pending only the head, and only if forced, is chosen.
R5  A periodic, not forced head that comes before ``last completion + min_pause`` fails (only it) with
    MINIMUM_TIME_BETWEEN_CHECKPOINTS, and the periodic timer is armed anew with exactly the rest. Equality of times
    lets it pass.
R6  Otherwise the head is chosen.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from engine.checkpoint.coordinator.coordinator_messages import ArmPeriodicTimer, DisarmPeriodicTimer, Out, TaskId
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import SavepointFormat, SnapshotKind, StopMode

DEFAULT_MAX_QUEUED = 1000
"""Requests that may wait (Flink: ``DEFAULT_MAX_QUEUED_REQUESTS``)."""


class RequestedForm(Enum):
    """What a user asks for when requesting a checkpoint (Flink: ``CheckpointType``)."""

    CONFIGURED = "configured"
    FULL = "full"
    INCREMENTAL = "incremental"


@dataclass(frozen=True, slots=True)
class TriggerRequest:
    """One wish for a snapshot.

    ``sequence``     order of submission, unique;
    ``requested_ns`` when it was made; its checkpoint, if one is triggered, has a time of its own;
    ``label``        by which the requester wants to hear the outcome, ``None`` when nobody waits for it;
    ``is_forced``    may exceed ``max_concurrent`` (a savepoint while unaligned checkpoints are off);
    ``is_synchronous``  a savepoint that stops the job (Flink: stop-with-savepoint);
    ``stop``         how it stops the job (``None``: the driver does not tell tasks);
    ``savepoint_format``  how a savepoint is written, ``None`` for a checkpoint.
    """

    sequence: int
    requested_ns: int
    label: str | None = None
    is_periodic: bool = False
    is_savepoint: bool = False
    is_forced: bool = False
    is_synchronous: bool = False
    form: RequestedForm = RequestedForm.CONFIGURED
    stop: StopMode | None = None
    savepoint_format: SavepointFormat | None = None

    def rank(self) -> tuple[bool, bool, bool, int, int]:
        """R1 as a sort key."""
        return (
            not self.is_savepoint,
            not self.is_forced,
            self.is_periodic,
            self.requested_ns,
            self.sequence,
        )

    def kind(self, full_required: bool) -> SnapshotKind:
        """The kind of snapshot that serves it; ``full_required``: earlier files must not be referenced."""
        if self.is_savepoint:
            return SnapshotKind.SAVEPOINT
        if full_required or self.form is RequestedForm.FULL:
            return SnapshotKind.FULL_CHECKPOINT
        return SnapshotKind.CHECKPOINT

    def fingerprint(self) -> tuple[object, ...]:
        """As plain values, without its time: the queue's order already tells what follows from it."""
        by_rank = (self.is_savepoint, self.is_forced, self.is_periodic)
        savepoint = (self.stop and self.stop.value, self.savepoint_format and self.savepoint_format.value)
        return (*by_rank, self.label, self.is_synchronous, self.form.value, *savepoint)


@dataclass(frozen=True, slots=True)
class Situation:
    """What the choice depends on besides the queue. ``last_completion_ns``: 0 before the first (Flink: the same), so
    that a clock that starts at 0 has to wait for the pause first; a virtual clock starts far from 0."""

    now_ns: int
    is_triggering: bool = False
    pending: int = 0
    being_deleted: int = 0
    last_completion_ns: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """``chosen`` is to be triggered now, ``failed`` never; ``rearm_after_ns``: new delay of the periodic timer."""

    chosen: TriggerRequest | None = None
    failed: tuple[tuple[TriggerRequest, CheckpointFailureReason], ...] = ()
    rearm_after_ns: int | None = None


class CheckpointRequestDecider:
    """Holds the waiting requests; see the rules of the queue at the top of the module."""

    def __init__(
        self, max_concurrent: int = 1, min_pause_ns: int = 0, max_queued: int = DEFAULT_MAX_QUEUED
    ) -> None:
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
        """Assert the invariants."""
        ranks = [request.rank() for request in self._queue]
        assert ranks == sorted(ranks), ranks
        assert len(ranks) <= self._max_queued, len(ranks)

    def fingerprint(self) -> tuple[object, ...]:
        """All state that decides what happens next."""
        return tuple(request.fingerprint() for request in self._queue)


class PeriodicSchedule:
    """The periodic timer; what moves it is said at the top of the module.

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
        """The timer has fired; whether a checkpoint is due. The driver may be late with a timer that was moved."""
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
        # With an interval in records there is no timer to be moved (test_pause_without_a_timer_arms_none).
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
        """Assert the invariants."""
        assert self._planned_ns is None or self.is_running, self._planned_ns

    def undisturbed_fingerprint(self) -> tuple[object, ...]:
        """Without the planned time."""
        return (self.is_running, tuple(sorted(self._in_backlog)))

    def fingerprint(self, now_ns: int) -> tuple[object, ...]:
        """All state that decides what happens next; times relative to ``now_ns``."""
        return (*self.undisturbed_fingerprint(), self._planned_ns and self._planned_ns - now_ns)
