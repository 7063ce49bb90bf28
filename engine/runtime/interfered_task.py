"""Tasks of a run in which something may go wrong: they say where they are, may die there, and may be paused.

They are built only when there is somebody to tell (:mod:`engine.runtime.interference`); without one, tasks are plain
ones and pay nothing.

Rules.

* A point is visited before and after its step. Who is struck down there is dead at that very instruction: nothing of it
  is closed, deleted or said, as when its process is killed.
* A paused task does nothing from the end of the present step on: what comes for it is held, in its order. A step has
  no duration, so that what has begun is done, but for notifications and acknowledgements: in these it stops midway.
* A task that the job manager has given up on is a *zombie* when it goes on: its mail is gone, but what it was about to
  do it still does. Then it learns that nobody waits for it, and ends (Flink: a task manager whose heartbeat timed out).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.checkpoint.instructions import NotifyOperatorsAborted, NotifyOperatorsComplete
from engine.elements.events import CheckpointBarrier
from engine.elements.operator import Operator
from engine.observe.points import AFTER, BEFORE
from engine.runtime.disturbed_task import DisturbedTask
from engine.runtime.interference import PROCESS, StruckDown
from engine.runtime.source_task import SourceTask
from engine.runtime.task import CANCELED, CREATED, FAILED, FINISHED, RUNNING, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from engine.elements.batch import Batch
    from engine.runtime.channel import Channel
    from engine.runtime.output_queue import Element
    from engine.runtime.outputs import RecordWriter
    from engine.runtime.task_steps import Notification

class Pause:
    """A while in which a task does nothing. ``held``: the events that have come meanwhile, as ``(target, operation,
    payload)``."""

    __slots__ = ("began_ns", "held", "until_ns")

    def __init__(self, began_ns: int, until_ns: int) -> None:
        self.began_ns, self.until_ns = began_ns, until_ns
        self.held: list[tuple[Any, str, Any]] = []

    def hold(self, target: Any, operation: str, payload: Any) -> None:
        """Keep an event for later."""
        self.held.append((target, operation, payload))

    def fingerprint(self, now_ns: int) -> object:
        """When it ends, and what is held."""
        return (self.until_ns - now_ns, tuple((operation, str(payload)) for _, operation, payload in self.held))


class InterferedTask(DisturbedTask):
    """A task that may be struck down and paused."""

    _is_reached = False
    """Whether a zombie has learned that it is one."""

    # -- points ---------------------------------------------------------------------------------------------------

    def wire(self, inputs: Iterable[Channel], writers: Iterable[RecordWriter]) -> None:
        """See the base class."""
        super().wire(inputs, writers)
        self.gate.visit = self.visit
        plans = self.vertex.operators
        self._is_sink = [not (plan.chained_outputs or plan.edge_outputs) for plan in plans]

    def _receiver(self, channel: Channel) -> Callable[[Batch], None]:
        return _VisitedReceiver(self, super()._receiver(channel))

    def _sinks(self, operator: Operator) -> bool:
        return any(is_sink and operator is one for is_sink, one in zip(self._is_sink, self.operators, strict=True))

    def handle_event(self, channel: Channel, event: Element) -> None:
        """See the base class."""
        if isinstance(event, CheckpointBarrier):
            self.visit("barrier.receive", BEFORE)
            super().handle_event(channel, event)
            self.visit("barrier.receive", AFTER)
        else:
            super().handle_event(channel, event)

    def initialize(self, operator: Operator) -> None:
        """See the base class."""
        self.visit("restore.recover-and-commit", BEFORE)
        self.visit("user.restore", BEFORE)
        super().initialize(operator)
        self.visit("user.restore", AFTER)
        self.visit("restore.recover-and-commit", AFTER)

    def prepare_operator(self, operator: Operator, checkpoint_id: int) -> None:
        """See the base class; most operators have nothing to say."""
        if type(operator).prepare_snapshot_pre_barrier is Operator.prepare_snapshot_pre_barrier:
            return
        self.visit("operator.prepare", BEFORE)
        super().prepare_operator(operator, checkpoint_id)
        self.visit("operator.prepare", AFTER)

    def finish_operator(self, operator: Operator) -> None:
        """See the base class; most operators have nothing left to do."""
        if type(operator).finish is Operator.finish:
            return
        self.visit("operator.finish", BEFORE)
        super().finish_operator(operator)
        self.visit("operator.finish", AFTER)

    def snapshot_operator(self, operator: Operator, checkpoint_id: int) -> None:
        """See the base class."""
        point = "sink.pre-commit" if self._sinks(operator) else None
        if operator is self.operators[0] and self.vertex.is_source:
            point = "source.offset-capture"
        if point is not None:
            self.visit(point, BEFORE)
        self.visit("user.snapshot", BEFORE)
        super().snapshot_operator(operator, checkpoint_id)
        self.visit("user.snapshot", AFTER)
        if point is not None:
            self.visit(point, AFTER)

    def may_notify(self, notification: Notification, operator: Operator) -> bool:
        """See the base class."""
        for point in self._notification_points(notification, operator):
            self.visit(point, BEFORE)
        return self.pause is None

    def notified(self, notification: Notification, operator: Operator) -> None:
        """See the base class."""
        for point in reversed(self._notification_points(notification, operator)):
            self.visit(point, AFTER)

    def _notification_points(self, notification: Notification, operator: Operator) -> tuple[str, ...]:
        if isinstance(notification, NotifyOperatorsComplete):
            return ("sink.commit", "user.commit") if self._sinks(operator) else ("user.notify",)
        if isinstance(notification, NotifyOperatorsAborted):
            return ("sink.abort", "user.notify") if self._sinks(operator) else ("user.notify",)
        return ()

    def close_operator(self, operator: Operator) -> None:
        """See the base class."""
        self.visit("user.close", BEFORE)
        super().close_operator(operator)
        self.visit("user.close", AFTER)

    def fire_timers(self, instant_ns: int) -> None:
        """See the base class."""
        if self.timers.is_due(instant_ns):
            self.visit("timer.fire", BEFORE)
            super().fire_timers(instant_ns)
            self.visit("timer.fire", AFTER)

    # -- death ----------------------------------------------------------------------------------------------------

    def die(self, error: Exception) -> None:
        """The process that the task is in is gone. What it had open is closed by nobody, what it has left is deleted by
        nobody; the job manager hears of it, for the connection is gone."""
        if self.state in (FINISHED, FAILED, CANCELED):
            return
        self.pause = None
        self._set_state(FAILED, error)
        self.perish()
        master = self.environment.master
        self.kernel.schedule(self.kernel.now_ns, "task_failed", master, (self.attempt, self.name, error))

    def perish(self) -> None:
        """Nothing of the task goes on. What a dead process does not hold, open files above all, is let go."""
        self.checkpointing.perish()
        for operator in self.operators:
            try:
                operator.abandon()
            except OSError as error:
                self.environment.master.note(f"{self.name} died with a file that cannot be closed: {error}")
        for context in self.contexts:
            context.perish()

    def _abandon(self) -> None:
        try:
            super()._abandon()
        except StruckDown as struck:
            if struck.target == PROCESS:
                raise
            struck.is_over = True
            self.perish()
            if struck.target != self.name:
                self.environment.master.condemn(struck.target, struck.cause)

    # -- pauses ---------------------------------------------------------------------------------------------------

    def begin_pause(self, for_ns: int) -> None:
        """Do nothing for a while. Nothing happens when the task is paused, or has ended."""
        if self.state not in (CREATED, RUNNING) or self.pause is not None or self.disowned:
            return
        now = self.kernel.now_ns
        self.pause = pause = Pause(now, now + for_ns)
        self._trace_state("paused")
        self.kernel.schedule(now + for_ns, "end_pause", self, pause)
        self.environment.master.task_paused(self, pause)

    def end_pause(self, pause: Pause) -> None:
        """The pause is over (kernel event): go on with what is held. A zombie has no mail."""
        if self.pause is not pause:
            return
        self.pause = None
        self._trace_state("resumed")
        now = self.kernel.now_ns
        self._stretch_work(pause.began_ns, now)
        for target, operation, payload in pause.held:
            if not (self.disowned and operation in ("receive_mail", "read_mail")):
                self.kernel.schedule(now, operation, target, payload)
        if self.disowned:
            self._mail.clear()
            self.kernel.schedule(max(now, self._slice_ends_ns), "end_zombie", self)

    @property
    def _slice_ends_ns(self) -> int:
        return self._slice_start_ns + self._slice_records * self.record_cost_ns

    def _stretch_work(self, began_ns: int, now: int) -> None:
        """No work was done in a pause: the slice that it has cut lasts so much longer."""
        if self._slice_records:
            self._slice_start_ns += now - began_ns
            self._slice_number += 1
            self.kernel.schedule(self._slice_ends_ns, "end_slice", self, self._slice_number)

    def end_zombie(self, _payload: None = None) -> None:
        """The task learns that the job manager has given up on it (kernel event)."""
        self._is_reached = True
        self.cancel()

    def cancel(self) -> None:
        """See the base class; who cannot be reached goes on."""
        if not self.disowned or self._is_reached:
            self.pause = None
            super().cancel()

    def put_off(self, operation: str, *arguments: object) -> None:
        """Do the rest of the present step once the pause is over."""
        assert self.pause is not None, self.name
        self.pause.hold(self, "go_on", (operation, arguments))

    def go_on(self, rest: tuple[str, tuple[Any, ...]]) -> None:
        """The rest of a step that a pause has cut (kernel event)."""
        if self.pause is not None:
            self.pause.hold(self, "go_on", rest)
        else:
            # It does not wait for the record in service: it belongs to a step that began before that.
            self.carry_out(rest)

    def notify_rest(self, notification: Notification, first: int) -> None:
        """The operators from ``first`` on hear of a checkpoint, behind a pause."""
        self.checkpointing.notify_rest(notification, first)

    def acknowledge_late(self, checkpoint_id: int) -> None:
        """Acknowledge a checkpoint, behind a pause."""
        self.checkpointing.acknowledge_late(checkpoint_id)

    def run(self, _payload: None = None) -> None:
        """See the base class."""
        if self.pause is not None:
            self.pause.hold(self, "run", None)
        else:
            super().run()

    def end_slice(self, number: int) -> None:
        """See the base class."""
        if self.pause is not None:
            self.pause.hold(self, "end_slice", number)
        else:
            super().end_slice(number)

    def receive_mail(self, mail: tuple[str, tuple[Any, ...]]) -> None:
        """See the base class."""
        if self.pause is not None:
            self.pause.hold(self, "receive_mail", mail)
        else:
            super().receive_mail(mail)

    def read_mail(self, _payload: None = None) -> None:
        """See the base class."""
        if self.pause is not None:
            self.pause.hold(self, "read_mail", None)
        else:
            super().read_mail()

    def finish(self) -> None:
        """See the base class."""
        if self.pause is not None:
            self.put_off("finish")
        else:
            super().finish()

    def stop(self) -> None:
        """See the base class."""
        if self.pause is not None:
            self.put_off("stop")
        else:
            super().stop()

    def fingerprint(self) -> object:
        """See the base class."""
        pause = None if self.pause is None else self.pause.fingerprint(self.kernel.now_ns)
        return (super().fingerprint(), self.disowned, pause)


class InterferedSourceTask(InterferedTask, SourceTask):
    """A source that may be struck down and paused."""

    def advance(self, records: int) -> None:
        """See the base class."""
        self.visit("source.emit", BEFORE)
        super().advance(records)
        self.visit("source.emit", AFTER)

    def trigger_checkpoint(self, barrier: CheckpointBarrier) -> None:
        """See the base class."""
        self.visit("barrier.inject", BEFORE)
        super().trigger_checkpoint(barrier)
        self.visit("barrier.inject", AFTER)

    def _count(self, emitted: int) -> None:
        if not self.disowned:
            super()._count(emitted)


class _VisitedReceiver:
    """What takes the records of an input, as a step of the task."""

    __slots__ = ("_receive", "_task")

    def __init__(self, task: Task, receive: Callable[[Batch], None]) -> None:
        self._task, self._receive = task, receive

    def __call__(self, batch: Batch) -> None:
        self._task.visit("user.process", BEFORE)
        self._receive(batch)
        self._task.visit("user.process", AFTER)
