"""The elements that the sources of a job read: for each subtask, with event times, watermarks and waits.

The source's own split readers read the records: these are the input, and only the source knows it. Records that a
case drops are left out by their numbers.

Rules (docs/sources-and-sinks.md, docs/event-time-and-windows.md).

* Of ``p`` subtasks, subtask ``i`` reads the splits ``i``, ``i + p``, …, in turns of 256 records; a split without a
  record loses its turn. If any subtask that asks gets the next split, every other assignment is right too: it is a
  matter of the order.
* The watermark is the least of the splits that have not ended and are not idle; it never falls. How often it is sent is
  a matter of the order, but it is sent before a wait of at least its interval.
* Only waits of a millisecond or more order the records of different channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.elements.batch import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS, Batch
from engine.elements.outside_world import OutsideWorld
from engine.explore.opinion.elements import Element, Mark, NotModelled, Order, Record
from engine.explore.opinion.function_steps import Watermarks
from state_backends.files import FileSystem

RECORDS_PER_TURN = 256
MOST_RECORDS, MOST_WAITS = 100_000, 1_000
"""Of one split; and in a row. A source without an end must not keep the evaluator busy."""

_MS = 1_000_000
_ROOM = 64

Ranges = Sequence[tuple[int, int]]


@dataclass(slots=True)
class Input:
    """One source: ``records`` by split, where an ``int`` is a wait in ns; ``aside``: its side outputs."""

    strategy: Any = None
    per_turn: int = RECORDS_PER_TURN
    given_out: bool = False
    splits: dict[str, list[Record | int]] = field(default_factory=dict)
    aside: list[tuple[str, Record]] = field(default_factory=list)


class _Context:
    """The source's view of its operator."""

    attempt = 1

    def __init__(self, name: str, files: FileSystem, read: Input) -> None:
        self.name, self._files, self._read = name, files, read

    @property
    def world(self) -> OutsideWorld:
        raise NotModelled("its records come at times of their own")

    def file_system(self) -> FileSystem:
        return self._files

    def processing_time_ns(self) -> int:
        return 0

    def emit_side(self, tag: str, batch: Batch) -> None:
        self._read.aside += [(tag, record) for record in _records(batch)]

    def count(self, name: str, amount: int = 1) -> None:
        """Ignored."""

    def report_backlog(self, is_backlog: bool) -> None:
        """Ignored."""


def _records(batch: Batch) -> list[Record]:
    stamps = batch.timestamps
    return [Record(value, None if stamps is None else stamps[at]) for at, value in enumerate(batch.values)]


def read_source(read: Input, source: Any, name: str, files: FileSystem, dropped: Mapping[str, Ranges]) -> Input:
    """Fill in the records of every split. ``dropped``: by split, the records left out."""
    context = _Context(name, files, read)
    for split in source.splits(context):
        reader = source.open_split(split, None, context)
        items: list[Record | int] = []
        number = now_ns = waits = 0
        ranges, asked_again = dropped.get(split, ()), False
        while (batch := reader.read(_ROOM)) is not None:
            waits = 0 if len(batch) else waits + 1
            if waits:
                at_ns = reader.available_at_ns(now_ns)
                if at_ns > now_ns:
                    items.append(at_ns - now_ns)
                elif asked_again:
                    raise NotModelled(f"split {split!r} has no record and says that it has")
                asked_again, now_ns = at_ns <= now_ns, max(now_ns, at_ns)
            else:
                asked_again = False
            for record in _records(batch):
                if not any(first <= number < end for first, end in ranges):
                    items.append(record)
                number += 1
            if number > MOST_RECORDS or waits > MOST_WAITS:
                raise NotModelled(f"split {split!r} has more than {MOST_RECORDS:,} records, or no end")
        reader.close()
        read.splits[split] = items
    if unknown := sorted(dropped.keys() - read.splits.keys()):
        raise NotModelled(f"records are left out of split {unknown[0]!r}, and it lists no such split")
    return read


