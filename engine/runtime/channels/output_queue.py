"""The sender's half of a channel: its queue, for elements that may not leave yet, and the link, which may take time
(Flink: ``PipelinedSubpartition``). The receiver's half is :class:`engine.runtime.channels.channel.Channel`.

Rules.
1. Elements leave in order while the receiver has credit (events need none), the link is free and the queue is not
   blocked. A priority event goes to the front, after earlier ones.
2. A barrier in aligned form blocks the queue as it leaves: nothing follows it until the receiver resumes the channel.
   Blocking is enforced here, so elements after a barrier do not even reach the receiver.
3. An unaligned barrier overtakes the queue; the records it overtakes are the channel state of its checkpoint, in
   their order. Events keep their place and are no state.
4. A timeoutable barrier that cannot leave at once reserves a slot of channel state. Taken in time, the slot is empty.
   If its timeout comes first, the records ahead of it are the state, and it goes to the front as an unaligned one. A
   second timeoutable barrier after it fails the slot: one checkpoint at a time.
5. Elements that a restore put here leave before anything new. A marker after them blocks the queue like a barrier.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from engine.checkpoint.subtask import ChannelStateWriter
from engine.elements.batch import Batch
from engine.elements.events import CheckpointBarrier, EndOfChannelState, Event, Watermark
from engine.graph.plan import ChannelPlan
from engine.observe.trace_events import EVERY_CHANNEL, CreditChanged, Departed, Instrument, RecordsCaptured, Send
from engine.runtime.channels.host_link import HostLink
from engine.runtime.config import CostModel
from engine.runtime.kernel import Kernel, LinkHook

if TYPE_CHECKING:
    from engine.runtime.channels.channel import Channel

_new_tuple = tuple.__new__

Element = Batch | Event
Numbered = tuple[int, Element]
"""An element with its number on the channel."""


class Sender(Protocol):
    """The task that sends on a channel."""

    name: str

    def output_filled(self) -> None:
        """An output has no credit any more."""

    def credit_returned(self) -> None:
        """An output that had no credit has some again."""

    def output_consumed(self) -> None:
        """An output that is awaited is empty."""

    def channel_state_changed(self, checkpoint_id: int) -> None:
        """The slot that an output had reserved in a checkpoint is filled, or failed."""


@dataclass(slots=True)
class ChannelSettings:
    """All that the channels of one sender share. ``capacity``: credit on the receiver's side; ``output_capacity``:
    beyond that on the sender's. Both in records, or in bytes with ``weigh``."""

    kernel: Kernel
    cost: CostModel
    latency_ns: int
    capacity: int
    attempt: int
    instrument: Instrument | None
    output_capacity: int = 0
    hook: Callable[[Channel], LinkHook] | None = None
    """Makes the hook of a channel; absent without faults."""
    records_of: Container[int] = EVERY_CHANNEL
    """The channels of whose records the instrument hears."""
    sent_last: tuple[Numbered, ...] = ((0, EndOfChannelState()),)
    """The event sent last, as the queue of a channel that holds nothing else: those of a broadcast share it."""
    delay: Callable[[], int] | None = None
    """Draws the ns of an element over the link beyond ``latency_ns``."""
    host_link: HostLink | None = None
    """Absent when the host's bandwidth is not limited."""
    weigh: Callable[[Batch], int] | None = None
    """The bytes of records; absent when credit is counted in records."""
    arrivals: dict[int, int] = field(init=False, default_factory=dict)
    """With random delays: when the newest element of a channel arrives."""
    whole_capacity: int = field(init=False)
    """On both sides together. There may be a million channels: they share the number."""
    is_limited: bool = field(init=False)
    """Whether records may take time to pass a link, beyond its latency."""
    at_once: bool = field(init=False)
    """Whether an element arrives as it leaves."""

    def __post_init__(self) -> None:
        self.whole_capacity = self.capacity + self.output_capacity
        self.is_limited = self.cost.link_bytes_per_s is not None or self.host_link is not None
        self.at_once = not (self.latency_ns or self.delay or self.is_limited or self.hook)

    def delayed_ns(self, channel: int) -> int:
        """When an element arrives that leaves now. None overtakes the one ahead of it."""
        assert self.delay is not None
        arrives_ns = self.kernel.now_ns + self.latency_ns + self.delay()
        self.arrivals[channel] = arrives_ns = max(arrives_ns, self.arrivals.get(channel, 0))
        return arrives_ns


