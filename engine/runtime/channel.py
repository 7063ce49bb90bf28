"""A channel: the FIFO from one sending to one receiving subtask, bounded by credits, blockable by its consumer.

Three parts: the sender's queue (``output_queue``), the link, which may take time, and the receiver's queue.

Rules.
1. Elements keep their order, except that priority events overtake everything but earlier priority events.
2. Credit is counted in records. The receiver grants ``input_credit`` for what is under way or queued on its side;
   whatever is more waits on the sender's side. A sender starts an element only while every one of its channels holds
   less than ``capacity`` records on both sides together; what that element emits may overshoot. Events need no credit.
3. A channel blocked by its consumer gets nothing more until it is resumed (barrier alignment). It is the sender's
   queue that enforces it; what has come already, overtaken by a promoted barrier, may be read.
4. ``sent_records`` and ``received_records`` are the counters of the cut oracle: a record is sent when it was put, and
   received when the consumer has taken it, whatever batch it travelled in.
5. In-flight data of the input side is captured by arrival, not by consumption: what is queued when a checkpoint starts,
   up to its barrier if that is here, and what arrives after, until its barrier does.
6. The receiver may change what it grants (buffer debloating); the sender's side is held to the same proportion. To
   grant less drops nothing: there is no new credit until so much has been taken.
7. A link of limited bandwidth carries one element at a time. A priority event cuts the batch under transfer at the
   record that is passing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from engine.checkpoint.barriers import barrier_fingerprint
from engine.elements.batch import Batch
from engine.elements.events import BarrierAnnouncement, CheckpointBarrier, EndOfChannelState, Event, Watermark
from engine.observe.events import (
    ChannelBlocked,
    ChannelResumed,
    CreditChanged,
    Departed,
    Instrument,
    Receive,
    RecordsCaptured,
    Send,
)
from engine.runtime.output_queue import Element, Numbered, OutputQueue

if TYPE_CHECKING:
    from engine.checkpoint.barriers import ChannelCapture
    from engine.checkpoint.subtask import ChannelStateWriter
    from engine.graph.plan import ChannelPlan
    from engine.runtime.checkpointed_input_gate import CheckpointedInputGate
    from engine.runtime.cost import CostModel
    from engine.runtime.hook import RunHook
    from engine.runtime.kernel import Kernel
    from engine.runtime.task import Task

_ANNOUNCEMENT_NUMBER = 0
"""Announcements are made here, not sent: they have no number of their own and do not show in a trace."""


class Channel(OutputQueue):
    """One FIFO between two tasks of one attempt."""

    __slots__ = (
        "_arrived",
        "_at_once",
        "_barrier_mark",
        "_cost",
        "_full_credit",
        "_instrument",
        "_kernel",
        "_limited",
        "_output_capacity",
        "_transfer",
        "_transfer_number",
        "attempt",
        "blocked",
        "capacity",
        "capture",
        "capturing",
        "full",
        "gate",
        "hook",
        "index",
        "input_index",
        "is_awaited",
        "latency_ns",
        "listed",
        "lost_records",
        "plan",
        "priority_events",
        "priority_listed",
        "queue",
        "queued_records",
        "received_records",
        "receiver_name",
        "restored_records",
        "sender",
        "sent_elements",
        "sent_records",
    )

    def __init__(
        self,
        plan: ChannelPlan,
        sender: Task,
        receiver_name: str,
        *,
        kernel: Kernel,
        cost: CostModel,
        latency_ns: int,
        capacity: int,
        attempt: int,
        instrument: Instrument | None,
        output_capacity: int = 0,
        hook: RunHook | None = None,
    ) -> None:
        super().__init__(input_credit=capacity)
        self.plan = plan
        self.index = plan.index
        self.input_index = plan.input_index
        self.sender = sender
        self.receiver_name = receiver_name
        self.gate: CheckpointedInputGate
        self.capture: ChannelCapture | None = None
        self.capturing = False
        self.capacity = capacity + output_capacity
        self._full_credit = capacity
        self._output_capacity = output_capacity
        self.attempt = attempt
        self.latency_ns = latency_ns
        self.queue: deque[Numbered] = deque()
        self.priority_events = 0
        self.priority_listed = False
        self.queued_records = 0
        self.restored_records = 0
        self.sent_records = 0
        self.sent_elements = 0
        self.received_records = 0
        self.blocked = False
        self.full = False
        self.is_awaited = False
        """The sender cannot finish before everything is consumed."""
        self.listed = False
        self._kernel = kernel
        self._cost = cost
        self._limited = cost.link_bytes_per_s is not None
        self._transfer: tuple[Numbered, int] | None = None
        """What is passing over a limited link, and since when."""
        self._transfer_number = 0
        self._arrived = 0
        """Elements that have joined the receiver's queue at its end, ever."""
        self._barrier_mark = 0
        """``_arrived`` when the barrier that ``capture`` has recognised last came."""
        self._instrument = instrument
        self.lost_records = 0
        """Sent, and never to arrive."""
        self.hook = None if hook is None else hook.for_channel(self)
        self._at_once = instrument is None and not self._limited and not latency_ns and hook is None

    @property
    def name(self) -> str:
        """``sender->receiver``."""
        return f"{self.sender.name}->{self.receiver_name}"

    # -- sender's side ----------------------------------------------------------------------------------------

    def put_batch(self, batch: Batch) -> None:
        """Send records (at least one)."""
        count = len(batch)
        self.sent_records += count
        self.queued_records = queued = self.queued_records + count
        if queued >= self.capacity and not self.full:
            self.full = True
            self.sender.full_outputs += 1
        if self._at_once and self._direct and self.incoming_records < self.input_credit:
            # What the calls below come to when nobody watches and the link takes no time.
            self.sent_elements = number = self.sent_elements + 1
            self.incoming_records += count
            self.arrive((number, batch))
        else:
            self._send((self._next_number(batch, count), batch), count)

    def sender_replaced(self, sender: Task) -> None:
        """``sender`` sends from now on."""
        self.sender = sender
        if self.full:
            sender.full_outputs += 1

    def put_event(self, event: Event) -> None:
        """Send an event other than a barrier; needs no credit."""
        self._send((self._next_number(event, 0), event), 0)

    def put_barrier(self, barrier: CheckpointBarrier, state: ChannelStateWriter | None) -> None:
        """Send a barrier. ``state``: where records that it overtakes go, ``None`` when it cannot overtake any."""
        self._send_barrier(self._next_number(barrier, 0), barrier, state)

    def _next_number(self, element: Element, records: int) -> int:
        self.sent_elements = number = self.sent_elements + 1
        if self._instrument is not None:
            self._instrument(
                Send(
                    self._kernel.now_ns,
                    self.attempt,
                    self.index,
                    number,
                    kind_of(element),
                    records,
                    detail_of(element),
                    self.queued_records,
                )
            )
        return number

    def _slot_filled(self, checkpoint_id: int) -> None:
        self.sender.channel_state_changed(checkpoint_id)

    def _captured_waiting(self, checkpoint_id: int, batches: Sequence[Batch]) -> None:
        self.trace_captured(checkpoint_id, "output", batches)

    def _departed(self, numbered: Numbered, records: int) -> None:
        if self._instrument is not None:
            number, element = numbered
            self._instrument(
                Departed(
                    self._kernel.now_ns,
                    self.attempt,
                    self.index,
                    number,
                    kind_of(element),
                    records,
                    detail_of(element),
                    self.queued_records,
                )
            )

    def set_credit(self, records: int) -> None:
        """Grant ``records`` (at least one) from now on, and hold the sender's side to the same proportion of what was
        configured. More than that may be in the channel now: it stays, and is taken off as the consumer takes it."""
        assert records >= 1, records
        if records == self.input_credit:
            return
        self.input_credit = records
        self.capacity = records + self._output_capacity * records // self._full_credit
        if self._instrument is not None:
            self._instrument(CreditChanged(self._kernel.now_ns, self.attempt, self.index, records))
        is_full = self.queued_records >= self.capacity
        if is_full != self.full:
            self.full = is_full
            if is_full:
                self.sender.full_outputs += 1
            else:
                self.sender.credit_returned()
        self.pump()

    # -- the link ---------------------------------------------------------------------------------------------

    def _depart(self, numbered: Numbered, records: int) -> None:
        if self._limited and records:
            self._direct = False
            self._transfer = (numbered, self._kernel.now_ns)
            self._transfer_number += 1
            over_ns = self._kernel.now_ns + self._cost.transfer_ns(records)
            self._kernel.schedule(over_ns, "transferred", self, self._transfer_number)
        else:
            self._propagate(numbered)

    def _propagate(self, numbered: Numbered) -> None:
        if self.hook is not None:
            self.hook.propagate(numbered)
        elif self.latency_ns:
            self._kernel.schedule(self._kernel.now_ns + self.latency_ns, "arrive", self, numbered)
        else:
            self.arrive(numbered)

    def happens(self, event: tuple[str, Any]) -> None:
        """Something is due that the hook has arranged (kernel event)."""
        assert self.hook is not None, event
        self.hook.happens(event)

    def lose(self, records: int) -> None:
        """So many records of those that were sent will never arrive."""
        self.lost_records += records
        self.queued_records -= records
        if self.full and self.queued_records < self.capacity:
            self.full = False
            self.sender.credit_returned()
        if self.is_awaited and not self.queued_records:
            self.is_awaited = False
            self.sender.output_consumed()

    def _link_is_free(self) -> bool:
        return self._transfer is None

    def transferred(self, number: int) -> None:
        """An element has left a limited link (kernel event); void when it was cut meanwhile."""
        if number == self._transfer_number and self._transfer is not None:
            numbered, _ = self._transfer
            self._transfer = None
            self._propagate(numbered)
            self.pump()

    def _recall(self) -> Numbered | None:
        if self._transfer is None:
            return None
        (number, batch), started_ns = self._transfer
        self._transfer = None
        assert isinstance(batch, Batch)
        passed = min(len(batch), self._cost.transferred_records(self._kernel.now_ns - started_ns))
        if passed == len(batch):
            self._propagate((number, batch))
            return None
        self.incoming_records -= len(batch) - passed
        if not passed:
            return (number, batch)
        first, rest = batch.split(passed)
        self._propagate((number, first))
        return (number, rest)

    # -- receiver's side --------------------------------------------------------------------------------------

    def arrive(self, numbered: Numbered) -> None:
        """An element has reached the receiver's queue (kernel event when the link takes time)."""
        element = numbered[1]
        if isinstance(element, CheckpointBarrier):
            self._barrier_arrives(numbered, element)
            return
        self.queue.append(numbered)
        self._arrived += 1
        if self.capturing and isinstance(element, Batch):
            self.gate.capture(self, [element])
        if not self.listed:
            self.gate.channel_readable(self)

    def _barrier_arrives(self, numbered: Numbered, barrier: CheckpointBarrier) -> None:
        if self.capture is not None and self.capture.barrier_arrived(barrier.checkpoint_id):
            self.capturing = self.capture.captures
            self._barrier_mark = self._arrived
        if barrier.is_priority:
            self._insert_priority(numbered)
            return
        self.queue.append(numbered)
        self._arrived += 1
        if barrier.options.timeoutable and self.gate.announces(self):
            self._insert_priority((_ANNOUNCEMENT_NUMBER, BarrierAnnouncement(barrier)))
        if not self.listed:
            self.gate.channel_readable(self)

    def _insert_priority(self, numbered: Numbered) -> None:
        self.queue.insert(self.priority_events, numbered)
        self.priority_events += 1
        self.gate.priority_arrived(self)

    def promote_barrier(self, checkpoint_id: int) -> None:
        """Move the queued barrier of a checkpoint to the front. It keeps its form, and goes on to block its sender."""
        position = next(
            (
                position
                for position, (_, element) in enumerate(self.queue)
                if isinstance(element, CheckpointBarrier) and element.checkpoint_id == checkpoint_id
            ),
            None,
        )
        assert position is not None, f"{self.name} holds no barrier {checkpoint_id} to promote"
        if position >= self.priority_events:
            promoted = self.queue[position]
            if len(self.queue) - position > self._arrived - self._barrier_mark:
                # It was ahead of the mark, which moves up with everything else behind it.
                self._barrier_mark -= 1
            del self.queue[position]
            self._arrived -= 1
            self._insert_priority(promoted)

    def head(self) -> Element:
        """The next element, still queued."""
        return self.queue[0][1]

    def take(self) -> Element:
        """Remove the next element; its records count as received and their credit returns."""
        number, element = self.queue.popleft()
        if isinstance(element, Batch):
            self._received(number, len(element))
        else:
            if self.priority_events:
                self.priority_events -= 1
            if self._instrument is not None and number != _ANNOUNCEMENT_NUMBER:
                self._trace_receive(number, element, 0)
        return element

    def take_records(self, count: int) -> Batch:
        """Remove the first ``count`` records of the first batch; the rest of it keeps its place."""
        # Priority events may have overtaken the batch since the consumer began with it.
        first = self.priority_events
        number, batch = self.queue[first]
        assert isinstance(batch, Batch)
        if count == len(batch):
            del self.queue[first]
            taken = batch
        else:
            taken, rest = batch.split(count)
            self.queue[first] = (number, rest)
        self._received(number, count)
        return taken

    def _received(self, number: int, count: int) -> None:
        self.received_records += count
        self.queued_records = queued = self.queued_records - count
        self.incoming_records -= count
        if self.restored_records:
            self._restored_received(count)
        if self.full and queued < self.capacity:
            self.full = False
            self.sender.credit_returned()
        if self.is_awaited and not queued:
            self.is_awaited = False
            self.sender.output_consumed()
        if self._instrument is not None:
            self._trace_receive(number, None, count)
        if self.outgoing:
            self.pump()

    def _trace_receive(self, number: int, event: Element | None, records: int) -> None:
        assert self._instrument is not None
        kind, detail = ("records", None) if event is None else (kind_of(event), detail_of(event))
        self._instrument(
            Receive(
                self._kernel.now_ns,
                self.attempt,
                self.index,
                number,
                kind,
                records,
                detail,
                self.queued_records,
            )
        )

    def block(self) -> None:
        """The barrier that blocked the sender was taken: nothing more comes until :meth:`resume`."""
        assert not self.blocked, f"{self.name} is blocked already"
        self.blocked = True
        if self._instrument is not None:
            self._instrument(ChannelBlocked(self._kernel.now_ns, self.attempt, self.index))

    def resume(self) -> None:
        """Go on after :meth:`block`, and let the sender go on."""
        assert self.blocked, f"{self.name} is not blocked"
        self.blocked = False
        if self._instrument is not None:
            self._instrument(ChannelResumed(self._kernel.now_ns, self.attempt, self.index))
        self.resume_sender()

    # -- in-flight data of the input side -----------------------------------------------------------------------

    def trace_captured(self, checkpoint_id: int, side: str, batches: Sequence[Batch]) -> None:
        """Tell the instrument of records that became part of a checkpoint, if there are any."""
        if self._instrument is not None:
            records = sum(map(len, batches))
            if records:
                now = self._kernel.now_ns
                self._instrument(RecordsCaptured(now, self.attempt, checkpoint_id, self.index, side, records))

    def start_capture(self, checkpoint_id: int) -> Sequence[Batch]:
        """Capture for a checkpoint from now on; returns the records in front of its barrier that are here already."""
        assert self.capture is not None
        self.capture.start(checkpoint_id)
        self.capturing = self.capture.captures
        waiting = list(self.queue)
        if not self.capturing:
            # Its barrier is here: what came after it is behind the cut.
            behind = self._arrived - self._barrier_mark
            waiting = waiting[: max(0, len(waiting) - behind)]
        return [element for _, element in waiting if isinstance(element, Batch)]

    def stop_capture(self, checkpoint_id: int) -> None:
        """The checkpoint is over on the input side."""
        assert self.capture is not None
        self.capture.stop(checkpoint_id)
        self.capturing = self.capture.captures

    # -- restore ------------------------------------------------------------------------------------------------

    def restore(self, inputs: Iterable[Batch], outputs: Iterable[Batch]) -> None:
        """Put restored in-flight data in front of everything new: what was the receiver's into its queue, what was the
        sender's into the sender's, followed by the marker."""
        for batch in inputs:
            count = len(batch)
            self.queue.append((self._restored_number(batch), batch))
            self.restored_records += count
            self.incoming_records += count
        self._restore_outgoing([(self._restored_number(batch), batch) for batch in outputs])
        self._restore_outgoing_marker()
        if self.queued_records >= self.capacity:
            self.full = True
            self.sender.full_outputs += 1

    def _restored_number(self, batch: Batch) -> int:
        count = len(batch)
        self.sent_records += count
        self.queued_records += count
        return self._next_number(batch, count)

    def _restore_outgoing_marker(self) -> None:
        marker = EndOfChannelState()
        self._queue().append((self._next_number(marker, 0), marker))

    def _restored_received(self, count: int) -> None:
        self.restored_records -= count
        if not self.restored_records:
            self.gate.input_state_drained()

    # -- inspection ---------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Assert what must hold between two events."""
        queued = sum(len(element) for _, element in self.queue if isinstance(element, Batch))
        waiting = sum(len(element) for _, element in self.outgoing or () if isinstance(element, Batch))
        assert 0 <= queued <= self.incoming_records, (self.name, queued, self.incoming_records)
        assert self.incoming_records + waiting == self.queued_records, (self.name, waiting, self.queued_records)
        assert self.sent_records == self.received_records + self.queued_records + self.lost_records, self.name
        assert self.full == (self.queued_records >= self.capacity), self.name
        for position, (_, element) in enumerate(self.queue):
            if position < self.priority_events:
                assert isinstance(element, BarrierAnnouncement | CheckpointBarrier), (self.name, position, element)
            else:
                assert not isinstance(element, BarrierAnnouncement), (self.name, position, element)

    def fingerprint(self) -> object:
        """What is queued and whether it may be read."""
        return (
            self.blocked,
            self.input_credit,
            self.sender_blocked,
            self.connected,
            self.queued_records,
            self.restored_records,
            None if self.capture is None else self.capture.fingerprint(),
            self._arrived - self._barrier_mark,
            None if self.hook is None else self.hook.fingerprint(),
            None if self._slot is None else self._slot[0],
            None if self._transfer is None else (_plain(self._transfer[0]), self._kernel.now_ns - self._transfer[1]),
            tuple(map(_plain, self.outgoing or ())),
            tuple(map(_plain, self.queue)),
        )


def _plain(numbered: Numbered) -> object:
    element = numbered[1]
    if isinstance(element, Batch):
        return (tuple(map(repr, element.values)), element.timestamps and tuple(element.timestamps))
    return barrier_fingerprint(element) if isinstance(element, CheckpointBarrier) else element


def kind_of(element: Element) -> str:
    """The trace's name for what kind of element this is."""
    return "records" if isinstance(element, Batch) else element.__class__.__name__


def detail_of(element: Element) -> int | None:
    """The number that tells two events of one kind apart."""
    if isinstance(element, Watermark):
        return element.timestamp_ms
    return getattr(element, "checkpoint_id", None)
