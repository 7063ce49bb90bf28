"""The sessions of one key, and how a new window changes them (Flink: ``MergingWindowSet``).

Every session has a *state window*, the namespace of its contents: the first of the windows that it was merged from. So
contents stay in place when a session grows, and only the contents of the other merged sessions are moved.

Invariant: the sessions of a key neither overlap nor touch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from operators.windows.assigners import TimeWindow

Stored = tuple[int, int, int, int]
"""A session and its state window, as keyed state stores them."""


@dataclass(frozen=True, slots=True)
class Merge:
    """The effect of adding a window.

    :ivar result: the session that the window belongs to now
    :ivar state_window: where the contents of that session are
    :ivar merged: the sessions that became part of ``result``; empty when that is an old session, or new
    :ivar moved: the state windows whose contents must be moved to ``state_window``
    """

    result: TimeWindow
    state_window: TimeWindow
    merged: tuple[TimeWindow, ...] = ()
    moved: tuple[TimeWindow, ...] = ()


class MergingWindows:
    """The sessions of one key with their state windows, in order of time."""

    __slots__ = ("_state_windows",)

    def __init__(self, stored: Iterable[Stored] = ()) -> None:
        self._state_windows = {
            TimeWindow(start, end): TimeWindow(state_start, state_end) for start, end, state_start, state_end in stored
        }

    def to_stored(self) -> list[Stored]:
        """The value that state keeps."""
        return [(*session, *state_window) for session, state_window in sorted(self._state_windows.items())]

    def state_window(self, session: TimeWindow) -> TimeWindow | None:
        """Where the contents of a session are; ``None`` when there is no such session."""
        return self._state_windows.get(session)

    def plan(self, window: TimeWindow) -> Merge:
        """The effect that adding ``window`` would have; changes nothing."""
        touched = sorted(session for session in self._state_windows if session.intersects(window))
        if not touched:
            return Merge(window, window)
        result = window
        for session in touched:
            result = result.cover(session)
        state_windows = [self._state_windows[session] for session in touched]
        if touched == [result]:
            return Merge(result, state_windows[0])
        return Merge(result, state_windows[0], tuple(touched), tuple(state_windows[1:]))

    def apply(self, merge: Merge) -> None:
        """Make a planned change."""
        for session in merge.merged:
            del self._state_windows[session]
        self._state_windows[merge.result] = merge.state_window

    def retire(self, session: TimeWindow) -> None:
        """Forget a session that was cleaned up."""
        del self._state_windows[session]

    def validate(self) -> None:
        sessions = sorted(self._state_windows)
        assert all(one.end < later.start for one, later in pairwise(sessions)), sessions
        assert len(set(self._state_windows.values())) == len(sessions), self._state_windows

    def fingerprint(self) -> object:
        return tuple(self.to_stored())
