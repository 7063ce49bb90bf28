"""A channel against a model of it by brute force: plain lists, searched from the front, after every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings, strategies as st

from engine.elements.batch import Batch
from engine.elements.events import CheckpointBarrier, Watermark
from engine.runtime.channels import Element
from engine.runtime.config import CostModel
from tests.runtime.channels.links import Link, aligned, flat, records, timeoutable, unaligned


class Model:
    """The same channel by brute force: lists of elements, searched from the front, on a link that takes no time."""

    def __init__(self, credit: int, weigh: Callable[[Batch], int]) -> None:
        self.credit = credit
        self.weigh = weigh
        self.sending: list[Element] = []
        self.queue: list[Any] = []
        """What is at the receiver; a ``("mark", id)`` stands where a barrier of that id has arrived."""
        self.urgent: list[Element] = []
        self.is_blocked = False
        self.slot: int | None = None
        self.inputs: dict[int, list[Any]] = {}
        self.outputs: dict[int, list[Any]] = {}
        self.failed: set[int] = set()
        self.capturing: int | None = None
        self.last = -1
        self.barrier_here = False

    def put(self, element: Element) -> None:
        if isinstance(element, CheckpointBarrier) and element.is_priority:
            self._overtake(element, list(self.sending))
            return
        self.sending.append(element)
        if isinstance(element, CheckpointBarrier) and element.options.timeoutable:
            before = self._settle(element.checkpoint_id)
            if not before:
                if self.slot is not None:
                    self.failed.add(self.slot)
                self.slot = element.checkpoint_id
        self._settle()

    def _overtake(self, barrier: CheckpointBarrier, ahead: list[Element]) -> None:
        urgent = [one for one in self.sending if isinstance(one, CheckpointBarrier) and one.is_priority]
        rest = [one for one in self.sending if not (isinstance(one, CheckpointBarrier) and one.is_priority)]
        captured = [one for one in ahead if isinstance(one, Batch)]
        self.outputs[barrier.checkpoint_id] = flat(captured)
        self.sending = [*urgent, barrier, *rest]
        self._settle()

    def time_out(self, checkpoint_id: int) -> None:
        """A barrier goes to the front."""
        if self.slot != checkpoint_id:
            return
        self.slot = None
        at, barrier = next(
            (at, one)
            for at, one in enumerate(self.sending)
            if isinstance(one, CheckpointBarrier) and one.checkpoint_id == checkpoint_id
        )
        ahead = self.sending[:at]
        del self.sending[at]
        self._overtake(barrier.as_unaligned(), ahead)

    def abandon(self, checkpoint_id: int) -> None:
        if self.slot == checkpoint_id:
            self.slot = None

    def resume(self) -> None:
        self.is_blocked = False
        self._settle()

    def set_credit(self, credit: int) -> None:
        """Set the credit."""
        self.credit = credit
        self._settle()

    def take(self, count: int | None) -> list[Any]:
        """An event, or some records of the first batch."""
        while self.queue and isinstance(self.queue[0], tuple):
            del self.queue[0]
        if self.urgent:
            return [self.urgent.pop(0)]
        head = self.queue.pop(0)
        if not isinstance(head, Batch):
            return [head]
        taken = head.values[:count]
        if len(taken) < len(head):
            self.queue.insert(0, Batch(head.values[len(taken) :]))
        self._settle()
        return taken

    def promote(self, checkpoint_id: int) -> None:
        barrier = next(one for one in self.queue if _is_barrier(one, checkpoint_id))
        self.queue.remove(barrier)
        self.urgent.append(barrier)

    def start(self, checkpoint_id: int) -> None:
        """Capture the records before the barrier, or all of them."""
        self.inputs[checkpoint_id] = []
        marked = self.barrier_here and self.last == checkpoint_id
        if not marked:
            self.capturing, self.last, self.barrier_here = checkpoint_id, checkpoint_id, False
        end = len(self.queue)
        if marked:
            marks = [at for at, one in enumerate(self.queue) if one == ("mark", checkpoint_id)]
            end = marks[0] if marks else 0
        self.inputs[checkpoint_id] += flat([one for one in self.queue[:end] if isinstance(one, Batch)])

    def stop(self, checkpoint_id: int) -> None:
        if checkpoint_id >= self.last:
            self.capturing, self.barrier_here = None, False

    @property
    def incoming(self) -> int:
        return sum(self.weigh(one) for one in self.queue if isinstance(one, Batch))

    def _settle(self, looked_for: int | None = None) -> bool:
        """Send every element that may leave. Returns whether the barrier looked for was among them."""
        found = False
        while self.sending and not self.is_blocked:
            element = self.sending[0]
            if isinstance(element, Batch) and self.incoming >= self.credit:
                break
            del self.sending[0]
            if isinstance(element, CheckpointBarrier):
                found = found or element.checkpoint_id == looked_for
                if self.slot == element.checkpoint_id:
                    self.slot = None
                self.is_blocked = element.blocks_sender
                self._barrier_arrives(element)
            else:
                self.queue.append(element)
                if isinstance(element, Batch) and self.capturing is not None:
                    self.inputs[self.capturing] += element.values
        return found

    def _barrier_arrives(self, barrier: CheckpointBarrier) -> None:
        idle = self.capturing is None and not self.barrier_here
        if barrier.checkpoint_id > self.last or (barrier.checkpoint_id == self.last and not idle):
            self.capturing, self.last, self.barrier_here = None, barrier.checkpoint_id, True
        self.queue.append(("mark", barrier.checkpoint_id))
        if barrier.is_priority:
            self.urgent.append(barrier)
        else:
            self.queue.append(barrier)


def _is_barrier(element: Any, checkpoint_id: int) -> bool:
    return isinstance(element, CheckpointBarrier) and element.checkpoint_id == checkpoint_id


class Pair:
    """A channel and its model, driven by the same steps."""

    def __init__(self, credit: int, instrumented: bool, in_bytes: bool) -> None:
        weigh = CostModel(record_bytes=lambda number: 1 + number % 3).bytes_of if in_bytes else None
        self.link = Link(capacity=credit, output_capacity=5, weigh=weigh)
        self.link.receiver.has_announcements = False
        if not instrumented:
            self.link.channel._instrument, self.link.channel._records_of = None, ()
        self.model = Model(credit, len if weigh is None else weigh)
        self.inputs: dict[int, list[Any]] = {}
        self.sent = 0
        self.barriers = 0
        self.started = -1
        self.sent_order: list[int] = []
        self.taken_order: list[int] = []

    def put_records(self, count: int) -> None:
        """A batch of new numbers."""
        batch = records(*range(self.sent, self.sent + count))
        self.sent += count
        self.link.put(batch)
        self.model.put(batch)

    def put_event(self, number: int) -> None:
        self.link.put(Watermark(number))
        self.model.put(Watermark(number))

    def put_barrier(self, kind: int) -> None:
        self.barriers += 1
        barrier = (aligned, timeoutable, unaligned)[kind % 3](self.barriers)
        self.link.put(barrier)
        self.model.put(barrier)

    def take(self, count: int) -> None:
        """The next event, or at most ``count`` records."""
        channel = self.link.channel
        if not channel.queue:
            return
        head = channel.head()
        if isinstance(head, Batch):
            taken = channel.take_records(min(count, len(head))).values
            self.taken_order += taken
            assert self.model.take(count) == taken
        else:
            assert self.model.take(None) == [channel.take()]

    def resume(self, _: int) -> None:
        """Resume a blocked sender, whether its barrier has been taken or not."""
        if self.link.channel.sender_blocked:
            self.link.channel.resume_sender()
            self.model.resume()

    def time_out(self, back: int) -> None:
        """The timer of one of the latest barriers."""
        self.link.channel.barrier_timeout(self.barriers - back % 3)
        self.model.time_out(self.barriers - back % 3)

    def abandon(self, back: int) -> None:
        """The abort of one of the latest checkpoints, at the sender."""
        self.link.channel.abandon_slot(self.barriers - back % 3)
        self.model.abandon(self.barriers - back % 3)

    def set_credit(self, credit: int) -> None:
        self.link.channel.set_credit(credit)
        self.model.set_credit(credit)

    def promote(self, back: int) -> None:
        """One of the latest barriers, if it is queued."""
        checkpoint_id = self.barriers - back % 3
        if any(_is_barrier(element, checkpoint_id) for _, element in self.link.channel.queue):
            if not any(_is_barrier(one, checkpoint_id) for one in self.model.urgent):
                self.model.promote(checkpoint_id)
            self.link.channel.promote_barrier(checkpoint_id)

    def start(self, ahead: int) -> None:
        """Start the capture of a checkpoint later than all before, whose barrier may or may not be here."""
        capture = self.link.channel.capture
        assert capture is not None
        checkpoint_id = max(self.started + 1, capture.last) + ahead % 2
        if capture.can_start(checkpoint_id):
            self.started = checkpoint_id
            self.link.receiver.captured = []
            self.inputs[checkpoint_id] = self.link.receiver.captured
            self.inputs[checkpoint_id] += flat(self.link.channel.start_capture(checkpoint_id))
            self.model.start(checkpoint_id)
            # A later barrier has a higher number.
            self.barriers = max(self.barriers, checkpoint_id - 1)

    def stop(self, _: int) -> None:
        """The end of the capture started last."""
        self.link.channel.stop_capture(self.started)
        self.model.stop(self.started)

    def agree(self) -> None:
        """Both have the same state."""
        link, model = self.link, self.model
        link.channel.validate()
        assert link.waiting == flat(model.sending)
        assert link.arrived == flat([*model.urgent, *(one for one in model.queue if not isinstance(one, tuple))])
        assert link.channel.sender_blocked == model.is_blocked
        assert link.channel.incoming == model.incoming
        assert link.sender.full_outputs == int(link.channel.full)
        assert self.inputs == model.inputs
        for checkpoint_id in range(1, self.barriers + 1):
            assert link.outputs(checkpoint_id) == model.outputs.get(checkpoint_id, [])
            assert link.state.is_failed(checkpoint_id) == (checkpoint_id in model.failed)


STEPS = (
    "put_records",
    "put_records",
    "put_event",
    "put_barrier",
    "take",
    "take",
    "resume",
    "time_out",
    "abandon",
    "set_credit",
    "promote",
    "start",
    "stop",
)


@settings(max_examples=400)
@given(
    st.integers(1, 6), st.booleans(), st.booleans(),
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(1, 5)), max_size=60),
)  # fmt: skip
def test_any_order_of_steps_agrees_with_lists(
    credit: int, instrumented: bool, in_bytes: bool, steps: list[tuple[str, int]]
) -> None:
    """Whatever is sent, taken, blocked, resumed, timed out, given up, captured and promoted in any order: what waits,
    what has arrived and what is captured is what a plain list says, and no record is lost or comes twice. So it is with
    credit counted in bytes."""
    pair = Pair(credit, instrumented, in_bytes)
    for step, number in steps:
        getattr(pair, step)(number)
        pair.agree()

    while pair.link.channel.queue or pair.link.waiting:
        pair.take(10)
        pair.resume(0)
    pair.agree()

    assert pair.taken_order == list(range(pair.sent))
