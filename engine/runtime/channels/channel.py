"""A channel: the FIFO from one sending to one receiving subtask, bounded by credits, blockable by its consumer.

Three parts: the sender's queue and the link, which may take time (``output_queue``), and the receiver's queue, here.
An element passes the first two, and comes here when it arrives.

Rules.
1. Elements keep their order, except that priority events overtake everything but earlier priority events.
2. Credit is counted in records, or in their bytes. The receiver grants ``input_credit`` for records under way or queued
   on its side; more records wait on the sender's side. A sender starts an element only while every one of its channels
   holds less than ``capacity`` on both sides together; output of that element may overshoot. Events need no credit.
3. A channel blocked by its consumer gets nothing more until it is resumed (barrier alignment). The sender's queue
   enforces it; elements that have come already, overtaken by a promoted barrier, may be read.
4. ``sent_records`` and ``received_records`` are the counters of the cut oracle: a record is sent when it was put, and
   received when the consumer has taken it, whatever batch it travelled in.
5. In-flight data of the input side is captured by arrival, not by consumption. Captured are the records queued when a
   checkpoint starts, up to its barrier if that is here, and the records that arrive later, until its barrier does.
6. The receiver may change the credit it grants (buffer debloating); the sender's side is held to the same proportion.
   A smaller grant drops nothing: there is no new credit until enough records have been taken.
7. A link of limited bandwidth carries one element at a time. A priority event cuts the batch under transfer at the
   record that is passing. On a channel that leaves a host with a limited link it waits for that batch instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from engine.checkpoint.barriers import ChannelCapture, barrier_fingerprint
from engine.checkpoint.subtask import ChannelStateWriter
from engine.elements.batch import Batch
from engine.elements.events import AlignmentType, BarrierAnnouncement, CheckpointBarrier, EndOfChannelState, Event
from engine.graph.plan import ChannelPlan
from engine.observe.trace_events import ChannelBlocked, ChannelResumed, Receive
from engine.runtime.channels.output_queue import (
    ChannelSettings,
    Element,
    Numbered,
    OutputQueue,
    Sender,
    detail_of,
    kind_of,
)

if TYPE_CHECKING:
    from engine.runtime.channels.checkpointed_input_gate import CheckpointedInputGate
    from engine.runtime.channels.floating_credit import FloatingCredit

_ANNOUNCEMENT_NUMBER = 0
"""Announcements are made here, not sent: they have no number of their own and do not show in a trace."""

_FEW = 4
_ANY_TIME, _OVERTAKING = AlignmentType.AT_LEAST_ONCE, AlignmentType.UNALIGNED
_new_tuple = tuple.__new__


class Channel(OutputQueue):
    """One FIFO between two tasks of one attempt. It is one object with the sender's half: there may be a million
    channels, and every batch reads and writes the credit that both halves share."""

    __slots__ = (
        "_arrived",
        "_barrier_mark",
        "blocked",
        "borrowed",
        "capture",
        "capturing",
        "floating",
        "gate",
        "input_index",
        "listed",
        "priority_events",
        "priority_listed",
        "queue",
        "restored_records",
    )

    def __init__(self, plan: ChannelPlan, sender: Sender, receiver_name: str, settings: ChannelSettings) -> None:
        super().__init__(plan, sender, receiver_name, settings)
        self.hook = None if settings.hook is None else settings.hook(self)
        self.input_index = plan.input_index
        self.gate: CheckpointedInputGate
        self.capture: ChannelCapture | None = None
        self.capturing = False
        self.queue: deque[Numbered] | tuple[Numbered, ...] = ()
        """The elements that have arrived. A tuple while they are few: an empty deque takes 600 bytes."""
        self.floating: FloatingCredit | None = None
        self.borrowed = 0
        """Of its credit, what its task has lent to it."""
        self.priority_events = 0
        self.priority_listed = False
        self.restored_records = 0
        self.blocked = False
        self.listed = False
        self._arrived = 0
        """Elements that have joined the receiver's queue at its end, ever."""
        self._barrier_mark = 0
        """``_arrived`` when the barrier that ``capture`` has recognised last came."""

    # -- both sides ---------------------------------------------------------------------------------------------

    def put_batch(self, batch: Batch) -> None:
        """Send records (at least one)."""
        count, weigh = batch.size, self._settings.weigh
        weight = count if weigh is None else weigh(batch)
        self.sent_records += count
        self.occupied = occupied = self.occupied + weight
        if occupied >= self.capacity and not self.full and not (self.floating and self.floating.lend(self)):
            self.full = True
            self.sender.output_filled()
        is_direct = self._direct and self.incoming < self.input_credit
        if is_direct and (self._is_short or (self._at_once and self.index not in self._records_of)):
            # The short way through both halves, for records that are not traced, over a link that takes no time.
            self.sent_elements = number = self.sent_elements + 1
            self.incoming += weight
            # As in `arrive`, without a call: every record of a study passes here.
            self._arrived += 1
            queue = self.queue
            if not queue:
                self.queue = ((number, batch),)
            elif queue.__class__ is deque:
                queue.append((number, batch))
            else:
                self._append((number, batch))
            if self.capturing:
                self.gate.capture(self, [batch])
            if not self.listed:
                self.gate.channel_readable(self)
        else:
            self._send((self._next_number(batch, count), batch), weight)

    def put_event(self, event: Event) -> None:
        """Send an event other than a barrier; needs no credit."""
        if self._at_once and self._direct and self._instrument is None:
            self._arrive_broadcast(event)
        else:
            super().put_event(event)

    def put_barrier(self, barrier: CheckpointBarrier, state: ChannelStateWriter | None) -> None:
        """Send a barrier. ``state``: where records that it overtakes go, ``None`` when it cannot overtake any."""
        form = barrier.options.alignment
        if self._at_once and self._direct and self._instrument is None:
            if form is _OVERTAKING:
                # Nothing waits at the sender that it could overtake, and become state.
                self.sent_elements = number = self.sent_elements + 1
                capture = self.capture
                if capture is not None and capture.barrier_arrived(barrier.checkpoint_id):
                    self.capturing, self._barrier_mark = capture.captures, self._arrived
                self._insert_priority((number, barrier))
                return
            if self.capture is None:
                # Without a capture no barrier is announced, and none needs to be recognised.
                self._arrive_broadcast(barrier)
                if form is not _ANY_TIME:
                    self.sender_blocked, self._direct = True, False
                return
        super().put_barrier(barrier, state)

    def _arrive_broadcast(self, event: Event) -> None:
        """The short way of an event, which usually takes it on all channels of the sender, through both halves."""
        self.sent_elements = number = self.sent_elements + 1
        alone = self._settings.sent_last
        if alone[0][0] != number or alone[0][1] is not event:
            self._settings.sent_last = alone = ((number, event),)
        self._arrived += 1
        if self.queue:
            self._append(alone[0])
        else:
            self.queue = alone
        if not self.listed:
            self.gate.channel_readable(self)

    # -- receiver's side --------------------------------------------------------------------------------------

    def arrive(self, numbered: Numbered) -> None:
        """An element has reached the receiver's queue (kernel event when the link takes time)."""
        element = numbered[1]
        if isinstance(element, CheckpointBarrier):
            self._barrier_arrives(numbered, element)
            return
        self._append(numbered)
        self._arrived += 1
        if self.capturing and isinstance(element, Batch):
            self.gate.capture(self, [element])
        if not self.listed:
            self.gate.channel_readable(self)

    def _barrier_arrives(self, numbered: Numbered, barrier: CheckpointBarrier) -> None:
        if self.capture is not None and self.capture.barrier_arrived(barrier.checkpoint_id):
            self.capturing = self.capture.captures
            self._barrier_mark = self._arrived
        if barrier.options.is_priority:
            self._insert_priority(numbered)
            return
        self._append(numbered)
        self._arrived += 1
        if barrier.options.timeoutable and self.gate.announces(self):
            self._insert_priority((_ANNOUNCEMENT_NUMBER, BarrierAnnouncement(barrier)))
        if not self.listed:
            self.gate.channel_readable(self)

    def _append(self, numbered: Numbered) -> None:
        queue = self.queue
        if not isinstance(queue, tuple):
            queue.append(numbered)
        elif len(queue) < _FEW:
            self.queue = (*queue, numbered)
        else:
            self.queue = deque((*queue, numbered))

    def within_queue(self) -> deque[Numbered]:
        """The queue, to change it elsewhere than at its ends."""
        if isinstance(self.queue, tuple):
            self.queue = deque(self.queue)
        return self.queue

    def _remove(self, position: int) -> None:
        queue = self.queue
        if isinstance(queue, tuple):
            self.queue = queue[:position] + queue[position + 1 :]
        else:
            del queue[position]
            if not queue:
                self.queue = ()

    def _replace(self, position: int, numbered: Numbered) -> None:
        queue = self.queue
        if isinstance(queue, tuple):
            self.queue = (*queue[:position], numbered, *queue[position + 1 :])
        else:
            queue[position] = numbered

    def _insert_priority(self, numbered: Numbered) -> None:
        queue, position = self.queue, self.priority_events
        if not isinstance(queue, tuple):
            queue.insert(position, numbered)
        elif position:
            self.queue = (*queue[:position], numbered, *queue[position:])
        else:
            self.queue = (numbered, *queue)
        self.priority_events = position + 1
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
                # It was before the mark, which moves up with everything else after it.
                self._barrier_mark -= 1
            self._remove(position)
            self._arrived -= 1
            self._insert_priority(promoted)

    def head(self) -> Element:
        """The next element, still queued."""
        return self.queue[0][1]

    def take(self) -> Element:
        """Remove the next element; its records count as received and their credit returns."""
        queue = self.queue
        number, element = queue[0]
        if isinstance(element, Batch):
            return self.take_records(element.size)
        if len(queue) == 1:
            self.queue = ()
        elif queue.__class__ is tuple:
            self.queue = queue[1:]
        else:
            self._remove(0)
        if self.priority_events:
            self.priority_events -= 1
        if self._instrument is not None and number != _ANNOUNCEMENT_NUMBER:
            self._trace_receive(number, element, 0)
        return element

    def take_records(self, count: int) -> Batch:
        """Remove the first ``count`` records of the first batch; the rest of it keeps its place."""
        # Priority events may have overtaken the batch since the consumer began with it.
        queue, first = self.queue, self.priority_events
        number, taken = queue[first]
        assert isinstance(taken, Batch)
        if count != taken.size:
            taken, rest = taken.split(count)
            self._replace(first, (number, rest))
        elif len(queue) == 1:
            self.queue = ()
        elif not first and queue.__class__ is tuple:
            self.queue = queue[1:]
        else:
            self._remove(first)
        weigh = self._settings.weigh
        weight = count if weigh is None else weigh(taken)
        self.received_records += count
        self.occupied = occupied = self.occupied - weight
        self.incoming -= weight
        if self.restored_records:
            self._restored_received(count)
        if self.full and occupied < self.capacity:
            self.full = False
            self.sender.credit_returned()
        if self.borrowed and self.floating is not None:
            self.floating.give_back(self)
        if self.is_awaited and not occupied:
            self.is_awaited = False
            self.sender.output_consumed()
        if not self._is_short and self.index in self._records_of:
            self._trace_receive(number, None, count)
        if self.outgoing:
            self.pump()
        return taken

    def has_room(self) -> None:
        """It was full, and has borrowed credit."""
        self.full = False
        self.sender.credit_returned()
        self.pump()

    def _trace_receive(self, number: int, event: Element | None, records: int) -> None:
        assert self._instrument is not None
        kind, detail = ("records", None) if event is None else (kind_of(event), detail_of(event))
        now, attempt = self._settings.kernel.now_ns, self._settings.attempt
        queued = self.sent_records - self.received_records - self.lost_records
        self._instrument(_new_tuple(Receive, (now, attempt, self.index, number, kind, records, detail, queued)))

    def block(self) -> None:
        """The barrier that blocked the sender was taken: nothing more comes until :meth:`resume`."""
        assert not self.blocked, f"{self.name} is blocked already"
        self.blocked = True
        if self._instrument is not None:
            self._instrument(ChannelBlocked(self._settings.kernel.now_ns, self._settings.attempt, self.index))

    def resume(self) -> None:
        """Go on after :meth:`block`, and let the sender go on."""
        assert self.blocked, f"{self.name} is not blocked"
        self.blocked = False
        if self._instrument is not None:
            self._instrument(ChannelResumed(self._settings.kernel.now_ns, self._settings.attempt, self.index))
        self.resume_sender()

    # -- in-flight data of the input side -----------------------------------------------------------------------

    def start_capture(self, checkpoint_id: int) -> Sequence[Batch]:
        """Capture for a checkpoint from now on; returns the records in front of its barrier that are here already."""
        assert self.capture is not None
        self.capture.start(checkpoint_id)
        self.capturing = captures = self.capture.captures
        waiting: Sequence[Numbered] = self.queue
        if not waiting:
            return ()
        if not captures:
            # Its barrier is here: elements that came after it are after the cut.
            behind = self._arrived - self._barrier_mark
            waiting = list(waiting)[: max(0, len(waiting) - behind)]
        return [element for _, element in waiting if isinstance(element, Batch)]

    def stop_capture(self, checkpoint_id: int) -> None:
        """The checkpoint is over on the input side."""
        assert self.capture is not None
        self.capture.stop(checkpoint_id)
        self.capturing = self.capture.captures

    # -- restore ------------------------------------------------------------------------------------------------

    def restore(self, inputs: Iterable[Batch], outputs: Iterable[Batch]) -> None:
        """Put restored in-flight data in front of everything new: the receiver's part into its queue, the sender's part
        into the sender's queue, followed by the marker."""
        for batch in inputs:
            self._append((self._restored_number(batch), batch))
            self.restored_records += batch.size
            self.incoming += self.weight(batch)
        self._restore_outgoing([(self._restored_number(batch), batch) for batch in outputs])
        self._restore_outgoing_marker()
        if self.occupied >= self.capacity:
            self.full = True
            self.sender.output_filled()

    def _restored_number(self, batch: Batch) -> int:
        count = batch.size
        self.sent_records += count
        self.occupied += self.weight(batch)
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
        weight = self.weight
        queued = sum([weight(one) for _, one in self.queue if isinstance(one, Batch)]) if self.queue else 0
        waiting = sum([weight(one) for _, one in self.outgoing if isinstance(one, Batch)]) if self.outgoing else 0
        assert 0 <= queued <= self.incoming, (self.name, queued, self.incoming)
        assert self.incoming + waiting == self.occupied, (self.name, waiting, self.occupied)
        if self._settings.weigh is None:
            assert self.occupied == self.queued_records, (self.name, self.occupied, self.queued_records)
        assert self.full == (self.occupied >= self.capacity), self.name
        for position, (_, element) in enumerate(self.queue):
            if position < self.priority_events:
                assert isinstance(element, (BarrierAnnouncement, CheckpointBarrier)), (self.name, position, element)
            else:
                assert not isinstance(element, BarrierAnnouncement), (self.name, position, element)

    def fingerprint(self) -> object:
        """The elements queued, and whether they may be read."""
        now = self._settings.kernel.now_ns
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
            None if self._transfer is None else (_plain(self._transfer[0]), now - self._transfer[1]),
            None if self.host_link is None else max(0, self.host_link.free_ns - now),
            tuple(map(_plain, self.outgoing or ())),
            tuple(map(_plain, self.queue)),
        )


def _plain(numbered: Numbered) -> object:
    element = numbered[1]
    if isinstance(element, Batch):
        return (tuple(map(repr, element.values)), element.timestamps and tuple(element.timestamps))
    return barrier_fingerprint(element) if isinstance(element, CheckpointBarrier) else element
