"""Timers: per service a set of (time, key, namespace), with a fixed firing order.

Timers are keyed state: they live in a table of the backend (:class:`TimerTable`), are snapshotted per key
group with it, and move with their key on a rescale. An index by time (a heap of the distinct times, and for
each the timers due then) is derived from the table and never written.

Rules (InternalTimerServiceImpl, with ties made deterministic):

* A timer registered twice is one timer; deleting one that is not there does nothing.
* A timer is due when its time <= the watermark (or the processing time).
* Due timers fire by (time, encoded key, encoded namespace): a function of the set, not of its history.
* A due timer that is registered while others fire, fires in the same advance; one deleted then does not. So
  a caller whose callbacks register or delete timers takes one timer at a time (``pop_next_...``);
  ``pop_due_...`` takes all timers due at the call.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, groupby, repeat
from operator import itemgetter
from typing import Any, Protocol

from state_backends.base import ShardedTable, StateArgumentError
from state_backends.codec import StateCodec, in_encoded_order

Timer = tuple[int, Any, Any]
"""(time, key, namespace)."""

_time, _key, _namespace = itemgetter(0), itemgetter(1), itemgetter(2)
_MIN_TIME, _MAX_TIME = -(1 << 63), (1 << 63) - 1


class TimerTable(Protocol):
    """The table of the timers of a queue; snapshots contain it."""

    codec: StateCodec

    def __len__(self) -> int:
        """The number of timers."""

    def __contains__(self, timer: Timer) -> bool:
        """Whether it is there.

        :raises KeyGroupError: when its key belongs to another subtask
        """

    def timers(self) -> Iterable[Timer]:
        """All of them, in any order."""

    def add(
        self, keys: Sequence[Any], namespaces: Sequence[Any], times: Sequence[int], added: Callable[[Timer], None]
    ) -> None:
        """Add timers and tell ``added`` which of them are new.

        :raises StateArgumentError: from :func:`check_time`, before that timer is added
        :raises KeyGroupError: when a key belongs to another subtask
        """

    def remove(self, timers: Sequence[Timer]) -> None:
        """Remove timers, all of which are there."""


def check_time(time: Any) -> None:
    """Refuse a time that no file could hold.

    :raises StateArgumentError: when it is no int of 64 bits
    """
    if type(time) is not int or not _MIN_TIME <= time <= _MAX_TIME:
        raise StateArgumentError(f"a timer's time must be an int of 64 bits, not {time!r}.")


class HeapTimerTable:
    """Timers as stored keys of a table of the heap backend."""

    __slots__ = ("codec", "plain")

    def __init__(self, codec: StateCodec, plain: ShardedTable) -> None:
        self.codec = codec
        self.plain = plain

    def __len__(self) -> int:
        return len(self.plain)

    def __contains__(self, timer: Timer) -> bool:
        return timer in self.plain.shard_of[timer[1]]

    def timers(self) -> Iterable[Timer]:
        return chain.from_iterable(self.plain.shards.values())

    def add(
        self, keys: Sequence[Any], namespaces: Sequence[Any], times: Sequence[int], added: Callable[[Timer], None]
    ) -> None:
        table = self.plain
        shard_of = table.shard_of
        for timer in zip(times, keys, namespaces, strict=True):
            shard = shard_of[timer[1]]
            if timer in shard:
                continue
            if table.stale:
                table.touch(shard)
            time = timer[0]
            if type(time) is not int or not _MIN_TIME <= time <= _MAX_TIME:
                check_time(time)
            shard[timer] = None
            added(timer)

    def remove(self, timers: Sequence[Timer]) -> None:
        table = self.plain
        for timer in timers:
            shard = table.shard_of[timer[1]]
            if table.stale:
                table.touch(shard)
            del shard[timer]


class TimerQueue:
    """The timers of one time domain (event time or processing time) of one service."""

    __slots__ = ("_by_time", "_draining", "_table", "_times")

    def __init__(self, table: TimerTable) -> None:
        self._table = table
        self._times: list[int] = []
        # Mostly a time has one timer, or very many: a dict is only made for a second one.
        self._by_time: dict[int, Timer | dict[Timer, None]] = {}
        # The timers of the earliest due time, sorted, the next one last. All are also in the table.
        self._draining: list[Timer] = []
        self.rebuild_index()

    def __len__(self) -> int:
        return len(self._table)

    def rebuild_index(self) -> None:
        """Derive the index from the table, as after a restore."""
        self._by_time = {}
        self._draining = []
        self._times = []
        self._index(self._table.timers())

    def register(self, keys: Sequence[Any], namespaces: Sequence[Any], times: Sequence[int]) -> None:
        """Add timers; those already there stay as they are.

        :raises StateArgumentError: when a time is no int of 64 bits, before that timer is added
        """
        added: list[Timer] = []
        try:
            self._table.add(keys, namespaces, times, added.append)
        finally:
            self._index(added)

    def add(self, key: Any, namespace: Any, time: int) -> None:
        """:meth:`register` one timer. One in the past fires at the next advance."""
        self.register((key,), (namespace,), (time,))

    def delete(self, key: Any, namespace: Any, time: int) -> None:
        """Remove a timer if it is there."""
        timer = (time, key, namespace)
        if timer in self._table:
            self._table.remove((timer,))
            due = self._by_time.get(time)
            if isinstance(due, dict):
                due.pop(timer, None)
            # A time without timers stays in the heap and is skipped when it comes up.
            if not due or due == timer:
                self._by_time.pop(time, None)

    def next_time(self) -> int | None:
        """The earliest time of any timer, or ``None`` without timers."""
        self._drop_empty_times()
        draining = self._next_draining()
        if draining is None:
            return self._times[0] if self._times else None
        return min(draining[0], self._times[0]) if self._times else draining[0]

    def last_time(self) -> int | None:
        """The latest time of any timer, or of one that was deleted; ``None`` without timers."""
        return max(self._times, default=None)

    def pop_next(self, now: int) -> Timer | None:
        """Remove and return the next due timer, or ``None`` when none is due."""
        self._drop_empty_times()
        if not self._draining:
            return self._pop_first(now)
        draining = self._next_draining()
        if self._times and (draining is None or self._times[0] <= draining[0]):
            # Timers registered meanwhile come first, or belong to the same time: sort them all again.
            self._put_back()
            return self._pop_first(now)
        if draining is None or draining[0] > now:
            return None
        self._draining.pop()
        self._table.remove((draining,))
        return draining

    def _pop_first(self, now: int) -> Timer | None:
        """:meth:`pop_next` when nothing is being fired; of several timers at that time the rest will be."""
        if not self._times or self._times[0] > now:
            return None
        due = self._take(heapq.heappop(self._times))
        self._draining = due[:0:-1]
        self._table.remove((due[0],))
        return due[0]

    def pop_due(self, now: int, *, in_order: bool = True) -> list[Timer]:
        """Remove and return all timers that are due, in firing order if that is asked for."""
        if self._draining:
            self._put_back()
        popped: list[Timer] = []
        for time in self._take_due_times(now):
            popped += self._take(time, in_order)
        self._table.remove(popped)
        return popped

    def in_firing_order(self, timers: Sequence[Timer]) -> list[Timer]:
        """Timers of this queue, or such as it might have, in the order in which they fire."""
        ordered: list[Timer] = []
        for _, of_one_time in groupby(sorted(timers, key=_time), _time):
            ordered += self._of_one_time(list(of_one_time))
        return ordered

    def keys_in_firing_order(self, keys: Sequence[Any]) -> list[Any]:
        """The keys of timers of one time and namespace in the order in which the timers fire."""
        ordered = in_encoded_order(keys)
        return sorted(keys, key=self._table.codec.encode) if ordered is None else ordered

    def _index(self, timers: Iterable[Timer]) -> None:
        by_time = self._by_time
        for timer in timers:
            time = timer[0]
            due = by_time.get(time)
            if due is None:
                by_time[time] = timer
                heapq.heappush(self._times, time)
            elif isinstance(due, dict):
                due[timer] = None
            else:
                by_time[time] = {due: None, timer: None}

    def _drop_empty_times(self) -> None:
        while self._times and self._times[0] not in self._by_time:
            heapq.heappop(self._times)

    def _next_draining(self) -> Timer | None:
        """The next timer of those being fired one by one that was not deleted since."""
        while self._draining:
            timer = self._draining[-1]
            if timer in self._table:
                return timer
            self._draining.pop()
        return None

    def _take_due_times(self, now: int) -> list[int]:
        """Take the times that are due out of the heap, ascending."""
        times = self._times
        taken: list[int] = []
        few = max(16, len(times) >> 4)
        while times and times[0] <= now and len(taken) < few:
            taken.append(heapq.heappop(times))
        if len(taken) == few:
            # Many are due: sorting them in C beats popping each, and a sorted list is a heap too.
            times.sort()
            end = bisect.bisect_right(times, now)
            taken += times[:end]
            del times[:end]
        return taken

    def _take(self, time: int, in_order: bool = True) -> list[Timer]:
        """Take a time out of the index: its timers, none when all were deleted."""
        due = self._by_time.pop(time, None)
        if due is None:
            return []
        if not isinstance(due, dict):
            return [due]
        return self._of_one_time(list(due)) if in_order else list(due)

    def _of_one_time(self, timers: list[Timer]) -> list[Timer]:
        """Timers of one time in firing order."""
        namespaces = dict.fromkeys(map(_namespace, timers))
        if len(namespaces) == 1:
            keys = self.keys_in_firing_order(list(map(_key, timers)))
            return list(zip(repeat(timers[0][0]), keys, repeat(timers[0][2])))
        encode = self._table.codec.encode
        return sorted(timers, key=lambda timer: (encode(timer[1]), encode(timer[2])))

    def _put_back(self) -> None:
        """Put the timers that were not fired one by one yet back into the index."""
        while (timer := self._next_draining()) is not None:
            self._draining.pop()
            self._index((timer,))


class TimerService:
    """The event-time and processing-time timers of one name."""

    __slots__ = ("event_time", "processing_time")

    def __init__(self, event_time: TimerQueue, processing_time: TimerQueue) -> None:
        self.event_time = event_time
        self.processing_time = processing_time

    def queue(self, domain: str) -> TimerQueue:
        """The timers of a time domain, ``event`` or ``processing``."""
        return self.event_time if domain == "event" else self.processing_time

    def rebuild_index(self) -> None:
        """Derive the indices from the tables, as after a restore."""
        self.event_time.rebuild_index()
        self.processing_time.rebuild_index()
