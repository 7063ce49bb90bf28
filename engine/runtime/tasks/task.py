"""A task: one subtask of a vertex in one attempt, with its inputs, barrier handler, operator chain and outputs.

Theory of operation.

* A task is woken when it may have work. It then handles one element and, if there are more, wakes itself again; between
  two elements every other event of the same instant may happen.
* Mail (triggers, notifications, timers) comes as kernel events, and is handled between two records, as priority
  events are. The record in service is completed first, whether the cost model charges its time or an
  operator spends it. Work planned after it is given up, so a *slice* is cut at exactly the right record, whatever the
  batch size. Only death does not wait.
* An element is started only while every output has credit; priority events are the exception.
* A failed, cancelled or finished task ignores everything still on its way to it: that is the fence between
  attempts on the data plane.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from engine.checkpoint.barriers import barrier_fingerprint
from engine.elements.batch import MAX_TIMESTAMP_MS, Batch
from engine.elements.events import CheckpointBarrier, EndOfData, EndOfPartition, Event, Watermark, WatermarkStatus
from engine.elements.operator import Operator
from engine.graph.plan import SubtaskPlan, VertexPlan
from engine.observe.trace_events import TaskState, TimerFired
from engine.runtime.channels import Channel, CheckpointedInputGate, Element, RecordWriter, TaskDebloater
from engine.runtime.kernel import TaskHook
from engine.runtime.storage import RestoredOperator
from engine.runtime.tasks.environment import TaskEnvironment, TaskPlace
from engine.runtime.tasks.operator_chain import OperatorChain
from engine.runtime.tasks.task_checkpoint import TaskCheckpointing
from engine.runtime.tasks.task_context import TaskOperatorContext
from engine.runtime.tasks.task_end import TaskEnd
from engine.runtime.tasks.task_timers import TaskTimers
from engine.runtime.tasks.watched import WatchedChain

if TYPE_CHECKING:
    from engine.runtime.tasks.feedback_loops import Loop

Mail = tuple[str, tuple[Any, ...]]
"""A method of the task, and its arguments."""

_TAKEN_BY = {
    "debloat": attrgetter("gate.debloater"),
    "notify_checkpoint_complete": attrgetter("checkpointing"),
    "notify_stop_complete": attrgetter("checkpointing"),
    "notify_checkpoint_aborted": attrgetter("checkpointing"),
    "output_timeout": attrgetter("checkpointing"),
    "notify_rest": attrgetter("checkpointing"),
    "acknowledge_late": attrgetter("checkpointing"),
    "end_loop": attrgetter("end"),
    "may_finish": attrgetter("end"),
    "materialize": attrgetter("chain"),
    "fire_timers": attrgetter("timers"),
    "release_watermarks": attrgetter("hook"),
    "acker_reply": attrgetter("spout"),
    "acking_tick": attrgetter("spout"),
    "commit_offsets": attrgetter("spout"),
}
"""Mail for a part of the task; all other mail names a method of the task itself."""

KILL = "kill"
"""The only mail that does not wait for a record."""

CREATED, RUNNING, FINISHED, FAILED, CANCELED = "created", "running", "finished", "failed", "canceled"


def _mail_argument(argument: object) -> object:
    return barrier_fingerprint(argument) if isinstance(argument, CheckpointBarrier) else str(argument)


class Task:
    """One subtask in one attempt. Driven by kernel events; see the module's theory of operation."""

    def __init__(self, plan: SubtaskPlan, vertex: VertexPlan, environment: TaskEnvironment) -> None:
        self.plan = plan
        self.vertex = vertex
        self.environment = environment
        self.name = plan.name
        self.task_id = (plan.vertex, plan.subtask)
        self.attempt = environment.attempt
        self.kernel = environment.kernel
        self.state = CREATED
        self.disowned = False
        """Whether the job manager has declared the task dead: its further actions are ignored."""
        self.inputs: list[Channel] = []
        self.gate: CheckpointedInputGate
        self.writers: list[RecordWriter] = []
        self.chain: OperatorChain
        self.operators: list[Operator] = []
        """Those of the chain."""
        self.contexts: list[TaskOperatorContext] = []
        """Of the operators."""
        self.full_outputs = 0
        self.records_out = 0
        self.takes_single_records = False
        """Whether operators get one record at a time, since they spend time on records."""
        self.input_ended = False
        self.is_stopping = False
        """A savepoint that stops the job was taken: no element is processed any more."""
        self.end: TaskEnd
        self.record_cost_ns = environment.cost.record_cost_ns(vertex.names_of(plan.subtask), is_source=vertex.is_source)
        self.checkpointing: TaskCheckpointing
        self._record_bytes = environment.cost.record_bytes
        self._receivers: list[Callable[[Batch], None]] = []
        """By input channel: the receiver of its records."""
        self.loop: Loop | None = None
        """The loop that the task is part of, if it is part of one."""
        self.watched: WatchedChain | None = None
        """Reports the causes of records; absent when the run keeps no ledger."""
        self._woken = False
        self._slice_channel: Channel | None = None
        self._slice_start_ns = 0
        self._slice_records = 0
        self._slice_number = 0
        self._mail: deque[Mail] = deque()
        """Mail that waits for the end of the record in service."""
        self._resting_until_ns = 0
        self._spent_until_ns = 0
        """The end of the time that operators have charged for their work."""
        self.hook: TaskHook | None = None if environment.hook is None else environment.hook.for_task(self)
        self.place = TaskPlace(plan, vertex, environment, self.hook)
        """The task's place, as its parts know it."""
        self.around = self.place.around
        self.timers = TaskTimers(self, self.kernel, self.around)
        self.tracking = None if environment.tracking is None else environment.tracking.for_task(self)

    # -- building ---------------------------------------------------------------------------------------------

    def wire(self, inputs: Iterable[Channel], writers: Iterable[RecordWriter]) -> None:
        """Attach channels; then the operators can be built."""
        self.inputs = list(inputs)
        self.writers = list(writers)
        self.chain = OperatorChain(self.place, len(self.inputs))
        edges = self.environment.plan.edges
        looped = [channel for channel in self.inputs if edges[channel.plan.edge].is_feedback]
        for channel in looped:
            # No watermark ever comes on this channel.
            self.chain.valve.on_status(channel.input_index, True)
        self.checkpointing = checkpointing = TaskCheckpointing(self, self.place, self.chain, self.inputs, self.writers)
        self.end = TaskEnd(self, self.place, self.chain, self.timers, checkpointing, len(self.inputs), looped)
        protocol = self.environment.protocol
        back_edges = [channel.input_index for channel in looped]
        self.gate = CheckpointedInputGate(
            self,
            self.checkpointing,
            self.inputs,
            partial(protocol.barrier_handler, back_edges=back_edges) if back_edges else protocol.barrier_handler,
            self.checkpointing.channel_state,
            captures=protocol.stores_channel_state,
            back_edges=back_edges,
            hook=self.hook,
        )
        if self.environment.debloating is not None and self.inputs:
            bounded = [channel for channel in self.inputs if channel not in looped]
            self.gate.debloater = TaskDebloater(self.environment.debloating, self.kernel, bounded, self)
        self.operators = self.chain.operators
        if self.environment.provenance is not None:
            self.watched = WatchedChain.of(self.place, self.operators, self.chain.plans)
        self.chain.connect(self.writers, partial(TaskOperatorContext, self, self.place, self.timers), self.watched)
        self.contexts = self.chain.contexts
        receivers = [self._receiver(channel) for channel in self.inputs]
        self._receivers = receivers if self.hook is None else list(map(self.hook.within_process, receivers))

    def _receiver(self, channel: Channel) -> Callable[[Batch], None]:
        receive = self.chain.receiver(self.environment.target_input(channel.plan.edge))
        if self.tracking is not None:
            return self.tracking.receiver(receive)
        return receive if self.watched is None else self.watched.receiver(receive)

    def start(self, restored: Mapping[str, RestoredOperator], checkpoint_id: int | None) -> None:
        """Restore state, open the operators and begin to run. Errors fail the task."""
        self.checkpointing.restored(checkpoint_id)
        if self.watched is not None:
            self.watched.provenance.restored(checkpoint_id)
        if self._survives(lambda: self._open(restored, checkpoint_id)):
            self._set_state(RUNNING)
            if self.gate.debloater is not None:
                self.gate.debloater.begin_period()
            self.wake()

    def _open(self, restored: Mapping[str, RestoredOperator], checkpoint_id: int | None) -> None:
        self.chain.open(restored, checkpoint_id, self.checkpointing.local)

    def _survives(self, step: Callable[[], None]) -> bool:
        """Whether a step goes well; an error in it fails the task."""
        try:
            step()
        except AssertionError:
            raise
        except Exception as error:
            self.fail(error)
            return False
        return True

    # -- waking up and choosing an element --------------------------------------------------------------------

    def wake(self) -> None:
        """Make sure that the task looks for work at the current instant."""
        if not self._woken:
            self._woken = True
            self.kernel.schedule(self.kernel.now_ns, "run", self)

    def priority_event_arrived(self) -> None:
        """A priority event must be handled before the next record, whatever the task is doing."""
        self.wake()

    def credit_returned(self) -> None:
        """One full output channel has credit again."""
        self.full_outputs -= 1
        if not self.full_outputs:
            self.wake()

    def run(self, _payload: None = None) -> None:
        """Handle one element, if there is one and it may be started."""
        if self.hook is not None and not self.hook.may("run"):
            return
        self._woken = False
        if self.state != RUNNING:
            return
        if self.is_stopping:
            self._survives(self._await_barriers_coming_back)
            return
        if self._mail or (self._slice_records and not (self.inputs and self.gate.has_priority_event)):
            return
        idle_until_ns = max(self._resting_until_ns, self._free_at_ns())
        if self.hook is not None and self.kernel.now_ns >= idle_until_ns and not self._slice_records:
            hold_ns = self.hook.hold_ns()
            if hold_ns:
                self.rest(hold_ns)
                idle_until_ns = self._resting_until_ns
        if self.kernel.now_ns < idle_until_ns:
            self._woken = True
            self.kernel.schedule(idle_until_ns, "run", self)
            return
        try:
            if self._slice_records:
                # Between two records: the finished part of the slice is handled first.
                self.interrupt()
            if self.state == RUNNING:
                self._run_once()
        except AssertionError:
            raise
        except Exception as error:
            self.fail(error)

    def _run_once(self) -> None:
        channel = self.gate.next_channel()
        if channel is None or (self.full_outputs and not channel.priority_events):
            if channel is None and self.loop is not None:
                self.loop.task_idle()
            return
        element = channel.head()
        if isinstance(element, Batch):
            records = 1 if self.takes_single_records else len(element)
            if self.record_cost_ns:
                self._slice_channel = channel
                self._begin_slice(records)
            else:
                self._hand_over(channel, records)
            return
        channel.take()
        self.handle_event(channel, element)
        self.gate.pass_turn(channel)

    # -- slices: work that takes virtual time -------------------------------------------------------------------

    def _begin_slice(self, records: int) -> None:
        assert not self._slice_records
        self._slice_start_ns = start = self.kernel.now_ns
        self._slice_records = records
        self._slice_number += 1
        self.kernel.schedule(start + records * self.record_cost_ns, "end_slice", self, self._slice_number)

    def end_slice(self, number: int) -> None:
        """The slice is over (kernel event); void when mail has cut the slice meanwhile."""
        if self.hook is not None and not self.hook.may("end_slice", number):
            return
        if number != self._slice_number or self.state != RUNNING:
            return
        records, self._slice_records = self._slice_records, 0
        try:
            self.advance(records)
        except AssertionError:
            raise
        except Exception as error:
            self.fail(error)

    def interrupt(self) -> None:
        """Carry out the part of the running slice that is over by now, and give up the rest of it."""
        planned = self._slice_records
        if planned:
            self._slice_records = 0
            self._slice_number += 1
            done = min(planned, (self.kernel.now_ns - self._slice_start_ns) // self.record_cost_ns)
            if done:
                self.advance(done)
            self.wake()

    def work_stood_still(self, for_ns: int) -> int:
        """No work was done for a while: the interrupted slice lasts so much longer. Returns when it ends."""
        if self._slice_records:
            self._slice_start_ns += for_ns
            self._slice_number += 1
            ends_ns = self._slice_start_ns + self._slice_records * self.record_cost_ns
            self.kernel.schedule(ends_ns, "end_slice", self, self._slice_number)
            return ends_ns
        return self.kernel.now_ns

    def advance(self, records: int) -> None:
        """Handle ``records`` records of the batch at the head; their virtual time has passed."""
        assert self._slice_channel is not None
        self._hand_over(self._slice_channel, records)

    def _hand_over(self, channel: Channel, records: int) -> None:
        spent_until_ns = self._spent_until_ns
        batch = channel.take_records(records)
        self.gate.handler.clock.add_bytes(records * self._record_bytes)
        self._receivers[channel.input_index](batch)
        self.notice_spending(spent_until_ns)
        self.gate.pass_turn(channel)

    def notice_spending(self, spent_until_ns: int) -> None:
        """Records were handed to the operators; before that, their spent time was over at ``spent_until_ns``."""
        if self._spent_until_ns != spent_until_ns and not self.takes_single_records:
            # From now on barriers and mail come between two records, as they do when the cost model charges them.
            self.takes_single_records = not any(operator.spends_per_batch for operator in self.operators)

    def rest(self, virtual_ns: int) -> None:
        """Start no further element for ``virtual_ns``."""
        self._resting_until_ns = max(self._resting_until_ns, self.kernel.now_ns) + virtual_ns

    def spend(self, virtual_ns: int) -> None:
        """The last step of the task takes ``virtual_ns``."""
        self._spent_until_ns = self.busy_until_ns + virtual_ns

    # -- events in the stream -----------------------------------------------------------------------------------

    def handle_event(self, channel: Channel, event: Element) -> None:
        """An event was taken from ``channel``."""
        index, now = channel.input_index, self.kernel.now_ns
        match event:
            case Watermark() | WatermarkStatus():
                if self.hook is None or self.hook.may("take_time", (index, event)):
                    self.chain.take_time(index, event)
            case CheckpointBarrier():
                with self.around("barrier.receive"):
                    self.gate.handle(channel, event, now)
            case EndOfData():
                self.end.end_of_data(channel)
            case EndOfPartition():
                self.gate.handle(channel, event, now)
                self.end.end_of_partition(channel)
            case _:
                self.gate.handle(channel, event, now)

    # -- reports of the gate ------------------------------------------------------------------------------------

    def channel_state_changed(self, checkpoint_id: int) -> None:
        """One of the slots of the output part of a checkpoint's channel state is filled, or failed."""
        self.checkpointing.channel_state_changed(checkpoint_id)

    def alignment_timeout(self, checkpoint_id: int) -> None:
        """The alignment timer of a checkpoint fires (mail)."""
        self.gate.on_timeout(checkpoint_id, self.kernel.now_ns)

    def report_backlog(self, is_backlog: bool) -> None:
        """The source has begun, or ended, to work off a backlog."""
        self.environment.master.source_backlog(self, is_backlog)

    def input_recovered(self) -> None:
        """The task has read all restored records in flight."""
        self.environment.master.task_recovered(self)

    def broadcast(self, event: Event) -> None:
        """Send ``event`` on all outputs."""
        for writer in self.writers:
            writer.broadcast(event)

    # -- the end ------------------------------------------------------------------------------------------------

    def end_input(self) -> None:
        """The last record has come."""
        self.end.end_input()
        self.trace_state("end_of_data")
        self.environment.master.task_reached_end(self)

    def output_consumed(self) -> None:
        """An output channel for which the task has waited is empty."""
        self.end.output_consumed()

    def finish(self) -> None:
        """The task has received everything: close, unless it must wait for a checkpoint or its outputs."""
        with self.around(None, rest=("finish", ())) as goes_on:
            if goes_on:
                self.end.finish()

    def finish_now(self) -> None:
        """Close, and end the outputs."""
        self.broadcast(EndOfPartition())
        self.checkpointing.abandon()
        if self._survives(self.chain.close):
            self.chain.dispose()
            self._set_state(FINISHED)
            self.environment.master.task_finished(self)

    # -- mail -----------------------------------------------------------------------------------------------------

    def start_finished(self) -> None:
        """The restored checkpoint says that this task had finished. Its operators are not run, and the tasks that read
        from it learn that nothing comes (Flink: ``FinishedOperatorChain``)."""
        self.input_ended = True
        if self.loop is not None:
            self.loop.task_restored_finished()
        self.broadcast(Watermark(MAX_TIMESTAMP_MS))
        self.broadcast(EndOfData())
        self.broadcast(EndOfPartition())
        self._set_state(FINISHED)
        self.environment.master.task_reached_end(self)
        self.environment.master.task_finished(self)

    def _await_barriers_coming_back(self) -> None:
        """The job stops with a savepoint whose barrier has yet to come round: records that come back before it are in
        the savepoint, and are not processed."""
        while self.gate.handler.pending_checkpoint_ids:
            channel = self.gate.next_back_edge()
            if channel is None:
                return
            element = channel.take()
            if not isinstance(element, Batch):
                self.handle_event(channel, element)

    def await_stop(self) -> None:
        """The snapshot of a savepoint that stops the job was taken: wait for its completion, process nothing more.
        Timers are in it already; firing them here would make their effects happen twice."""
        self.is_stopping = True
        self.timers.silence()

    def stop(self) -> None:
        """The savepoint that stops the job is complete: end, without any of the end-of-input effects."""
        with self.around(None, rest=("stop", ())) as goes_on:
            if goes_on:
                self.finish_now()

    def receive_mail(self, mail: Mail) -> None:
        """A message for this task (kernel event): ``(method of the task's checkpointing or the task, arguments)``.

        It waits for the end of the record in service, and for mail that came earlier (Flink: ``MailboxProcessor``)."""
        if self.hook is not None and not self.hook.may("receive_mail", mail):
            return
        if mail[0] == KILL or (not self._mail and self._is_between_records()):
            self.carry_out(mail)
            return
        if not self._mail:
            self.kernel.schedule(self._free_at_ns(), "read_mail", self)
        self._mail.append(mail)

    def read_mail(self, _payload: None = None) -> None:
        """The record in service is done: carry out the mail that came meanwhile (kernel event)."""
        if self.hook is not None and not self.hook.may("read_mail"):
            return
        while self._mail:
            if not self._is_between_records():
                self.kernel.schedule(self._free_at_ns(), "read_mail", self)
                return
            self.carry_out(self._mail.popleft())
        self.wake()

    def _is_between_records(self) -> bool:
        if self._slice_records and self.state == RUNNING and self._free_at_ns() == self.kernel.now_ns:
            # Operators may spend time on the mail carried out here, besides the time that the cost model charges.
            self._survives(self.interrupt)
        return self.state != RUNNING or self._free_at_ns() == self.kernel.now_ns

    def drop_mail(self) -> None:
        """Mail that has come is not read any more."""
        self._mail.clear()

    def happens(self, event: tuple[str, Any]) -> None:
        """An event that the hook has arranged is due (kernel event)."""
        assert self.hook is not None, event
        self.hook.happens(event)

    def carry_out(self, mail: Mail) -> None:
        """Carry out a message, now."""
        operation, arguments = mail
        if self.state != RUNNING:
            if operation == "trigger_checkpoint" and self.state == FINISHED:
                # It finished while the trigger was on its way: only it can tell the coordinator that it takes no part.
                self.checkpointing.trigger_refused(arguments[0].checkpoint_id, is_closing=True)
            return
        try:
            if self._slice_records:
                self.interrupt()
            if self.state == RUNNING:
                part = _TAKEN_BY.get(operation)
                getattr(self if part is None else part(self), operation)(*arguments)
        except AssertionError:
            raise
        except Exception as error:
            self.fail(error)

    def _free_at_ns(self) -> int:
        """When the record in service is done; now, if none is."""
        now = self.kernel.now_ns
        if self._slice_records:
            return now + (self._slice_start_ns - now) % self.record_cost_ns
        return max(self._spent_until_ns, now)

    def trigger_checkpoint(self, barrier: CheckpointBarrier) -> None:
        """The coordinator triggers this task directly, without barriers on its inputs."""
        if self.end.is_closing or not self.gate.is_recovered:
            self.checkpointing.trigger_refused(barrier.checkpoint_id, is_closing=self.end.is_closing)
            return
        self.gate.on_trigger(barrier, self.kernel.now_ns)

    def coordinator_event(self, position: int, event: Any) -> None:
        """The coordinator of the operator at ``position`` has sent an event. After the end of the data, or after the
        savepoint that stops the job, it must have no effect."""
        if not self.input_ended and not self.is_stopping:
            self.operators[position].on_coordinator_event(event)

    def timer_fires(self, position: int, time_ns: int) -> None:
        """A timer that the operator at ``position`` has asked for is due."""
        if self.environment.instrument is not None:
            name = self.contexts[position].name
            self.environment.instrument(TimerFired(self.kernel.now_ns, self.attempt, self.name, name, time_ns))
        self.operators[position].on_processing_time_ns(time_ns)

    @property
    def takes_timers(self) -> bool:
        """Whether a timer may still have effects: not after the end of data, nor after the savepoint that stops the
        job."""
        return not (self.input_ended or self.is_stopping)

    # -- end --------------------------------------------------------------------------------------------------------

    def kill(self, cause: Exception) -> None:
        """Die at this very record (fault injection)."""
        self.fail(cause)

    @property
    def is_alive(self) -> bool:
        """Whether the task has not ended in any way."""
        return self.state not in (FINISHED, FAILED, CANCELED)

    def fail(self, error: Exception, last_step: Callable[[], None] | None = None) -> None:
        """Stop at once and tell the job manager. ``last_step``: runs instead of closing and deleting."""
        if not self.is_alive:
            return
        self._set_state(FAILED, error)
        if last_step is None:
            self._abandon()
        else:
            last_step()
        self.kernel.schedule(
            self.kernel.now_ns, "task_failed", self.environment.master, (self.attempt, self.name, error)
        )

    def cancel(self) -> None:
        """Stop at once because the attempt is over."""
        if self.hook is not None and not self.hook.may("cancel"):
            return
        if self.is_alive:
            self._set_state(CANCELED)
            self._abandon()

    def _abandon(self) -> None:
        if self.hook is None:
            self._clean_up()
        else:
            with self.hook.alone(is_dead=True):
                self._clean_up()

    def _clean_up(self) -> None:
        self.checkpointing.abandon()
        self.chain.close_anyhow()
        self.chain.dispose()

    def perish(self) -> None:
        """The process of the task is gone: all its work stops, and nothing is cleaned up."""
        self.checkpointing.perish()
        self.chain.perish()

    def _set_state(self, state: str, cause: Exception | None = None) -> None:
        self.state = state
        self.trace_state(state, cause)
        if self.tracking is not None and state in (FAILED, CANCELED):
            self.tracking.task_died()

    def trace_state(self, state: str, cause: Exception | None = None) -> None:
        """Tell the instrument in which state the task is."""
        if self.environment.instrument is not None:
            text = None if cause is None else f"{type(cause).__name__}: {cause}"
            self.environment.instrument(TaskState(self.kernel.now_ns, self.attempt, self.name, state, text))

    @property
    def is_running(self) -> bool:
        """Whether the task takes part: it has begun, and has not ended in any way."""
        return self.state == RUNNING

    @property
    def clock_ns(self) -> int:
        """The processing-time clock of the task: virtual time, unless a fault has set it wrong."""
        return self.kernel.now_ns if self.hook is None else self.kernel.now_ns + self.hook.clock_skew_ns()

    def clock_ms(self) -> int:
        """The same in ms."""
        return self.clock_ns // 1_000_000

    @property
    def is_silent(self) -> bool:
        """Whether the task cannot be heard or reached."""
        return self.hook is not None and self.hook.is_silent

    @property
    def busy_until_ns(self) -> int:
        """The end of the time that operators have spent so far; now, if none is left."""
        return max(self._spent_until_ns, self.kernel.now_ns)

    @property
    def records_in(self) -> int:
        """Records taken from all inputs."""
        return sum(channel.received_records for channel in self.inputs)

    def validate(self) -> None:
        full = sum(channel.full for writer in self.writers for channel in writer.channels)
        full += sum(context.holds_input for context in self.contexts)
        assert full == self.full_outputs, (self.name, full, self.full_outputs)
        self.gate.validate()

    def fingerprint(self) -> object:
        now = self.kernel.now_ns
        return (
            self.name,
            self.state,
            self.input_ended,
            self.is_stopping,
            self.end.fingerprint(),
            self.full_outputs,
            self.takes_single_records,
            (self._slice_records, self._slice_records and now - self._slice_start_ns),
            [(operation, *map(_mail_argument, arguments)) for operation, arguments in self._mail],
            (max(0, self._resting_until_ns - now), max(0, self._spent_until_ns - now)),
            self.timers.fingerprint(now),
            self.gate.fingerprint(),
            self.chain.valve.fingerprint(),
            tuple(writer.router.fingerprint() for writer in self.writers),
            # A task that has died while it took over its state, say, has none yet.
            tuple(operator.fingerprint() for operator in self.operators) if self.state == RUNNING else None,
            tuple(context.fingerprint() for context in self.contexts),
            self.checkpointing.fingerprint(),
            None if self.loop is None else self.loop.fingerprint(),
            None if self.hook is None else self.hook.fingerprint(),
            None if self.tracking is None else self.tracking.fingerprint(),
        )
