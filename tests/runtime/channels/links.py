"""A channel between two ends that count its calls, and a few words to drive it with."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, TypeVar

from engine.checkpoint.barriers import ChannelCapture
from engine.checkpoint.subtask import ChannelStateWriter
from engine.elements.batch import Batch
from engine.elements.events import AlignmentType, CheckpointBarrier, CheckpointOptions
from engine.graph.plan import ChannelPlan
from engine.observe.trace_events import EVERY_CHANNEL
from engine.runtime.channels import Channel, ChannelSettings, Element, HostLink
from engine.runtime.config import CostModel
from engine.runtime.kernel import START_NS, ChoiceRecorder, Kernel

EventT = TypeVar("EventT")

PRIORITY = CheckpointOptions(AlignmentType.UNALIGNED)
INDEX = 7
"""Of the channel of a :class:`Link`."""


def aligned(checkpoint_id: int) -> CheckpointBarrier:
    """A barrier that blocks and never overtakes: that of a savepoint, for instance."""
    return CheckpointBarrier(checkpoint_id, START_NS)


def unaligned(checkpoint_id: int) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, START_NS, PRIORITY)


def timeoutable(checkpoint_id: int, timeout_ns: int = 1_000) -> CheckpointBarrier:
    """A barrier that blocks, and may overtake later."""
    return CheckpointBarrier(checkpoint_id, START_NS, CheckpointOptions(aligned_timeout_ns=timeout_ns))


class End:
    """Both ends of a channel in one: counts the calls that a channel makes to its tasks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.full_outputs = 0
        self.credit_returns = 0
        self.readable_calls = 0
        self.priority_calls = 0
        self.captured: list[Any] = []
        self.slots_filled: list[int] = []
        self.drained = 0
        self.has_announcements = True

    def output_filled(self) -> None:
        self.full_outputs += 1

    def credit_returned(self) -> None:
        self.full_outputs -= 1
        self.credit_returns += 1

    def channel_readable(self, channel: Channel) -> None:
        """As a gate does, without waking a task."""
        channel.listed = True
        self.readable_calls += 1

    def priority_arrived(self, channel: Channel) -> None:
        self.priority_calls += 1

    def announces(self, channel: Channel) -> bool:
        """Whether timeoutable barriers are announced."""
        return self.has_announcements

    def capture(self, channel: Channel, batches: Sequence[Batch]) -> None:
        """Records that arrived while the channel captures."""
        self.captured += flat(batches)

    def channel_state_changed(self, checkpoint_id: int) -> None:
        self.slots_filled.append(checkpoint_id)

    def input_state_drained(self) -> None:
        self.drained += 1


class Link:
    """A channel between two ends, with its kernel, the events an instrument saw, and the sender's channel state."""

    def __init__(
        self,
        *,
        capacity: int = 10,
        output_capacity: int = 0,
        cost: CostModel | None = None,
        latency_ns: int = 0,
        seed: int = 0,
        records_of: Container[int] = EVERY_CHANNEL,
        host_link: HostLink | None = None,
        weigh: Callable[[Batch], int] | None = None,
    ) -> None:
        self.sender, self.receiver = End("map[0]"), End("sink[1]")
        self.kernel = Kernel(choices=ChoiceRecorder(str(seed)))
        self.state = ChannelStateWriter()
        self.seen: list[Any] = []
        self.channel = Channel(
            ChannelPlan(INDEX, 0, 0, 0, 0, 1, 1, 3),
            self.sender,  # type: ignore[arg-type]
            self.receiver.name,
            ChannelSettings(
                self.kernel,
                CostModel() if cost is None else cost,
                latency_ns,
                capacity,
                1,
                self.seen.append,
                output_capacity,
                records_of=records_of,
                host_link=host_link,
                weigh=weigh,
            ),
        )
        self.channel.gate = self.receiver  # type: ignore[assignment]
        self.channel.capture = ChannelCapture()

    def put(self, *elements: Element) -> None:
        """Send batches and events; a barrier is sent as by a task that opens channel state for every checkpoint."""
        for element in elements:
            if isinstance(element, Batch):
                self.channel.put_batch(element)
            elif isinstance(element, CheckpointBarrier):
                self.state.open(element.checkpoint_id)
                self.channel.put_barrier(element, self.state)
                self.state.finish_output(element.checkpoint_id)
                self.state.finish_input(element.checkpoint_id)
            else:
                self.channel.put_event(element)

    def take_all(self) -> list[Element]:
        """Receive everything that has arrived, and everything that arrives as credit returns."""
        taken = []
        while self.channel.queue:
            taken.append(self.channel.take())
        return taken

    def outputs(self, checkpoint_id: int) -> list[Any]:
        """The records in the sender's part of a checkpoint."""
        return flat(self.state.captured(checkpoint_id).outputs.get(INDEX, []))

    @property
    def waiting(self) -> list[Any]:
        """Records and events on the sender's side, in order."""
        return flat(element for _, element in self.channel.outgoing or ())

    @property
    def arrived(self) -> list[Any]:
        """Records and events in the receiver's queue, in order."""
        return flat(element for _, element in self.channel.queue)

    def of(self, kind: type[EventT]) -> list[EventT]:
        return [event for event in self.seen if isinstance(event, kind)]


def records(*values: Any) -> Batch:
    return Batch(list(values))


def flat(elements: Iterable[Element]) -> list[Any]:
    """Records and events in order, whatever batches they travelled in."""
    return [one for element in elements for one in (element.values if isinstance(element, Batch) else [element])]