class _Split:
    def __init__(self, items: list[Record | int], strategy: Any) -> None:
        self.items, self.at = items, 0
        self.watermarks = None if strategy is None else Watermarks(strategy)
        self.waits_from_ns = self.waits_until_ns = 0
        self.idle = False

    @property
    def is_over(self) -> bool:
        return self.at == len(self.items)


class SubtaskInput:
    """The elements of one subtask, one after the other."""

    def __init__(self, read: Input, subtask: int, parallelism: int, order: Order) -> None:
        names = list(read.splits)
        if read.given_out and order.last:
            names.reverse()
        self._strategy, self._order, self._per_turn = read.strategy, order, read.per_turn
        self._splits = [_Split(read.splits[name], read.strategy) for name in names[subtask::parallelism]]
        self._timed = read.strategy is not None and read.strategy.bound_ms is not None
        self._takes_turns = not read.given_out
        self._sent_ms, self._idle, self._since, self._now_ns = MIN_TIMESTAMP_MS, False, 0, 0
        self.elements: list[Element] = []
        self._read_all()

    @property
    def _at_ms(self) -> int:
        return self._now_ns // _MS

    def _read_all(self) -> None:
        left = [split for split in self._splits if not split.is_over]
        turn, taken = 0, 0
        while left:
            ready = [split for split in left if split.waits_until_ns <= self._now_ns]
            if not ready:
                self._wait(left, min(split.waits_until_ns for split in left))
                continue
            turn %= len(left)
            while left[turn] not in ready:
                turn, taken = (turn + 1) % len(left), 0
            split = left[turn]
            item = split.items[split.at]
            split.at += 1
            if isinstance(item, int):
                wait_ns = item if item >= _MS else 0
                split.waits_from_ns, split.waits_until_ns = self._now_ns, self._now_ns + wait_ns
                turn, taken = turn + 1, 0
            else:
                self._send(split, item)
                taken += 1
            if split.is_over:
                left.remove(split)
                taken = 0
            elif taken == self._per_turn and self._takes_turns and len(left) > 1:
                turn, taken = turn + 1, 0
        self.elements.append(Mark(MAX_TIMESTAMP_MS, self._at_ms))

    def _send(self, split: _Split, record: Record) -> None:
        if split.watermarks is not None:
            record = split.watermarks.stamped(record)
        split.idle = False
        if self._idle:
            self._idle = False
            self.elements.append(Mark(at_ms=self._at_ms, idle=False))
        self.elements.append(record._replace(at_ms=self._at_ms))
        self._since += 1
        if self._since == self._order.every:
            self._send_watermark()

    def _send_watermark(self) -> None:
        self._since = 0
        active = [one.watermarks.ms for one in self._splits if one.watermarks and not one.idle and not one.is_over]
        if self._timed and active and min(active) > self._sent_ms:
            self._sent_ms = min(active)
            self.elements.append(Mark(self._sent_ms, self._at_ms))

    def _wait(self, left: list[_Split], until_ns: int) -> None:
        """No record can be read before then: the watermark is sent, and splits become idle."""
        strategy = self._strategy
        if strategy is not None and until_ns - self._now_ns >= strategy.interval_ns:
            self._send_watermark()
            if strategy.idle_timeout_ms is not None:
                # Idleness is checked on the grid of watermarks, from the first check that finds no record on.
                slack_ns = 2 * strategy.interval_ns + _MS
                timeout_ns = strategy.idle_timeout_ms * _MS + slack_ns
                waiting = sorted({one.waits_from_ns for one in left if not one.idle})
                for at_ns in (since_ns + timeout_ns for since_ns in waiting if since_ns + timeout_ns < until_ns):
                    self._now_ns = max(self._now_ns, at_ns)
                    for split in left:
                        split.idle |= split.waits_from_ns + timeout_ns <= at_ns
                    self._send_watermark()
                if all(split.idle for split in left) and not self._idle:
                    self._idle = True
                    self.elements.append(Mark(at_ms=self._at_ms, idle=True))
        self._now_ns = until_ns