class OutputQueue(ABC):
    """The sender's half of one channel, up to where elements arrive."""

    __slots__ = (
        "_at_once",
        "_direct",
        "_instrument",
        "_is_short",
        "_records_of",
        "_settings",
        "_slot",
        "_transfer",
        "_transfer_number",
        "capacity",
        "connected",
        "full",
        "hook",
        "incoming",
        "index",
        "input_credit",
        "is_awaited",
        "lost_records",
        "occupied",
        "outgoing",
        "plan",
        "received_records",
        "receiver_name",
        "sender",
        "sender_blocked",
        "sent_elements",
        "sent_records",
    )

    def __init__(self, plan: ChannelPlan, sender: Sender, receiver_name: str, settings: ChannelSettings) -> None:
        self._settings = settings
        self._instrument = settings.instrument
        self.plan = plan
        self.index = plan.index
        self.sender = sender
        self.receiver_name = receiver_name
        self._records_of = () if settings.instrument is None else settings.records_of
        self.input_credit = settings.capacity
        self.capacity = settings.whole_capacity
        self.occupied = 0
        """What is on the channel, on both sides together, in the unit of its credit: records, or bytes."""
        self.sent_records = 0
        self.received_records = 0
        self.sent_elements = 0
        self.lost_records = 0
        """Sent, and never to arrive."""
        self.full = False
        self.is_awaited = False
        """The sender cannot finish before everything is consumed."""
        self.incoming = 0
        """What is under way or queued at the receiver, and so uses its credit."""
        self.outgoing: deque[Numbered] | None = None
        self.sender_blocked = False
        self.connected = True
        self._direct = True
        """Whether the next element may leave without queueing, credit apart."""
        self._slot: tuple[int, ChannelStateWriter] | None = None
        self._transfer: tuple[Numbered, int] | None = None
        """The element passing over a limited link, and since when."""
        self._transfer_number = 0
        self.hook: LinkHook | None = None
        self._at_once = settings.at_once
        self._is_short = settings.at_once and settings.instrument is None
        """Whether records need neither time nor, ever, a trace."""

    @abstractmethod
    def arrive(self, numbered: Numbered) -> None:
        """An element has reached the receiver."""

    @property
    def queued_records(self) -> int:
        """Records on the channel, on both sides together."""
        return self.sent_records - self.received_records - self.lost_records

    def weight(self, batch: Batch) -> int:
        """The credit that records use."""
        weigh = self._settings.weigh
        return batch.size if weigh is None else weigh(batch)

    @property
    def attempt(self) -> int:
        """In which the channel was made."""
        return self._settings.attempt

    def arrival_ns(self) -> int:
        """When an element without a length arrives that leaves now. Draws its delay, if that is random."""
        settings = self._settings
        if settings.delay is not None:
            return settings.delayed_ns(self.index)
        return settings.kernel.now_ns + settings.latency_ns

    @property
    def host_link(self) -> HostLink | None:
        """The link of the sender's host; ``None`` when it is not limited, or the receiver is on the same host."""
        plan = self.plan
        return None if plan.sender_subtask == plan.receiver_subtask else self._settings.host_link

    @property
    def name(self) -> str:
        """``sender->receiver``."""
        return f"{self.sender.name}->{self.receiver_name}"

    # --- sending --------------------------------------------------------------------------------------------------

    def sender_replaced(self, sender: Sender) -> None:
        """``sender`` sends from now on."""
        self.sender = sender
        if self.full:
            sender.output_filled()

    def put_event(self, event: Event) -> None:
        """Send an event other than a barrier; needs no credit."""
        self._send((self._next_number(event, 0), event), 0)

    def put_barrier(self, barrier: CheckpointBarrier, state: ChannelStateWriter | None) -> None:
        """Send a barrier. ``state``: where records that it overtakes go, ``None`` when it cannot overtake any."""
        number = self._next_number(barrier, 0)
        if barrier.options.is_priority:
            self._send_to_front(number, barrier, state)
        elif self._direct:
            self._depart((number, barrier))
            if barrier.options.needs_alignment:
                self.sender_blocked, self._direct = True, False
        else:
            if barrier.options.timeoutable and state is not None:
                self._fail_slot()
                self._slot = (barrier.checkpoint_id, state)
                state.reserve_output(barrier.checkpoint_id, self.index)
            self._queue().append((number, barrier))

    def _next_number(self, element: Element, records: int) -> int:
        self.sent_elements = number = self.sent_elements + 1
        if self._instrument is not None and (not records or self.index in self._records_of):
            kind = "records" if records else element.__class__.__name__
            detail = None if records else detail_of(element)
            now = self._settings.kernel.now_ns
            queued = self.sent_records - self.received_records - self.lost_records
            # Written out: half as long as calling the class, and every element of a search passes here.
            sent = _new_tuple(Send, (now, self._settings.attempt, self.index, number, kind, records, detail, queued))
            self._instrument(sent)
        return number

    def set_credit(self, records: int) -> None:
        """Grant ``records`` (at least one) from now on, and hold the sender's side to the same proportion of what was
        configured. More than that may be in the channel now: it stays, and is taken off as the consumer takes it."""
        assert records >= 1, records
        if records == self.input_credit:
            return
        self.input_credit = records
        self.capacity = records + self._settings.output_capacity * records // self._settings.capacity
        if self._instrument is not None:
            self._instrument(CreditChanged(self._settings.kernel.now_ns, self._settings.attempt, self.index, records))
        is_full = self.occupied >= self.capacity
        if is_full != self.full:
            self.full = is_full
            if is_full:
                self.sender.output_filled()
            else:
                self.sender.credit_returned()
        self.pump()

    def _send(self, numbered: Numbered, weight: int) -> None:
        """Let an element leave, or queue it. ``weight``: 0 for an event."""
        if self._direct and (not weight or self.incoming < self.input_credit):
            self.incoming += weight
            self._depart(numbered)
        else:
            self._queue().append(numbered)
            self._direct = False

    def _send_to_front(self, number: int, barrier: CheckpointBarrier, state: ChannelStateWriter | None) -> None:
        earlier, overtaken = self._take_back()
        if state is not None:
            waiting = [one for _, one in overtaken if isinstance(one, Batch)]
            state.add_output(barrier.checkpoint_id, self.index, waiting)
            if self._instrument is not None:
                self.trace_captured(barrier.checkpoint_id, "output", waiting)
        self._queue().extend([*earlier, (number, barrier), *overtaken])
        self.pump()

    def _take_back(self) -> tuple[list[Numbered], list[Numbered]]:
        """Everything that has not left yet: priority events, which wait here only while the queue is blocked, and the
        rest. Leaves the queue empty."""
        first: list[Numbered] = []
        cut = self._recall()
        rest = [] if cut is None else [cut]
        for numbered in self.outgoing or ():
            element = numbered[1]
            (first if isinstance(element, CheckpointBarrier) and element.options.is_priority else rest).append(numbered)
        self._queue().clear()
        return first, rest

    def _queue(self) -> deque[Numbered]:
        # Most channels never have to keep anything back, and there may be a million of them.
        if self.outgoing is None:
            self.outgoing = deque()
        return self.outgoing

    # --- leaving --------------------------------------------------------------------------------------------------

    def poll(self) -> Numbered | None:
        """Take the next element, whether there is credit or not; ``None`` when there is none or they are blocked."""
        queue = self.outgoing
        if not queue or self.sender_blocked:
            return None
        numbered = queue.popleft()
        element = numbered[1]
        if isinstance(element, CheckpointBarrier):
            if self._slot is not None and self._slot[0] == element.checkpoint_id:
                # Taken in time: nothing was overtaken.
                self._fill_slot([])
            self.sender_blocked = element.options.needs_alignment
        elif isinstance(element, EndOfChannelState):
            self.sender_blocked = True
        return numbered

    def pump(self) -> None:
        """Let everything leave that may."""
        queue = self.outgoing
        if queue is not None and self.connected:
            while queue and not self.sender_blocked and self._transfer is None:
                head = queue[0][1]
                records = len(head) if isinstance(head, Batch) else 0
                if records and self.incoming >= self.input_credit:
                    break
                numbered = self.poll()
                assert numbered is not None
                if self._instrument is not None:
                    self._departed(numbered, records)
                if isinstance(head, Batch):
                    self.incoming += self.weight(head)
                self._depart(numbered)
        self._direct = not queue and self.connected and not self.sender_blocked and self._transfer is None

    def resume_sender(self) -> None:
        """The receiver has resumed the channel."""
        self.sender_blocked = False
        if self.outgoing:
            self.pump()
        else:
            self._direct = self.connected and self._transfer is None

    def disconnect(self) -> None:
        """Nothing leaves before the receiver is ready."""
        self.connected = self._direct = False

    def connect(self) -> None:
        """The receiver is ready for elements of this attempt."""
        self.connected = True
        self.pump()

    # --- the timeout of an aligned barrier ------------------------------------------------------------------------

    def barrier_timeout(self, checkpoint_id: int) -> None:
        """The alignment of a checkpoint has taken too long: a barrier of it that still waits here goes to the front."""
        if self._slot is None or self._slot[0] != checkpoint_id:
            return
        earlier, queued = self._take_back()
        at = next(
            position
            for position, (_, one) in enumerate(queued)
            if isinstance(one, CheckpointBarrier) and one.checkpoint_id == checkpoint_id
        )
        number, barrier = queued.pop(at)
        assert isinstance(barrier, CheckpointBarrier)
        self._fill_slot([one for _, one in queued[:at] if isinstance(one, Batch)])
        self._queue().extend([*earlier, (number, barrier.as_unaligned()), *queued])
        self.pump()

    def abandon_slot(self, checkpoint_id: int) -> None:
        """The checkpoint was aborted: its barrier keeps its place, and no state is wanted of it."""
        if self._slot is not None and self._slot[0] == checkpoint_id:
            self._slot = None

    def _fill_slot(self, batches: list[Batch]) -> None:
        assert self._slot is not None
        checkpoint_id, state = self._slot
        self._slot = None
        state.fill_output(checkpoint_id, self.index, batches)
        self.trace_captured(checkpoint_id, "output", batches)
        self.sender.channel_state_changed(checkpoint_id)

    def _fail_slot(self) -> None:
        if self._slot is not None:
            checkpoint_id, state = self._slot
            self._slot = None
            state.fail_output(checkpoint_id, self.index)
            self.sender.channel_state_changed(checkpoint_id)

    def _departed(self, numbered: Numbered, records: int) -> None:
        assert self._instrument is not None
        number, element = numbered
        self._instrument(
            Departed(
                self._settings.kernel.now_ns,
                self._settings.attempt,
                self.index,
                number,
                kind_of(element),
                records,
                detail_of(element),
                self.queued_records,
            )
        )

    def trace_captured(self, checkpoint_id: int, side: str, batches: Sequence[Batch]) -> None:
        """Tell the instrument of records that became part of a checkpoint, if there are any."""
        if self._instrument is not None:
            records = sum(map(len, batches))
            if records:
                now = self._settings.kernel.now_ns
                self._instrument(RecordsCaptured(now, self._settings.attempt, checkpoint_id, self.index, side, records))

    # --- restore --------------------------------------------------------------------------------------------------

    def _restore_outgoing(self, elements: Iterable[Numbered]) -> None:
        assert not self.outgoing, "restored output comes before anything new"
        self._queue().extend(elements)
        self._direct = False

    # --- the link -------------------------------------------------------------------------------------------------

    def _depart(self, numbered: Numbered) -> None:
        element = numbered[1]
        over_ns = self._over_ns(element) if self._settings.is_limited and isinstance(element, Batch) else None
        if over_ns is None:
            self._propagate(numbered)
            return
        self._direct = False
        self._transfer = (numbered, self._settings.kernel.now_ns)
        self._transfer_number += 1
        self._settings.kernel.schedule(over_ns, "transferred", self, self._transfer_number)

    def _over_ns(self, batch: Batch) -> int | None:
        """When records have passed that leave now; ``None``: nothing limits their link."""
        settings, host_link = self._settings, self.host_link
        now_ns, size_bytes = settings.kernel.now_ns, settings.cost.bytes_of(batch)
        over_ns = now_ns + settings.cost.transfer_ns(size_bytes)
        if host_link is not None:
            return max(over_ns, host_link.pass_ns(now_ns, size_bytes))
        return None if settings.cost.link_bytes_per_s is None else over_ns

    def _propagate(self, numbered: Numbered) -> None:
        settings = self._settings
        if self.hook is not None:
            self.hook.propagate(numbered)
        elif settings.delay is not None:
            settings.kernel.schedule(settings.delayed_ns(self.index), "arrive", self, numbered)
        elif settings.latency_ns:
            settings.kernel.schedule(settings.kernel.now_ns + settings.latency_ns, "arrive", self, numbered)
        else:
            self.arrive(numbered)

    def happens(self, event: tuple[str, Any]) -> None:
        """An event that the hook has arranged is due (kernel event)."""
        assert self.hook is not None, event
        self.hook.happens(event)

    def lose(self, records: int, weight: int) -> None:
        """So many records of those that were sent, of that weight together, will never arrive."""
        self.lost_records += records
        self.occupied -= weight
        if self.full and self.occupied < self.capacity:
            self.full = False
            self.sender.credit_returned()
        if self.is_awaited and not self.occupied:
            self.is_awaited = False
            self.sender.output_consumed()

    def transferred(self, number: int) -> None:
        """An element has left a limited link (kernel event); void when it was cut meanwhile."""
        if number == self._transfer_number and self._transfer is not None:
            numbered, _ = self._transfer
            self._transfer = None
            self._propagate(numbered)
            self.pump()

    def _recall(self) -> Numbered | None:
        if self._transfer is None or self.host_link is not None:
            # What waits for the link of the host has left.
            return None
        (number, batch), started_ns = self._transfer
        self._transfer = None
        assert isinstance(batch, Batch)
        passed = self._settings.cost.transferred_records(batch, self._settings.kernel.now_ns - started_ns)
        if passed == batch.size:
            self._propagate((number, batch))
            return None
        rest = batch
        if passed:
            first, rest = batch.split(passed)
        self.incoming -= self.weight(rest)
        if passed:
            self._propagate((number, first))
        return (number, rest)


def kind_of(element: Element) -> str:
    """The trace's name for the kind of this element."""
    return "records" if isinstance(element, Batch) else element.__class__.__name__


def detail_of(element: Element) -> int | None:
    """The number that tells two events of one kind apart."""
    if isinstance(element, Watermark):
        return element.timestamp_ms
    return getattr(element, "checkpoint_id", None)
