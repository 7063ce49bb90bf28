"""A channel: the FIFO from one sending to one receiving subtask, bounded by credits, blockable by its consumer.

Rules.
1. Elements keep their order, except that priority events overtake everything but earlier priority events.
2. Credit is counted in records, queued or under way. A sender starts an element only while every one of its channels
   has credit; what that element emits may overshoot. Events need no credit.
3. A blocked channel yields nothing until it is resumed; what arrives meanwhile waits (barrier alignment).
4. ``sent_records`` and ``received_records`` are the counters of the cut oracle: a record is sent when it was put, and
   received when the consumer has taken it, whatever batch it travelled in.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from engine.elements.batch import Batch
from engine.elements.events import CheckpointBarrier, Event, Watermark
from engine.observe.events import ChannelBlocked, ChannelResumed, Instrument, Receive, Send

if TYPE_CHECKING:
    from engine.graph.plan import ChannelPlan
    from engine.runtime.cost import CostModel
    from engine.runtime.kernel import Kernel
    from engine.runtime.task import Task

Element = Batch | Event


class Channel:
    """One FIFO between two tasks of one attempt."""

    __slots__ = (
        "_cost",
        "_free_at_ns",
        "_instrument",
        "_kernel",
        "_takes_time",
        "attempt",
        "blocked",
        "capacity",
        "full",
        "index",
        "input_index",
        "latency_ns",
        "listed",
        "name",
        "priority_events",
        "queue",
        "queued_records",
        "received_records",
        "receiver",
        "sender",
        "sent_elements",
        "sent_records",
    )

    def __init__(
        self,
        plan: ChannelPlan,
        sender: Task,
        receiver: Task,
        *,
        kernel: Kernel,
        cost: CostModel,
        latency_ns: int,
        capacity: int,
        attempt: int,
        instrument: Instrument | None,
    ) -> None:
        self.index = plan.index
        self.input_index = plan.input_index
        self.name = f"{sender.name}->{receiver.name}"
        self.sender = sender
        self.receiver = receiver
        self.capacity = capacity
        self.attempt = attempt
        self.latency_ns = latency_ns
        self.queue: deque[tuple[int, Element]] = deque()
        self.priority_events = 0
        self.queued_records = 0
        self.sent_records = 0
        self.sent_elements = 0
        self.received_records = 0
        self.blocked = False
        self.full = False
        self.listed = False
        self._kernel = kernel
        self._cost = cost
        self._free_at_ns = 0
        # A property of the link, not of the element: an event that needs no time must not overtake the records
        # that are still under way.
        self._takes_time = latency_ns > 0 or cost.link_bytes_per_s is not None
        self._instrument = instrument

    # -- sender's side ----------------------------------------------------------------------------------------

    def put_batch(self, batch: Batch) -> None:
        """Send records (at least one)."""
        count = len(batch.values)
        self.sent_records += count
        self.queued_records = queued = self.queued_records + count
        if queued >= self.capacity and not self.full:
            self.full = True
            self.sender.full_outputs += 1
        self._put(batch, count)

    def put_event(self, event: Event) -> None:
        """Send an event; needs no credit."""
        self._put(event, 0)

    def _put(self, element: Element, records: int) -> None:
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
        if self._takes_time:
            # The link is busy until the previous element has passed: order is kept whatever the sizes are.
            busy_until_ns = max(self._free_at_ns, self._kernel.now_ns)
            self._free_at_ns = free = busy_until_ns + self._cost.transfer_ns(records)
            self._kernel.schedule(free + self.latency_ns, "arrive", self, (number, element))
        else:
            self.arrive((number, element))

    # -- receiver's side --------------------------------------------------------------------------------------

    def arrive(self, numbered: tuple[int, Element]) -> None:
        """An element has reached the receiver's queue (kernel event when the link takes time)."""
        element = numbered[1]
        if isinstance(element, CheckpointBarrier) and element.is_priority:
            self.queue.insert(self.priority_events, numbered)
            self.priority_events += 1
        else:
            self.queue.append(numbered)
        if not self.blocked and not self.listed:
            self.receiver.channel_readable(self)

    def head(self) -> Element:
        """The next element, still queued."""
        return self.queue[0][1]

    def take(self) -> Element:
        """Remove the next element; its records count as received and their credit returns."""
        number, element = self.queue.popleft()
        if element.__class__ is Batch:
            self._received(number, len(element))
        else:
            if self.priority_events:
                self.priority_events -= 1
            if self._instrument is not None:
                self._trace_receive(number, element, 0)
        return element

    def take_records(self, count: int) -> Batch:
        """Remove the first ``count`` records of the first batch; the rest of it keeps its place."""
        # Priority events may have overtaken the batch since the consumer began with it.
        first = self.priority_events
        number, batch = self.queue[first]
        assert batch.__class__ is Batch
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
        if self.full and queued < self.capacity:
            self.full = False
            self.sender.credit_returned()
        if self._instrument is not None:
            self._trace_receive(number, None, count)

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
        """Yield nothing until :meth:`resume`."""
        assert not self.blocked, f"{self.name} is blocked already"
        self.blocked = True
        if self._instrument is not None:
            self._instrument(ChannelBlocked(self._kernel.now_ns, self.attempt, self.index))

    def resume(self) -> None:
        """Go on after :meth:`block`."""
        assert self.blocked, f"{self.name} is not blocked"
        self.blocked = False
        if self._instrument is not None:
            self._instrument(ChannelResumed(self._kernel.now_ns, self.attempt, self.index))
        if self.queue and not self.listed:
            self.receiver.channel_readable(self)

    def validate(self) -> None:
        """Assert what must hold between two events."""
        queued = sum(len(element) for _, element in self.queue if isinstance(element, Batch))
        assert 0 <= queued <= self.queued_records, (self.name, queued, self.queued_records)
        assert self.sent_records == self.received_records + self.queued_records, self.name
        assert self.full == (self.queued_records >= self.capacity), self.name

    def fingerprint(self) -> object:
        """What is queued and whether it may be read."""
        return (
            self.blocked,
            self.queued_records,
            tuple(
                (tuple(map(repr, element.values)), element.timestamps and tuple(element.timestamps))
                if isinstance(element, Batch)
                else element
                for _, element in self.queue
            ),
        )


def kind_of(element: Element) -> str:
    """The trace's name for what kind of element this is."""
    return "records" if element.__class__ is Batch else element.__class__.__name__


def detail_of(element: Element) -> int | None:
    """The number that tells two events of one kind apart."""
    if isinstance(element, Watermark):
        return element.timestamp_ms
    return getattr(element, "checkpoint_id", None)
