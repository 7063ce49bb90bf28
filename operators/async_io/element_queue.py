"""The queue between an asynchronous operator and its output: what may leave, in which order (a pure machine).

Rules (Flink: ``OrderedStreamElementQueue``, ``UnorderedStreamElementQueue``).

* Ordered: elements leave in the order in which they came; a finished answer waits for those before it.
* Unordered: answers leave as they come, but an event (watermark, watermark status) is a fence: records from before it
  leave before it, records from after it leave after it.
* A record counts until it has left, answered or not. A snapshot contains the records that have not left, in the order
  in which they came. It contains neither their answers, which are requested again, nor events, which come again.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any


class QueuedRecord:
    """One record on its way: in the queue from its arrival until its answer has left."""

    __slots__ = ("answer", "attempt", "deadline_ns", "is_settled", "segment", "sequence", "timestamp_ms", "value")

    def __init__(self, sequence: int, value: Any, timestamp_ms: int | None, segment: _Segment) -> None:
        self.sequence = sequence
        self.segment = segment
        self.value = value
        self.timestamp_ms = timestamp_ms
        self.attempt = 0
        self.deadline_ns: int | None = None
        self.answer: tuple[Any, ...] = ()
        self.is_settled = False


class _Segment:
    """Records between two events."""

    __slots__ = ("event", "pending", "settled")

    def __init__(self) -> None:
        # Taken from its front one by one: a plain dict would step over all removed entries each time.
        self.pending: OrderedDict[int, QueuedRecord] = OrderedDict()
        self.settled: list[QueuedRecord] = []
        """Answered records, in the order of their answers; not kept if that order has no meaning."""
        self.event: Any = None
        """What follows them; ``None`` while the segment is open."""


class ElementQueue:
    """``ordered``: whether answers leave in the order of their records."""

    def __init__(self, *, ordered: bool) -> None:
        self._ordered = ordered
        self._segments: deque[_Segment] = deque([_Segment()])
        self._sequence = 0
        self._records = 0

    def __len__(self) -> int:
        """Records that have not left."""
        return self._records

    @property
    def is_empty(self) -> bool:
        """Whether neither a record nor an event is held."""
        return not self._records and len(self._segments) == 1

    def put(self, value: Any, timestamp_ms: int | None) -> QueuedRecord:
        """A record arrives."""
        self._sequence += 1
        segment = self._segments[-1]
        entry = QueuedRecord(self._sequence, value, timestamp_ms, segment)
        segment.pending[entry.sequence] = entry
        self._records += 1
        return entry

    def put_event(self, event: Any) -> None:
        """An event arrives, after all records so far. Not ``None``."""
        self._segments[-1].event = event
        self._segments.append(_Segment())

    def settle(self, entry: QueuedRecord, answer: tuple[Any, ...]) -> None:
        """The answer to a record has come: these records take its place."""
        assert not entry.is_settled, entry.sequence
        entry.answer = answer
        entry.is_settled = True
        if not self._ordered:
            entry.segment.settled.append(entry)

    def leaving(self) -> Iterator[Any]:
        """Take out, one by one, all elements that may leave now: entries, and events as they were given."""
        while True:
            first = self._segments[0]
            if self._ordered:
                while first.pending:
                    entry = next(iter(first.pending.values()))
                    if not entry.is_settled:
                        return
                    yield self._take(entry)
            else:
                settled, first.settled = first.settled, []
                for entry in settled:
                    yield self._take(entry)
            if first.pending or first.event is None:
                return
            self._segments.popleft()
            yield first.event

    def _take(self, entry: QueuedRecord) -> QueuedRecord:
        self._records -= 1
        return entry.segment.pending.pop(entry.sequence)

    def entries(self) -> list[QueuedRecord]:
        """The records that have not left, in the order in which they came."""
        return [entry for segment in self._segments for entry in segment.pending.values()]

    def validate(self) -> None:
        assert len(self.entries()) == self._records, (self.entries(), self._records)
        assert self._segments[-1].event is None
        assert all(segment.event is not None for segment in list(self._segments)[:-1])
        for segment in self._segments:
            assert all(segment.pending.get(entry.sequence) is entry for entry in segment.settled), "it has left"

    def fingerprint(self) -> object:
        return tuple(
            (
                tuple(
                    (repr(entry.value), entry.timestamp_ms, entry.is_settled, repr(entry.answer))
                    for entry in segment.pending.values()
                ),
                tuple((repr(entry.value), repr(entry.answer)) for entry in segment.settled),
                repr(segment.event),
            )
            for segment in self._segments
        )
