"""Mistakes about time: processing-time timers, sessions that merge, event time and idleness across a restore."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from engine.elements.batch import MIN_TIMESTAMP_MS
from operators.basic.keyed_process import KeyedFunctionOperator
from operators.time import EventClock, WakeUps
from operators.time.periodic_watermarks import PeriodicWatermarks
from operators.windows import TriggeredWindowOperator
from operators.windows.merging import MergingWindows
from state_backends.changelog.entries import LoggedEntries
from state_backends.changelog.timers import LoggedTimerQueue
from tests.mutants.mutant import replaced

# --- processing-time timers --------------------------------------------------------------------------------------


@contextmanager
def timers_not_armed_after_a_restore() -> Iterator[None]:
    """A restored operator waits for the next registration before it asks to be woken."""

    def opened(operator: Any) -> None:
        operator.function.open(operator._ctx)

    with replaced(KeyedFunctionOperator, open=opened):
        yield


@contextmanager
def wake_up_not_moved() -> Iterator[None]:
    """While one wake-up is asked for, an earlier timer gets none."""
    arm = WakeUps.arm

    def armed_once(wake_ups: Any) -> None:
        if not wake_ups._armed_ms:
            arm(wake_ups)

    with replaced(WakeUps, arm=armed_once):
        yield


@contextmanager
def fired_timers_not_logged() -> Iterator[None]:
    """The changelog hears of timers that are set and deleted, and not of those that fire."""
    with replaced(
        LoggedTimerQueue,
        pop_next=lambda queue, now: queue._inner.pop_next(now),
        pop_due=lambda queue, now, **order: queue._inner.pop_due(now, **order),
    ):
        yield


# --- sessions ----------------------------------------------------------------------------------------------------


@contextmanager
def grown_sessions_not_persisted() -> Iterator[None]:
    """The sessions of a key are held in memory, and written only when their number has changed."""
    load, add = TriggeredWindowOperator._load_sessions, TriggeredWindowOperator._add_to_session
    held: WeakKeyDictionary[Any, dict[Any, MergingWindows]] = WeakKeyDictionary()

    def loaded(operator: Any) -> MergingWindows:
        known = held.setdefault(operator, {})
        key = operator._backend.current_key
        if key not in known:
            known[key] = load(operator)
        return known[key]

    class OnlyWhenMoreOrFewer:
        def __init__(self, state: Any) -> None:
            self._state = state

        def get(self) -> Any:
            return self._state.get()

        def update(self, stored: Any) -> None:
            if len(stored) != len(self._state.get() or ()):
                self._state.update(stored)

    def added(operator: Any, *record: Any) -> bool:
        sessions = operator._sessions
        operator._sessions = OnlyWhenMoreOrFewer(sessions)
        try:
            return add(operator, *record)
        finally:
            operator._sessions = sessions

    with replaced(TriggeredWindowOperator, _load_sessions=loaded, _add_to_session=added):
        yield


@contextmanager
def merge_not_logged() -> Iterator[None]:
    """The changelog does not hear that the contents of one session have moved to another."""

    def unlogged(table: Any, target: Any, sources: Any, merge: Any) -> None:
        table._inner.merge(target, sources, merge)

    with replaced(LoggedEntries, merge=unlogged):
        yield


# --- event time and idleness -------------------------------------------------------------------------------------


@contextmanager
def idleness_forgotten() -> Iterator[None]:
    """After a restore every split counts as active, also those that were idle at the cut."""
    with replaced(PeriodicWatermarks, restore_idleness=lambda periodic, snapshots, now_ns: None):
        yield


@contextmanager
def event_time_begins_anew() -> Iterator[None]:
    """A restored operator has seen no watermark."""
    begin = EventClock.__init__

    def forgetting(clock: Any, context: Any) -> None:
        begin(clock, context)
        clock.watermark_ms = MIN_TIMESTAMP_MS

    with replaced(EventClock, __init__=forgetting):
        yield
