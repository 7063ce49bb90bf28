"""The sender's half of a channel: what has been emitted and may not leave yet (Flink: ``PipelinedSubpartition``).

Rules.
1. Elements leave in order while the receiver has credit (events need none), the link is free and nobody has blocked
   the queue. A priority event goes to the front, behind earlier ones.
2. A barrier in aligned form blocks the queue as it leaves: nothing follows it until the receiver resumes the channel.
   Blocking is enforced here, so that what lies behind a barrier does not even reach the receiver.
3. An unaligned barrier overtakes what is queued; the records it overtakes are the channel state of its checkpoint, in
   their order. Events keep their place and are no state.
4. A timeoutable barrier that cannot leave at once reserves a slot of channel state. Taken in time, the slot is empty;
   if its timeout comes first, the records ahead of it are the state, and it goes to the front as an unaligned one. A
   second timeoutable barrier behind it fails the slot: one checkpoint at a time.
5. What a restore put here leaves before anything new, followed by a marker that blocks the queue like a barrier.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from engine.elements.batch import Batch
from engine.elements.events import CheckpointBarrier, EndOfChannelState, Event

if TYPE_CHECKING:
    from engine.checkpoint.subtask import ChannelStateWriter

Element = Batch | Event
Numbered = tuple[int, Element]
"""An element with its number on the channel."""


class OutputQueue(ABC):
    """Elements of one channel that wait on the sender's side."""

    __slots__ = ("_direct", "_slot", "connected", "incoming_records", "input_credit", "outgoing", "sender_blocked")

    index: int

    def __init__(self, input_credit: int) -> None:
        self.input_credit = input_credit
        self.incoming_records = 0
        """Records under way or queued at the receiver: they use its credit."""
        self.outgoing: deque[Numbered] | None = None
        self.sender_blocked = False
        self.connected = True
        self._direct = True
        """Whether the next element may leave without queueing, credit apart."""
        self._slot: tuple[int, ChannelStateWriter] | None = None

    # --- what the link provides -----------------------------------------------------------------------------------

    @abstractmethod
    def _depart(self, numbered: Numbered, records: int) -> None:
        """Put an element on the link, which is free."""

    @abstractmethod
    def _link_is_free(self) -> bool:
        """Whether the link can take an element now."""

    @abstractmethod
    def _recall(self) -> Numbered | None:
        """Take back the part of the element under transfer that has not left yet."""

    @abstractmethod
    def _slot_filled(self, checkpoint_id: int) -> None:
        """Tell the sender that the reserved slot of a checkpoint is filled, or failed."""

    @abstractmethod
    def _captured_waiting(self, checkpoint_id: int, batches: Sequence[Batch]) -> None:
        """Waiting records became part of a checkpoint (for the trace)."""

    @abstractmethod
    def _departed(self, numbered: Numbered, records: int) -> None:
        """An element leaves that had to wait (for the trace)."""

    # --- adding ---------------------------------------------------------------------------------------------------

    def _send(self, numbered: Numbered, records: int) -> None:
        """Let an element leave, or queue it."""
        if self._direct and (not records or self.incoming_records < self.input_credit):
            self.incoming_records += records
            self._depart(numbered, records)
        else:
            self._queue().append(numbered)
            self._direct = False

    def _send_barrier(self, number: int, barrier: CheckpointBarrier, state: ChannelStateWriter | None) -> None:
        if barrier.is_priority:
            self._send_to_front(number, barrier, state)
        elif self._direct:
            self._depart((number, barrier), 0)
            if barrier.blocks_sender:
                self.sender_blocked, self._direct = True, False
        else:
            if barrier.options.timeoutable and state is not None:
                self._fail_slot()
                self._slot = (barrier.checkpoint_id, state)
                state.reserve_output(barrier.checkpoint_id, self.index)
            self._queue().append((number, barrier))

    def _send_to_front(self, number: int, barrier: CheckpointBarrier, state: ChannelStateWriter | None) -> None:
        earlier, overtaken = self._take_back()
        if state is not None:
            waiting = [one for _, one in overtaken if isinstance(one, Batch)]
            state.add_output(barrier.checkpoint_id, self.index, waiting)
            self._captured_waiting(barrier.checkpoint_id, waiting)
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
            (first if isinstance(element, CheckpointBarrier) and element.is_priority else rest).append(numbered)
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
            self.sender_blocked = element.blocks_sender
        elif isinstance(element, EndOfChannelState):
            self.sender_blocked = True
        return numbered

    def pump(self) -> None:
        """Let everything leave that may."""
        queue = self.outgoing
        if queue is not None and self.connected:
            while queue and not self.sender_blocked and self._link_is_free():
                head = queue[0][1]
                records = len(head) if isinstance(head, Batch) else 0
                if records and self.incoming_records >= self.input_credit:
                    break
                numbered = self.poll()
                assert numbered is not None
                self._departed(numbered, records)
                self.incoming_records += records
                self._depart(numbered, records)
        self._direct = not queue and self.connected and not self.sender_blocked and self._link_is_free()

    def resume_sender(self) -> None:
        """The receiver has resumed the channel."""
        self.sender_blocked = False
        self.pump()

    def disconnect(self) -> None:
        """Nothing leaves before the receiver is ready."""
        self.connected = self._direct = False

    def connect(self) -> None:
        """The receiver is ready for what this attempt sends."""
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
        self._captured_waiting(checkpoint_id, batches)
        self._slot_filled(checkpoint_id)

    def _fail_slot(self) -> None:
        if self._slot is not None:
            checkpoint_id, state = self._slot
            self._slot = None
            state.fail_output(checkpoint_id, self.index)
            self._slot_filled(checkpoint_id)

    # --- restore --------------------------------------------------------------------------------------------------

    def _restore_outgoing(self, elements: Iterable[Numbered]) -> None:
        assert not self.outgoing, "restored output comes before anything new"
        self._queue().extend(elements)
        self._direct = False
