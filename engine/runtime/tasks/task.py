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
from typing import Any

from engine.checkpoint.barriers import barrier_fingerprint
from engine.elements.batch import Batch
from engine.elements.events import CheckpointBarrier, EndOfData, EndOfPartition, Watermark, WatermarkStatus
from engine.graph.plan import ExecutionPlan, SubtaskPlan, VertexPlan
from engine.runtime.channels import Channel, CheckpointedInputGate, Element, RecordWriter, TaskDebloater
from engine.runtime.storage import RestoredOperator
from engine.runtime.tasks.environment import TaskEnvironment, TaskPlace
from engine.runtime.tasks.operator_chain import OperatorChain
from engine.runtime.tasks.task_checkpoint import TaskCheckpointing
from engine.runtime.tasks.task_context import REMOTE, TaskOperatorContext
from engine.runtime.tasks.task_end import TaskEnd
from engine.runtime.tasks.task_life import FINISHED, RUNNING, TaskLife
from engine.runtime.tasks.task_timers import TaskTimers
from engine.runtime.tasks.task_work import TaskTimes, TaskWork

Mail = tuple[str, tuple[Any, ...]]
"""A method of the task or of its part, and its arguments."""

_TAKEN_BY = {
    operation: attrgetter(part)
    for part, operations in {
        "life": ("kill",),
        "end": ("end_loop", "finish", "may_finish", "stop"),
        "checkpointing": ("notify_checkpoint_complete", "notify_stop_complete", "notify_checkpoint_aborted",
                          "output_timeout", "notify_rest", "acknowledge_late"),
        "chain": ("materialize",),
        "timers": ("fire_timers",),
        "gate.debloater": ("debloat",),
        "place.hook": ("release_watermarks",),
        "spout": ("acker_reply", "acking_tick", "commit_offsets"),
    }.items()
    for operation in operations
}
"""Mail for a part of the task; all other mail names a method of the task itself."""

KILL = "kill"
"""The only mail that does not wait for a record."""


def _back_edges(subtask: SubtaskPlan, plan: ExecutionPlan) -> list[int]:
    """The input channels of a subtask that lead back to it, by their position."""
    wired = (plan.channels[index] for index in subtask.input_channels)
    return [channel.input_index for channel in wired if plan.edges[channel.edge].is_feedback]


def _mail_argument(argument: object) -> object:
    return barrier_fingerprint(argument) if isinstance(argument, CheckpointBarrier) else str(argument)


