"""A channel in mode ``acking``: it outlives the tasks at its ends, which die and come back one at a time.

Rules.

* When the receiver dies, everything on the channel is lost, and so is everything sent before its successor is there.
  No task is told. The source that tracks the records finds out by their timeout.
* When the sender dies, elements that wait on its side are lost. Elements that have left arrive.
* The channel remembers what the sender has promised: how far event time is, whether the stream is idle, whether it has
  ended. A new receiver is told again; a new sender does not repeat what its predecessor said.
* After the end of the data no record is sent: all records were acknowledged before.
"""

from __future__ import annotations

from typing import Any

from engine.elements.batch import MIN_TIMESTAMP_MS, Batch
from engine.elements.events import EndOfData, EndOfPartition, Event, Watermark, WatermarkStatus
from engine.graph.plan import ChannelPlan
from engine.runtime.channels import Channel, ChannelSettings, Numbered, Sender


class AckedChannel(Channel):
    """One FIFO between two tasks, either of which may be replaced."""

    __slots__ = ("_ends", "_idle", "_is_cut", "_missed", "_void_up_to", "_watermark_ms")

    def __init__(self, plan: ChannelPlan, sender: Sender, receiver_name: str, settings: ChannelSettings) -> None:
        super().__init__(plan, sender, receiver_name, settings)
        self._watermark_ms = MIN_TIMESTAMP_MS
        self._idle = self._is_cut = False
        self._missed = 0
        self._void_up_to = 0
        """Elements with numbers up to this one were lost, wherever they are."""
        self._ends: list[Event] = []

    # -- sending ------------------------------------------------------------------------------------------------

    def put_batch(self, batch: Batch) -> None:
        """Send records; without a receiver, or after the end of the data, they are dropped."""
        if self._is_cut or self._ends:
            self._missed += len(batch)
            self.sent_records += len(batch)
            self.lost_records += len(batch)
        else:
            super().put_batch(batch)

    def put_event(self, event: Event) -> None:
        """Send an event, if it says something new."""
        match event:
            case Watermark(timestamp_ms):
                if timestamp_ms <= self._watermark_ms:
                    return
                self._watermark_ms = timestamp_ms
            case WatermarkStatus(idle):
                if idle == self._idle:
                    return
                self._idle = idle
            case EndOfData() | EndOfPartition():
                if event in self._ends:
                    return
                self._ends.append(event)
        if not self._is_cut:
            super().put_event(event)

    # -- death and return of the ends -------------------------------------------------------------------------------

    def receiver_died(self) -> int:
        """The receiver is dead: drop everything on the channel. Returns how many records are lost."""
        lost = self.queued_records
        self._is_cut = True
        self._void_up_to = self.sent_elements
        self.queue = ()
        if self.outgoing:
            self.outgoing.clear()
        self._transfer = None
        self._transfer_number += 1
        if self.hook is not None:
            self.hook.cut()
        self.priority_events = self.incoming = 0
        self.priority_listed = self.listed = self.is_awaited = False
        self._direct = True
        self.lose(lost, self.occupied)
        return lost

    def receiver_replaced(self) -> int:
        """A new receiver reads: tell it the promises it missed. Records are not repeated; returns how many they are."""
        assert self._is_cut, self.name
        self._is_cut = False
        missed, self._missed = self._missed, 0
        if self._watermark_ms > MIN_TIMESTAMP_MS:
            super().put_event(Watermark(self._watermark_ms))
        if self._idle:
            super().put_event(WatermarkStatus(True))
        for event in self._ends:
            super().put_event(event)
        return missed

    def sender_died(self) -> int:
        """Drop elements that have not left yet. Returns how many records are lost."""
        rest = self._recall()
        waiting = [*(() if rest is None else (rest,)), *(self.outgoing or ())]
        batches = [element for _, element in waiting if isinstance(element, Batch)]
        lost = sum(map(len, batches))
        if rest is not None:
            # It is not on its way any more, but was not queued again either.
            self._transfer_number += 1
        # Promises are not lost: they are made again by the channel itself.
        promises = [element for _, element in waiting if not isinstance(element, Batch)]
        if self.outgoing:
            self.outgoing.clear()
        self._direct = self._transfer is None
        self.lose(lost, sum(map(self.weight, batches)))
        for event in promises:
            assert not isinstance(event, Batch)
            super().put_event(event)
        return lost

    def sender_replaced(self, sender: Sender) -> None:
        """``sender`` sends from now on. It knows of no idleness yet."""
        super().sender_replaced(sender)
        if not self._ends:
            self.put_event(WatermarkStatus(False))

    # -- arriving -----------------------------------------------------------------------------------------------

    def arrive(self, numbered: Numbered) -> None:
        """An element has reached the receiver, unless it was lost."""
        if numbered[0] > self._void_up_to:
            super().arrive(numbered)

    def happens(self, event: tuple[str, Any]) -> None:
        """The same, of one that was held up, or has overtaken another (kernel event)."""
        if event[1][0] > self._void_up_to:
            super().happens(event)

    def fingerprint(self) -> object:
        """The queued elements, and the promises made."""
        return (super().fingerprint(), self._is_cut, self._watermark_ms, self._idle, len(self._ends))
