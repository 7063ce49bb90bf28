"""Timers over an ordered store: each timer has a row, and is in memory too.

The index by time of a :class:`state_backends.api.TimerQueue` holds every timer anyway; a set of timers tells quickly
whether a timer exists. Rows are written and removed; they are read only once, at the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from state_backends.api import KeyScope, Timer, check_time
from state_backends.rows import PART_BYTES, encode_time, occupied_parts, part_rows, timer_columns
from state_backends.store.parts import StatePart, StoreAccess


class StoreTimerTable:
    """The timers of one time domain of one service."""

    __slots__ = ("_access", "_part", "_scope", "_timers", "codec")

    def __init__(self, scope: KeyScope, part: StatePart, access: StoreAccess) -> None:
        self.codec = access.codec
        self._scope = scope
        self._part = part
        self._access = access
        self._timers: dict[Timer, None] = {}

    def __len__(self) -> int:
        return len(self._timers)

    def __contains__(self, timer: Timer) -> bool:
        if timer in self._timers:
            return True
        self._scope.group_of(timer[1])
        return False

    def timers(self) -> Iterable[Timer]:
        self._timers = {}
        store = self._access.opened
        if store is not None:
            groups = self._scope.key_group_range
            for group, state_id in occupied_parts(store, groups.first, groups.last):
                if state_id == self._part.state_id:
                    encoded = timer_columns(self.codec, part_rows(store, group, state_id))
                    keys = self.codec.decode(encoded.keys, "keys of timers")
                    namespaces = self.codec.decode(encoded.namespaces, "namespaces of timers")
                    self._timers.update(dict.fromkeys(zip(encoded.times, keys, namespaces, strict=True)))
        return self._timers

    def add(
        self, keys: Sequence[Any], namespaces: Sequence[Any], times: Sequence[int], added: Callable[[Timer], None]
    ) -> None:
        timers, prefix_of = self._timers, self._part.prefix_of
        rows: dict[bytes, bytes | None] = {}
        try:
            for timer in zip(times, keys, namespaces, strict=True):
                prefix = prefix_of[timer[1]]
                if timer in timers:
                    continue
                check_time(timer[0])
                rows[self._row(timer, prefix)] = b""
                timers[timer] = None
                added(timer)
        finally:
            # The timers before a refused one stay, here and in the rows.
            if rows:
                self._access.store().write_many(rows)

    def remove(self, timers: Sequence[Timer]) -> None:
        for timer in timers:
            del self._timers[timer]
        if timers:
            prefix_of = self._part.prefix_of
            self._access.store().write_many({self._row(timer, prefix_of[timer[1]]): None for timer in timers})

    def _row(self, timer: Timer, prefix: bytes) -> bytes:
        """The row of a timer, given the prefix of the rows of its key."""
        encoded = self.codec.encode(timer[2], f"namespace of timers {self._part.state.name!r}")
        return prefix[:PART_BYTES] + encode_time(timer[0]) + prefix[PART_BYTES:] + encoded
