"""The discrete-event kernel: a virtual clock and the events still to come. And the post: its messages between tasks
and job manager are events of the receiver; some of them may get lost on the way.

Rules.
1. An event is data, ``(time, sequence, operation, target, payload)``: at ``time``, the method named ``operation`` of
   ``target`` is called with ``payload``. No closures, no generators: a pending simulation can be copied, compared
   and searched.
2. Events at one instant are *ready* together. Without a choice recorder they run in the order they were scheduled.
   With one, the recorder picks which target goes next; the events of one target always keep their order, for the
   order of two messages to one receiver is the channel's or the mailbox's to decide, not the scheduler's.
3. The clock never goes back and never stands for the wall clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from heapq import heappop, heappush
from itertools import repeat
from typing import Any, NamedTuple, Protocol

from engine.runtime.kernel.choices import ChoiceRecorder
from engine.runtime.kernel.hook import RunHook

START_NS = 1_000_000_000 * 1_000_000_000
"""Virtual time of a fresh start (2001-09-09T01:46:40Z): far from 0, so that "never" can be an early time."""


class ScheduledEvent(NamedTuple):
    """One pending event, for inspection; inside the kernel it is a bare tuple of the same shape."""

    time_ns: int
    sequence: int
    operation: str
    target: Any
    payload: Any


_Entry = tuple[int, int, str, Any, Any]


class Kernel:
    """Runs events in virtual time until none is left or :meth:`stop` is called."""

    __slots__ = ("_choices", "_future", "_ready", "_sequence", "_waiting", "latest", "now_ns", "stopped")

    def __init__(self, start_ns: int = START_NS, choices: ChoiceRecorder | None = None) -> None:
        self.now_ns = start_ns
        self._sequence = 0
        # Choices take events out of the middle, which is cheap in a list; else they are taken from the front.
        self._ready: deque[_Entry] | list[_Entry] = deque() if choices is None else []
        self._future: list[_Entry] = []
        self._choices = choices
        # While there are choices to make: the sequence numbers of the ready events of each target, oldest first. Nearly
        # always it is one; with ten thousand targets a search through all ready events would be slow.
        self._waiting: dict[Any, int | deque[int]] = {}
        self.latest: _Entry | None = None
        """The event that the last :meth:`run` has executed last; for watchers that run one event at a time."""
        self.stopped = False
        """Whether :meth:`stop` ended the last :meth:`run`."""

    def schedule(self, time_ns: int, operation: str, target: Any, payload: Any = None) -> None:
        """Have ``target.operation(payload)`` called at ``time_ns`` (not before now)."""
        self._sequence = sequence = self._sequence + 1
        now = self.now_ns
        if time_ns == now:
            # Everything in the heap for this instant was moved to `ready` when the clock got here, so appending
            # keeps the sequence order without a trip through the heap.
            self._ready.append((time_ns, sequence, operation, target, payload))
            if self._choices is not None and self._waiting.setdefault(target, sequence) != sequence:
                self._wait(target, sequence)
        else:
            assert time_ns > now, f"{operation} scheduled {now - time_ns} ns in the past"
            heappush(self._future, (time_ns, sequence, operation, target, payload))

    def schedule_now(self, operation: str, target: Any) -> None:
        """Have ``target.operation(None)`` called at this instant: :meth:`schedule` for the most frequent event."""
        self._sequence = sequence = self._sequence + 1
        self._ready.append((self.now_ns, sequence, operation, target, None))
        if self._choices is not None and self._waiting.setdefault(target, sequence) != sequence:
            self._wait(target, sequence)

    def clock_ns(self) -> int:
        """See :class:`engine.runtime.kernel.hook.Clock`."""
        return self.now_ns

    def clock_ms(self) -> int:
        return self.now_ns // 1_000_000

    def stop(self) -> None:
        """End :meth:`run` after the current event."""
        self.stopped = True

    def run(self, max_events: int | None = None) -> int:
        """Run until no event is left, the kernel was stopped, or ``max_events`` were executed.

        Returns the number of events executed.
        """
        self.stopped = False
        ready, future, choices, waiting = self._ready, self._future, self._choices, self._waiting
        take_first = ready.popleft if isinstance(ready, deque) else ready.pop  # from a list only if it is the only one
        before, event = self.executed, self.latest
        try:
            # No count and no comparison for each event: this loop is a tenth of the time of many runs.
            for _ in repeat(None) if max_events is None else repeat(None, max_events):
                if not ready:
                    if not future:
                        break
                    event = heappop(future)
                    self.now_ns = now = event[0]
                    if not future or future[0][0] != now:
                        # It is alone at its instant, as most events are where work takes random times.
                        getattr(event[3], event[2])(event[4])
                        if self.stopped:
                            break
                        continue
                    self._begin_instant(event)
                if choices is None:
                    event = take_first()
                elif len(ready) == 1:
                    event = take_first()
                    waiting.clear()
                else:
                    position = choices.pick(ready)
                    event = ready[position]
                    sequences = waiting.pop(event[3])
                    if sequences.__class__ is int:
                        del ready[position]
                    else:
                        event = self._first_of(event, position, sequences)
                getattr(event[3], event[2])(event[4])
                if self.stopped:
                    break
        finally:
            # Noted once per call: a run without a watcher pays nothing per event.
            self.latest = event
        return self.executed - before

    @property
    def executed(self) -> int:
        """How many events were executed: every one that was scheduled and is not pending."""
        return self._sequence - len(self._ready) - len(self._future)

    def _next_instant(self) -> None:
        """Nothing is left at this instant: move the clock to the next one, and make the events of it ready."""
        first = heappop(self._future)
        self.now_ns = first[0]
        self._begin_instant(first)

    def _begin_instant(self, first: _Entry) -> None:
        """The clock has come to an instant: make its events ready. ``first`` is taken already."""
        ready, future, now = self._ready, self._future, first[0]
        ready.append(first)
        while future and future[0][0] == now:
            ready.append(heappop(future))
        if self._choices is not None:
            waiting = self._waiting
            for event in ready:
                if waiting.setdefault(event[3], event[1]) != event[1]:
                    self._wait(event[3], event[1])

    # -- one event at a time, for a search that looks at every order --------------------------------------------------

    def alternatives(self) -> list[tuple[int, ScheduledEvent]]:
        """The events that may happen next: the first event of each target with a ready one, with its position among all
        ready events, which is the answer a choice recorder would give. Moves the clock to the next instant
        when nothing is left at this one; empty when nothing is left at all. Needs a choice recorder."""
        assert self._choices is not None, "without choices there is only one order"
        if not self._ready and self._future:
            self._next_instant()
        seen: set[Any] = set()
        found = []
        for position, event in enumerate(self._ready):
            if event[3] not in seen:
                seen.add(event[3])
                found.append((position, ScheduledEvent(*event)))
        return found

    def operations(self) -> set[str]:
        """The operations of all pending events."""
        return {event[2] for event in (*self._ready, *self._future)}

    @property
    def ready_events(self) -> int:
        """How many events are ready: with one, a choice recorder is not asked."""
        return len(self._ready)

    def event_at(self, position: int) -> ScheduledEvent:
        """The event at ``position`` among the ready ones."""
        return ScheduledEvent(*self._ready[position])

    def execute(self, position: int) -> None:
        """Run the first event of the target whose event is at ``position`` among the ready ones."""
        event = self._take(position)
        getattr(event[3], event[2])(event[4])

    def _wait(self, target: Any, sequence: int) -> None:
        """Another event of a target that has a ready one is ready."""
        earlier = self._waiting[target]
        if isinstance(earlier, deque):
            earlier.append(sequence)
        else:
            self._waiting[target] = deque((earlier, sequence))

    def _take(self, position: int) -> _Entry:
        """The first event of the target whose event is at a position among the ready ones."""
        event = self._ready[position]
        return self._first_of(event, position, self._waiting.pop(event[3]))

    def _first_of(self, event: _Entry, position: int, sequences: int | deque[int]) -> _Entry:
        """The first of the ready events of a target, taken: ``event`` is one of them, at ``position``."""
        ready = self._ready
        if isinstance(sequences, deque):
            first = sequences.popleft()
            self._waiting[event[3]] = sequences if len(sequences) > 1 else sequences[0]
            if first != event[1]:
                # Ready events are in the order of their sequence numbers.
                position = bisect_left(ready, (event[0], first))
                event = ready[position]
        del ready[position]
        return event

    def pending(self) -> list[ScheduledEvent]:
        """All events still to come, in order of time and sequence."""
        return [ScheduledEvent(*event) for event in sorted([*self._ready, *self._future], key=_order)]

    def fingerprint(self) -> object:
        """The events to come, relative to now: two kernels with one fingerprint behave alike."""
        return tuple(
            (event.time_ns - self.now_ns, event.operation, getattr(event.target, "name", None))
            for event in self.pending()
        )


def _order(event: _Entry) -> tuple[int, int]:
    return event[0], event[1]


MESSAGES = (
    "trigger_checkpoint",
    "notify_checkpoint_complete",
    "notify_checkpoint_aborted",
    "notify_stop_complete",
    "receive_acknowledge",
    "receive_decline",
    "may_finish",
)
"""Messages between job manager and tasks that may go astray, by the method that takes them."""

_MAY_GO_ASTRAY = frozenset(MESSAGES)

DELIVERED: tuple[int, ...] = (0,)
"""The usual fate of a message: it comes once, at once."""


class Addressee(Protocol):
    """A task, as its messages see it."""

    @property
    def name(self) -> str:
        """The name by which faults know it."""

    def receive_mail(self, mail: tuple[str, tuple[Any, ...]]) -> None:
        """A message has come (kernel event): which method takes it, and its arguments."""


class Post:
    """Delivers the messages of one run, and those to ``master``, its job manager. ``sent``: how many of
    :data:`MESSAGES` there were, by name."""

    def __init__(self, kernel: Kernel, hook: RunHook | None, master: Any) -> None:
        self.sent: dict[str, int] = {}
        self._kernel = kernel
        self._hook = hook if hook is not None and hook.disturbs_messages else None
        self._master = master

    def to_master(self, task: str, message: str, payload: object) -> None:
        """``task`` tells the job manager something."""
        self._send(message, task, message, self._master, payload)

    def to_task(self, task: Addressee, message: str, *arguments: object) -> None:
        """The job manager tells a task something."""
        self._send(message, task.name, "receive_mail", task, (message, arguments))

    def _send(self, message: str, task: str, operation: str, receiver: Any, payload: object) -> None:
        delays_ns = DELIVERED
        if message in _MAY_GO_ASTRAY:
            self.sent[message] = self.sent.get(message, 0) + 1
            if self._hook is not None:
                delays_ns = self._hook.delays_ns(message, task)
        for delay_ns in delays_ns:
            self._kernel.schedule(self._kernel.now_ns + delay_ns, operation, receiver, payload)
