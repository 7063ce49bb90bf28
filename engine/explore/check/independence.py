"""Partial-order reduction: which ready events may be taken alone, because taking them now or later leads to the same
endings.

A search that tries every order of n events that do not touch each other walks through 2**n states and finds one
ending. If an event is independent of everything that may happen before it, it is enough to take it at once
(a persistent set of one event: Godefroid, Partial-Order Methods for the Verification of Concurrent Systems, 1996).
Each rule below says what an event touches, and why no other event touches that visibly. A rule could postpone an event
for ever only in a cycle. Cycles do not occur: a bounded job only moves forward, and restarts are counted.

Rules.
R0  An event for a dead task touches nothing.
R1  A step of a snapshot touches its own part of the snapshot and files under names that no other event uses. At its end
    it puts an acknowledgement into the job manager's mailbox; acknowledgements are taken in any order.
R2  An acknowledgement that is not the last one of its checkpoint touches only its own entry in the pending
    checkpoint. The last one completes the checkpoint, so this rule does not apply to it.
R3  A task that is woken and has nothing to read touches nothing; nor does a source that has come to its end.
R4  A task that reads touches its own state and the queues of its outputs. Reading at once loses no ending if
    (a) at most one of the waiting elements depends on its order among the others. Ends of data, barriers that block
        their channel and the last watermark may be read before or after elements of other inputs. An element that
        arrives later may as well arrive before, because its sender can be faster;
    (b) no barrier may come that overtakes waiting elements: otherwise the waiting time decides whether an element is
        in flight. (Only records can be in flight; elements that are neutral by (a) are read at once all the same.)
    (c) on each output it is the only sender, or the receiver is a sink that only collects: a collection as a whole does
        not show the order of elements from different senders (so (a) is not required there);
    (d) no output is full, and no element that it reads ends its last open input while a checkpoint may still be
        triggered: the job manager counts that end as before or after the checkpoint.
    A barrier that has overtaken waiting elements is read at once. Whether records of other inputs arrive before or
    after that, they are after the cut until their own barrier comes, and are stored.
R5  The trigger of a checkpoint is independent at a source whose barriers block: they make no difference to other inputs
    (R4a). It is independent at every source once no task has anything else to read.
R6  A notification, or the permission to finish, touches a task without effects outside, or the only task with
    effects (no other effects can come before or after it). The rule does not apply if the event may finish the task
    while a checkpoint may be triggered.
R7  The news that a task has failed, when all tasks are to be restarted: everything that the others could do before it,
    they can also have done before the task died.

Once a task may die, events with effects outside are independent of nothing: a sink that shows records at once, a
commit, a completed checkpoint. A crash makes their order among all such events visible. So R4 does not apply to jobs
with sinks that show their records at once.

Bounds. Three things are not reductions but limits of the search; they are switched off together with the reductions:
B1  A checkpoint that may begin at any moment begins at the latest when all sources have come to their end.
B2  Once the last fault has struck, the job manager is faster than all tasks, and no barrier overtakes elements that can
    be read. The search has covered checkpoints of an undisturbed job before the fault.
B3  Where barriers overtake, a sink that only collects reads at once: records in flight are searched on all channels but
    the last. And a checkpoint is completed as soon as all tasks have acknowledged it.
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
    """Decides for one job which events may be taken alone."""

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
        """A ready event that may be taken without trying the others first, if there is one. ``is_calm``: the last fault
        has struck; see the bounds."""
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
            return task.end.input_ended
        if task.end.loop is not None:
            return False
        waiting = [element for channel in task.inputs for _, element in channel.queue]
        if not waiting:
            return True
        if any(channel.priority_events for channel in task.inputs):
            return True
        vertex = task.place.plan.vertex
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
        if operation not in _NOTIFICATIONS or (task.place.plan.vertex in self._ends and not self._only_end):
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
        """Whether a barrier may come to a task that overtakes elements waiting there."""
        if self.newest is None:
            return False
        handler = task.gate.handler
        return handler.latest_checkpoint_id < self.newest or bool(handler.pending_checkpoint_ids)


def _all_sources_ended(execution: Execution) -> bool:
    return all(task.end.input_ended for task in execution.manager.tasks.values() if isinstance(task, SourceTask))


def _is_last(execution: Execution, event: ScheduledEvent) -> bool:
    return len(execution.manager.coordinator.pending.missing(event.payload.checkpoint_id)) <= 1


def _has_effects(vertex: VertexPlan) -> bool:
    return any(not operator.edge_outputs and not operator.chained_outputs for operator in vertex.operators)


def _is_loud(vertex: VertexPlan) -> bool:
    """Whether effects show before a checkpoint completes: the sink ignores completed checkpoints."""
    ends = [one for one in vertex.operators if not one.edge_outputs and not one.chained_outputs]
    return any(type(one.factory()).notify_checkpoint_complete is Operator.notify_checkpoint_complete for one in ends)
