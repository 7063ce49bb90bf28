"""Partial-order reduction: which of the ready events may be taken alone, because to take it now or later leads to the
same endings.

A search that tries every order of n events that do not touch each other walks through 2**n states and finds one
ending. Where an event is independent of everything that may happen before it is taken, it is enough to take it at once
(a persistent set of one event: Godefroid, Partial-Order Methods for the Verification of Concurrent Systems, 1996).
Each rule below says what an event touches and why nobody else touches that in a way that shows. Cycles, on which such
a rule could put an event off for ever, do not occur: a bounded job only ever goes on, and restarts are counted.

Rules.
R0  An event for a dead task touches nothing.
R1  A step of a snapshot touches its own part of the snapshot, files under names that nobody else uses, and at the end
    puts an acknowledgement into the job manager's mailbox. Acknowledgements are taken in any order.
R2  An acknowledgement that is not the last one of its checkpoint touches an entry of its own in the pending
    checkpoint. The last one completes it and is no such event.
R3  A task that is woken and has nothing to read touches nothing; nor does a source that has come to its end.
R4  A task that reads touches its own state and the queues of its outputs. To read at once loses no order if
    (a) at most one of the elements that wait for it cares about the others: ends of data, barriers that block their
        channel and the last watermark may be read before or after whatever comes from other inputs; and what arrives
        later may as well arrive before (it comes from somebody who can be faster);
    (b) no barrier may come that overtakes what waits: then it is how long an element waits that decides whether it is
        in flight. (Only records can be in flight: what is neutral by (a) is read at once nevertheless.)
    (c) on each output it is the only sender, or the receiver is a sink that does nothing but collect: the order of
        what comes from different senders does not show in what is collected as a whole (nor does (a) matter to it);
    (d) no output is full, and no element that it reads ends its input while a checkpoint may still be triggered:
        the job manager counts that end as before or behind the checkpoint.
    A barrier that has overtaken what waits is read at once: whether records of other inputs arrive before or after
    that, they are behind the cut until their own barrier comes, and stored.
R5  The trigger of a checkpoint, at a source whose barriers block: they make no difference to other inputs (R4a). And
    of any, once nobody has anything else to read.
R6  A notification, or the permission to finish, touches a task that has no effects outside. (The same for a task that
    has: when it is the only one of its kind, for then nobody else's effects come before or behind it.) Not if the
    task may finish by it while a checkpoint may be triggered.
R7  The news that a task has failed, when all tasks are to be restarted: whatever the others would have done in
    between, they can have done before the task died.

What has effects outside (a sink that shows records at once, a commit, a completed checkpoint) is independent of nothing
as soon as somebody may die: its order among all such events is what a crash shows. R4 is therefore not for jobs with
sinks that show what they get at once.

Bounds. Three things are no reductions, but limits of what is looked at, and switched off with them:
B1  A checkpoint that was to begin at any moment begins as soon as all sources have come to their end, if it has not.
B2  Once the last fault has struck, the job manager is faster than all tasks, and no barrier overtakes what can be read.
    What checkpoints do when nothing fails any more was looked at before the fault.
B3  Where barriers overtake, a sink that does nothing but collect reads at once: records in flight are looked at on all
    channels but the last. And a checkpoint is completed as soon as all have acknowledged it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.elements.batch import MAX_TIMESTAMP_MS
from engine.elements.events import CheckpointBarrier, EndOfData, EndOfPartition, Watermark
from engine.elements.operator import Operator
from engine.explore.check.fingerprint import is_void, task_of
from engine.graph.plan import ExecutionPlan, VertexPlan
from engine.runtime.channels import Element
from engine.runtime.config import RunConfig
from engine.runtime.execution import Execution
from engine.runtime.job import JobManager
from engine.runtime.kernel import ScheduledEvent
from engine.runtime.tasks import AsyncSnapshot, SourceTask, Task

Alternative = tuple[int, "ScheduledEvent"]

_NOTIFICATIONS = ("notify_checkpoint_complete", "notify_checkpoint_aborted", "notify_stop_complete", "may_finish")
_TRIGGERS = ("checkpoint_is_due", "records_interval_over", "on_timer", "resume_schedule", "savepoint_is_due")
_ENDS = (EndOfData, EndOfPartition)


class Independence:
    """Knows of one job which events may be taken alone."""

    def __init__(self, plan: ExecutionPlan, config: RunConfig) -> None:
        self._takes_all = config.failover != "region"
        self._overtakes = config.protocol.stores_channel_state
        self._ends = {vertex.index for vertex in plan.vertices if _has_effects(vertex)}
        self._only_end = sum(plan.vertices[index].parallelism for index in self._ends) == 1
        self.is_loud = any(_is_loud(plan.vertices[index]) for index in self._ends)
        self._collecting = collecting = {index for index in self._ends if len(plan.vertices[index].operators) == 1}
        self._blocks = config.mode == "aligned"
        self._last_watermark = Watermark(MAX_TIMESTAMP_MS)
        inputs = {(one.vertex, one.subtask): len(one.input_channels) for one in plan.subtasks}
        ordered = {
            channel.sender_vertex
            for channel in plan.channels
            if channel.receiver_vertex not in collecting
            and inputs[channel.receiver_vertex, channel.receiver_subtask] > 1
        }
        self._free_outputs = {vertex.index: vertex.index not in ordered for vertex in plan.vertices}

    def alone(
        self, execution: Execution, alternatives: Sequence[Alternative], *, is_calm: bool = False
    ) -> Alternative | None:
        """One of the ready events that may be taken without looking at the others first, if there is one. ``is_calm``:
        the last fault has struck; see the bounds."""
        now = self._situation(execution, is_calm)
        if is_calm:
            for alternative in alternatives:
                if task_of(alternative[1].target) is None:
                    return alternative
        elif now.may_trigger and _all_sources_ended(execution):
            for alternative in alternatives:
                if alternative[1].operation in ("checkpoint_is_due", "savepoint_is_due"):
                    return alternative
        for alternative in alternatives:
            if self._is_independent(execution, alternative[1], now):
                return alternative
        return None

    def _situation(self, execution: Execution, is_calm: bool) -> _Situation:
        coordinator = execution.manager.coordinator
        may_trigger = not execution.kernel.operations().isdisjoint(_TRIGGERS)
        pending = coordinator.pending.ids
        is_triggering = coordinator.pending.preparing_id is not None
        newest = None
        if self._overtakes and not is_calm:
            newest = _ANY if may_trigger or is_triggering else max(pending, default=None)
        return _Situation(may_trigger, is_triggering, execution.manager.end.all_ended, newest)

    def _is_independent(self, execution: Execution, event: ScheduledEvent, now: _Situation) -> bool:
        target, operation = event.target, event.operation
        if is_void(event) or isinstance(target, AsyncSnapshot):
            return True
        if isinstance(target, JobManager):
            if operation == "task_failed":
                return self._takes_all
            return operation == "receive_acknowledge" and (self._overtakes or not _is_last(execution, event))
        if not isinstance(target, Task):
            return self._overtakes and self._only_end and operation == "metadata_answered"
        if operation == "run":
            return self._is_quiet_run(target, now)
        return operation == "receive_mail" and self._is_quiet_mail(target, event.payload[0], now)

    def _is_quiet_run(self, task: Task, now: _Situation) -> bool:
        if isinstance(task, SourceTask):
            return task.input_ended
        if task.loop is not None:
            return False
        waiting = [element for channel in task.inputs for _, element in channel.queue]
        if not waiting:
            return True
        if any(channel.priority_events for channel in task.inputs):
            return True
        vertex = task.plan.vertex
        if self.is_loud or task.full_outputs or not self._free_outputs[vertex]:
            return False
        if vertex not in self._collecting and now.overtakes(task) and not all(map(self._is_neutral, waiting)):
            return False
        if now.may_trigger and any(element.__class__ in _ENDS for element in waiting) and task.end.open_inputs <= 1:
            return False
        return vertex in self._collecting or sum(not self._is_neutral(element) for element in waiting) <= 1

    def _is_neutral(self, element: Element) -> bool:
        """Whether it makes no difference if the element is read before or after one of another input."""
        kind = element.__class__
        return kind in _ENDS or (kind is CheckpointBarrier and self._blocks) or element == self._last_watermark

    def _is_quiet_mail(self, task: Task, operation: str, now: _Situation) -> bool:
        if operation == "trigger_checkpoint":
            return (self._blocks or now.all_ended) and isinstance(task, SourceTask)
        if operation not in _NOTIFICATIONS or (task.plan.vertex in self._ends and not self._only_end):
            return False
        if now.may_trigger or now.is_triggering:
            return operation != "may_finish" and not task.end.waits_to_finish
        return True


_ANY = 1 << 62
"""Newer than every checkpoint."""


@dataclass(frozen=True, slots=True)
class _Situation:
    """``may_trigger``: a checkpoint may still be triggered; ``is_triggering``: one is being prepared; ``all_ended``: no
    task has anything left to read but barriers; ``newest``: the newest checkpoint whose barriers overtake."""

    may_trigger: bool
    is_triggering: bool
    all_ended: bool
    newest: int | None

    def overtakes(self, task: Task) -> bool:
        """Whether a barrier may come to a task that overtakes what waits there."""
        if self.newest is None:
            return False
        handler = task.gate.handler
        return handler.latest_checkpoint_id < self.newest or bool(handler.pending_checkpoint_ids)


def _all_sources_ended(execution: Execution) -> bool:
    return all(task.input_ended for task in execution.manager.tasks.values() if isinstance(task, SourceTask))


def _is_last(execution: Execution, event: ScheduledEvent) -> bool:
    return len(execution.manager.coordinator.pending.missing(event.payload.checkpoint_id)) <= 1


def _has_effects(vertex: VertexPlan) -> bool:
    return any(not operator.edge_outputs and not operator.chained_outputs for operator in vertex.operators)


def _is_loud(vertex: VertexPlan) -> bool:
    """Whether something shows before a checkpoint completes: a sink that takes no notice of completed checkpoints."""
    ends = [one for one in vertex.operators if not one.edge_outputs and not one.chained_outputs]
    return any(type(one.factory()).notify_checkpoint_complete is Operator.notify_checkpoint_complete for one in ends)