class Task:
    """One subtask in one attempt. Driven by kernel events; see the module's theory of operation."""

    # Every event asks for several of these; a dict of more than thirty shares no keys with those of other tasks.
    __slots__ = (
        "_bytes_of", "_hook", "_idle_until_ns", "_kernel", "_mail", "_price", "_receivers", "_record_bytes",
        "_resting_until_ns", "_service", "_slice_channel", "_slice_number", "_slice_records", "_slice_start_ns",
        "_spent_until_ns", "_woken", "chain", "checkpointing", "end", "full_outputs", "gate", "inputs", "life",
        "name", "place", "record_cost_ns", "records_out", "takes_single_records", "timers", "tracking", "work",
        "writers",
    )  # fmt: skip

    def __init__(self, plan: SubtaskPlan, vertex: VertexPlan, environment: TaskEnvironment) -> None:
        self.name = plan.name
        self._kernel = environment.kernel
        self._hook = hook = None if environment.hook is None else environment.hook.for_task(plan, vertex, self)
        self.place = place = TaskPlace(plan, vertex, environment, hook)
        """The task's place, as its parts know it."""
        self.inputs: list[Channel] = []
        self.writers: list[RecordWriter] = []
        back_edges = _back_edges(plan, environment.plan) if environment.plan.has_loops else []
        self.chain = chain = OperatorChain(place, len(plan.input_channels), back_edges)
        self.checkpointing = checkpointing = TaskCheckpointing(self, place, chain, self.inputs, self.writers)
        self.tracking = None if environment.tracking is None else environment.tracking.for_task(place)
        self.life = life = TaskLife(place, self.inputs, chain, checkpointing, self.tracking)
        self.timers = timers = TaskTimers(self, place, life, chain)
        self.end = TaskEnd(self, place, life, chain, timers, checkpointing, self.writers, back_edges)
        self.gate: CheckpointedInputGate
        self.full_outputs = 0
        self.work = TaskWork(environment.kernel, life)
        self.records_out = 0
        self.takes_single_records = False
        """Whether operators get one record at a time, since they spend time on records."""
        cost, names, services = environment.cost, vertex.names_of(plan.subtask), environment.service
        self.record_cost_ns = cost.record_cost_ns(names, is_source=vertex.is_source)
        factor = cost.factor(names)
        self._service = service = None if services is None else services.of(plan, vertex, self.record_cost_ns, factor)
        self._price = None if service is None else service.price
        """Gives the cost of a record that is to be begun, if it depends on the record."""
        if service is not None:
            self.takes_single_records = True
            service.begin(self)
        self._bytes_of = environment.cost.bytes_of
        size = environment.cost.record_bytes
        self._record_bytes = size if isinstance(size, int) else None
        self._receivers: list[Callable[[Batch], None]] = []
        """By input channel: the receiver of its records."""
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
        self._idle_until_ns = 0
        """The later of the two: no element is started before."""

    # -- building ---------------------------------------------------------------------------------------------

    def wire(self, inputs: Iterable[Channel], writers: Iterable[RecordWriter]) -> None:
        """Attach channels, and connect the operators."""
        self.inputs += inputs
        self.writers += writers
        environment, hook, back_edges = self.place.environment, self._hook, self.end.back_edges
        protocol = environment.protocol
        self.gate = CheckpointedInputGate(
            self.wake,
            self.checkpointing,
            self.inputs,
            partial(protocol.barrier_handler, back_edges=back_edges),
            self.checkpointing.channel_state,
            captures=protocol.stores_channel_state,
            back_edges=back_edges,
            hook=hook,
        )
        if environment.debloating is not None and self.inputs:
            bounded = [channel for channel in self.inputs if channel.input_index not in back_edges]
            self.gate.debloater = TaskDebloater(environment.debloating, self._kernel, bounded, self)
        context_of = partial(TaskOperatorContext, self, self.place, self.life, self.timers, self.tracking)
        self.chain.connect(self.writers, context_of)
        receivers: dict[int, Callable[[Batch], None]] = {}
        for edge in dict.fromkeys(channel.plan.edge for channel in self.inputs):
            receive = self.chain.receiver(edge, self.tracking)
            if self._service is not None:
                receive = self._service.receiver(self, receive)
            receivers[edge] = receive if hook is None else hook.within_process(receive)
        self._receivers = [receivers[channel.plan.edge] for channel in self.inputs]

    def start(self, restored: Mapping[str, RestoredOperator], checkpoint_id: int | None) -> None:
        """Restore state, open the operators and begin to run. Errors fail the task."""
        self.checkpointing.restored(checkpoint_id)
        if self.life.survives(lambda: self._open(restored, checkpoint_id)):
            self.life.enter(RUNNING)
            if self.gate.debloater is not None:
                self.gate.debloater.begin_period()
            self.wake()

    def _open(self, restored: Mapping[str, RestoredOperator], checkpoint_id: int | None) -> None:
        self.chain.open(restored, checkpoint_id, self.checkpointing.local)

    # -- waking up and choosing an element --------------------------------------------------------------------

    def wake(self) -> None:
        """Make sure that the task looks for work at the current instant."""
        if not self._woken:
            self._woken = True
            self._kernel.schedule_now("run", self)

    def output_filled(self) -> None:
        """One output channel has no credit any more."""
        self.full_outputs += 1
        if self.full_outputs == 1:
            self.work.pressed(self._spent_until_ns)

    def credit_returned(self) -> None:
        """One full output channel has credit again."""
        self.full_outputs -= 1
        if not self.full_outputs:
            self.work.relieved()
            self.wake()

    def run(self, _payload: None = None) -> None:
        """Handle one element, if there is one and it may be started."""
        hook, life = self._hook, self.life
        if hook is not None and hook.pause is not None and not hook.may("run"):
            return
        self._woken = False
        if life.state != RUNNING:
            return
        if self.end.is_stopping:
            life.survives(self._await_barriers_coming_back)
            return
        slice_records, idle_until_ns = self._slice_records, self._idle_until_ns
        if self._mail or (slice_records and not (self.inputs and self.gate.priority and self.gate.has_priority_event)):
            return
        if slice_records:
            idle_until_ns = max(idle_until_ns, self._free_at_ns())
        elif hook is not None and hook.disturbs_time and self._kernel.now_ns >= idle_until_ns:
            hold_ns = hook.hold_ns()
            if hold_ns:
                self.rest(hold_ns)
                idle_until_ns = self._idle_until_ns
        if idle_until_ns and self._kernel.now_ns < idle_until_ns:
            self._woken = True
            self._kernel.schedule(idle_until_ns, "run", self)
            return
        try:
            if slice_records:
                # Between two records: the finished part of the slice is handled first.
                self.interrupt()
                if life.state != RUNNING:
                    return
            self._run_once()
        except AssertionError:
            raise
        except Exception as error:
            life.fail(error)

    def _run_once(self) -> None:
        channel = self.gate.next_channel()
        if channel is None or (self.full_outputs and not channel.priority_events):
            if channel is None and self.end.loop is not None:
                self.end.loop.task_idle()
            return
        element = channel.queue[0][1]
        if isinstance(element, Batch):
            records = 1 if self.takes_single_records else element.size
            self._slice_channel = channel
            if self.record_cost_ns:
                self._begin_slice(records)
            else:
                self.advance(records)
            return
        channel.take()
        if element.__class__ is CheckpointBarrier and self._hook is None:
            # The short way: a task with many channels takes many of them.
            self.gate.handle_barrier(channel, element, self._kernel.now_ns)
        else:
            self.handle_event(channel, element)
        self.gate.pass_turn(channel)

    # -- slices: work that takes virtual time -------------------------------------------------------------------

    def _begin_slice(self, records: int) -> None:
        if self._price is not None:
            assert self._slice_channel is not None
            batch = self._slice_channel.head()
            assert isinstance(batch, Batch), batch
            self.record_cost_ns = self._price(batch.values[0])
        self._slice_start_ns = start = self._kernel.now_ns
        self._slice_records = records
        self._slice_number += 1
        self._kernel.schedule(start + records * self.record_cost_ns, "end_slice", self, self._slice_number)

    def end_slice(self, number: int) -> None:
        """The slice is over (kernel event); void when mail has cut the slice meanwhile."""
        hook = self._hook
        if hook is not None and hook.pause is not None and not hook.may("end_slice", number):
            return
        if number != self._slice_number or self.life.state != RUNNING:
            return
        records, self._slice_records = self._slice_records, 0
        try:
            self.advance(records)
        except AssertionError:
            raise
        except Exception as error:
            self.life.fail(error)

    def interrupt(self) -> None:
        """Carry out the part of the running slice that is over by now, and give up the rest of it."""
        planned = self._slice_records
        if planned:
            self._slice_records = 0
            self._slice_number += 1
            done = min(planned, (self._kernel.now_ns - self._slice_start_ns) // self.record_cost_ns)
            if done:
                self.advance(done)
            self.wake()

    def work_stood_still(self, for_ns: int) -> int:
        """No work was done for a while: the interrupted slice lasts so much longer. Returns when it ends."""
        if self._slice_records:
            self._slice_start_ns += for_ns
            self._slice_number += 1
            ends_ns = self._slice_start_ns + self._slice_records * self.record_cost_ns
            self._kernel.schedule(ends_ns, "end_slice", self, self._slice_number)
            return ends_ns
        return self._kernel.now_ns

    def advance(self, records: int) -> None:
        """Handle ``records`` records of the batch at the head; their virtual time has passed."""
        channel, gate, spent_until_ns = self._slice_channel, self.gate, self._spent_until_ns
        assert channel is not None
        batch = channel.take_records(records)
        size = self._record_bytes
        gate.handler.clock.bytes_taken += self._bytes_of(batch) if size is None else records * size
        self._receivers[channel.input_index](batch)
        if self._spent_until_ns != spent_until_ns:
            self.notice_spending()
        gate.pass_turn(channel)

    def notice_spending(self) -> None:
        """Records were handed to the operators, which have spent time on them."""
        if not self.takes_single_records:
            # From now on barriers and mail come between two records, as they do when the cost model charges them.
            self.takes_single_records = not any(operator.spends_per_batch for operator in self.chain.operators)

    def rest(self, virtual_ns: int) -> None:
        """Start no further element for ``virtual_ns``."""
        self._resting_until_ns = until_ns = max(self._resting_until_ns, self._kernel.now_ns) + virtual_ns
        self._idle_until_ns = max(self._idle_until_ns, until_ns)

    def spend(self, virtual_ns: int) -> None:
        """The last step of the task takes ``virtual_ns``."""
        self._spent_until_ns = until_ns = self.busy_until_ns + virtual_ns
        self._idle_until_ns = max(self._idle_until_ns, until_ns)
        self.work.spent_ns += virtual_ns

    # -- events in the stream -----------------------------------------------------------------------------------

    def handle_event(self, channel: Channel, event: Element) -> None:
        """An event was taken from ``channel``."""
        index, now = channel.input_index, self._kernel.now_ns
        match event:
            case CheckpointBarrier():
                with self.place.around("barrier.receive"):
                    self.gate.handle(channel, event, now)
            case Watermark() | WatermarkStatus():
                (self.chain if self._hook is None else self._hook).take_time(index, event)
            case EndOfData():
                self.end.end_of_data(channel)
            case EndOfPartition():
                self.gate.handle(channel, event, now)
                self.end.end_of_partition(channel)
            case _:
                self.gate.handle(channel, event, now)

    # -- reports of channels ------------------------------------------------------------------------------------

    def channel_state_changed(self, checkpoint_id: int) -> None:
        """One of the slots of the output part of a checkpoint's channel state is filled, or failed."""
        self.checkpointing.channel_state_changed(checkpoint_id)

    def alignment_timeout(self, checkpoint_id: int) -> None:
        """The alignment timer of a checkpoint fires (mail)."""
        self.gate.on_timeout(checkpoint_id, self._kernel.now_ns)

    def output_consumed(self) -> None:
        """An output channel for which the task has waited is empty."""
        self.end.output_consumed()

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

    # -- mail -----------------------------------------------------------------------------------------------------

    def receive_mail(self, mail: Mail) -> None:
        """A message for this task (kernel event): ``(method of the task's checkpointing or the task, arguments)``.

        It waits for the end of the record in service, and for mail that came earlier (Flink: ``MailboxProcessor``)."""
        hook = self._hook
        if hook is not None and hook.pause is not None and not hook.may("receive_mail", mail):
            return
        if mail[0] == KILL or (not self._mail and self._is_between_records()):
            self.carry_out(mail)
            return
        if not self._mail:
            self._kernel.schedule(self._free_at_ns(), "read_mail", self)
        self._mail.append(mail)

    def read_mail(self, _payload: None = None) -> None:
        """The record in service is done: carry out the mail that came meanwhile (kernel event)."""
        if self._hook is not None and not self._hook.may("read_mail"):
            return
        while self._mail:
            if not self._is_between_records():
                self._kernel.schedule(self._free_at_ns(), "read_mail", self)
                return
            self.carry_out(self._mail.popleft())
        self.wake()

    def _is_between_records(self) -> bool:
        if self._slice_records and self.life.state == RUNNING and self._free_at_ns() == self._kernel.now_ns:
            # Operators may spend time on the mail carried out here, besides the time that the cost model charges.
            self.life.survives(self.interrupt)
        return self.life.state != RUNNING or self._free_at_ns() == self._kernel.now_ns

    def drop_mail(self) -> None:
        """Mail that has come is not read any more."""
        self._mail.clear()

    def happens(self, event: tuple[str, Any]) -> None:
        """An event that the hook has arranged is due (kernel event)."""
        assert self._hook is not None, event
        self._hook.happens(event)

    def carry_out(self, mail: Mail) -> None:
        """Carry out a message, now."""
        operation, arguments = mail
        if self.life.state != RUNNING:
            if operation == "trigger_checkpoint" and self.life.state == FINISHED:
                # It finished while the trigger was on its way: only it can tell the coordinator that it takes no part.
                self.checkpointing.trigger_refused(arguments[0].checkpoint_id, is_closing=True)
            return
        try:
            if self._slice_records:
                self.interrupt()
            if self.life.state == RUNNING:
                part = _TAKEN_BY.get(operation)
                getattr(self if part is None else part(self), operation)(*arguments)
        except AssertionError:
            raise
        except Exception as error:
            self.life.fail(error)

    def _free_at_ns(self) -> int:
        """When the record in service is done; now, if none is."""
        now = self._kernel.now_ns
        if self._slice_records:
            return now + (self._slice_start_ns - now) % self.record_cost_ns
        return max(self._spent_until_ns, now)

    def trigger_checkpoint(self, barrier: CheckpointBarrier) -> None:
        """The coordinator triggers this task directly, without barriers on its inputs."""
        if self.end.is_closing or not self.gate.is_recovered:
            self.checkpointing.trigger_refused(barrier.checkpoint_id, is_closing=self.end.is_closing)
            return
        self.gate.on_trigger(barrier, self._kernel.now_ns)

    def coordinator_event(self, position: int, event: Any) -> None:
        """The coordinator of the operator at ``position`` has sent an event. After the end of the data, or after the
        savepoint that stops the job, it must have no effect."""
        if not self.end.input_ended and not self.end.is_stopping:
            self.chain.operators[position].on_coordinator_event(event)

    @property
    def busy_until_ns(self) -> int:
        """The end of the time that operators have spent so far; now, if none is left."""
        return max(self._spent_until_ns, self._kernel.now_ns)

    @property
    def records_in(self) -> int:
        """Records taken from all inputs."""
        return sum([channel.received_records for channel in self.inputs])

    def restored_bytes(self, where: str) -> int:
        """State and records in flight that were read to restore it, by where they were."""
        state = sum(context.read_bytes[where] for context in self.chain.contexts)
        if where != REMOTE:
            return state
        queues = (channel.queue for channel in self.inputs if channel.restored_records)
        return state + sum(self._bytes_of(one) for queue in queues for _, one in queue if isinstance(one, Batch))

    @property
    def times_ns(self) -> TaskTimes:
        """How it has passed the time of its attempt."""
        if self._service is not None:
            return self.work.times(self._service.busy_ns)
        return self.work.times(self.records_in * self.record_cost_ns)

    @property
    def committed_records(self) -> int | None:
        """Records of this attempt that no successor reads again; ``None``: its checkpoint decides."""
        return None

    def validate(self) -> None:
        full = sum([channel.full for writer in self.writers for channel in writer.channels])
        full += sum([context.holds_input for context in self.chain.contexts])
        assert full == self.full_outputs, (self.name, full, self.full_outputs)
        self.gate.validate()

    def fingerprint(self) -> object:
        now = self._kernel.now_ns
        return (
            self.name,
            self.life.state,
            self.end.fingerprint(),
            self.full_outputs,
            self.takes_single_records,
            (self._slice_records, self._slice_records and now - self._slice_start_ns),
            None if self._service is None else self.record_cost_ns,
            [(operation, *map(_mail_argument, arguments)) for operation, arguments in self._mail],
            (max(0, self._resting_until_ns - now), max(0, self._spent_until_ns - now)),
            self.timers.fingerprint(),
            self.gate.fingerprint(),
            tuple(writer.router.fingerprint() for writer in self.writers),
            self.chain.fingerprint(is_running=self.life.is_running),
            self.checkpointing.fingerprint(),
            None if self._hook is None else self._hook.fingerprint(),
            None if self.tracking is None else self.tracking.fingerprint(),
        )
