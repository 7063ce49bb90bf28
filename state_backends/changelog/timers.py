"""Timers that log their changes: registered, deleted, fired."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from state_backends.api import Timer, TimerQueue
from state_backends.changelog.changes import ADD_TIMERS, REMOVE_TIMERS
from state_backends.changelog.log import ChangeLog


class LoggedTimerQueue(TimerQueue):
    """The timers of one time domain. The queue of the backend below keeps them."""

    __slots__ = ("_index_in_log", "_inner", "_log")

    def __init__(self, inner: TimerQueue, log: ChangeLog, index: int) -> None:
        """A queue over another; it uses no inherited state. ``index``: the index of these timers in the log."""
        self._inner = inner
        self._log = log
        self._index_in_log = index

    def __len__(self) -> int:
        return len(self._inner)

    def rebuild_index(self) -> None:
        self._inner.rebuild_index()

    def register(self, keys: Sequence[Any], namespaces: Sequence[Any], times: Sequence[int]) -> None:
        if not keys:
            return
        try:
            self._inner.register(keys, namespaces, times)
        except Exception:
            # Registering a timer that exists changes nothing: repeat them one by one until one is refused again.
            for key, namespace, time in zip(keys, namespaces, times, strict=False):
                self._inner.register((key,), (namespace,), (time,))
                self._log_change(ADD_TIMERS, [key], [namespace], [time])
            raise
        self._log_change(ADD_TIMERS, list(keys), list(namespaces), list(times))

    def delete(self, key: Any, namespace: Any, time: int) -> None:
        self._inner.delete(key, namespace, time)
        self._log_change(REMOVE_TIMERS, [key], [namespace], [time])

    def next_time(self) -> int | None:
        return self._inner.next_time()

    def last_time(self) -> int | None:
        return self._inner.last_time()

    def in_firing_order(self, timers: Sequence[Timer]) -> list[Timer]:
        return self._inner.in_firing_order(timers)

    def pop_next(self, now: int) -> Timer | None:
        timer = self._inner.pop_next(now)
        # Firing removes it, and every change of state is logged (mutant "fired timers not logged").
        if timer is not None:
            time, key, namespace = timer
            self._log_change(REMOVE_TIMERS, [key], [namespace], [time])
        return timer

    def keys_in_firing_order(self, keys: Sequence[Any]) -> list[Any]:
        return self._inner.keys_in_firing_order(keys)

    def pop_due(self, now: int, *, in_order: bool = True) -> list[Timer]:
        timers = self._inner.pop_due(now, in_order=in_order)
        if timers:
            times, keys, namespaces = map(list, zip(*timers, strict=True))
            self._log_change(REMOVE_TIMERS, keys, namespaces, times)
        return timers

    def _log_change(self, operation: int, keys: list[Any], namespaces: list[Any], times: list[int]) -> None:
        self._log.append_made(operation, self._index_in_log, keys, namespaces, times)
