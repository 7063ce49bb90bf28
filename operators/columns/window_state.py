"""Where the windows of columns are at a snapshot: reducing state, one number per key, the namespace is the window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from engine.elements.columns import Column
from operators.columns.open_windows import plain
from state_backends.api import KeyedStateBackend
from state_backends.base import ReducingStateDescriptor, np
from state_backends.columns import KeyColumn

StoredWindows = dict[int, tuple[list[Any], list[Any]]]
"""By the start of a window: its keys and numbers."""


class WindowState(Protocol):
    """One number for each key and window. The heap has it in columns (``HeapWindowColumns``)."""

    def load(self) -> StoredWindows:
        """For each window in the state its keys and numbers."""

    def store(self, windows: Mapping[int, tuple[KeyColumn, Column]]) -> None:
        """The state has these windows and no others. The arrays do not change any more, and the keys of a window that
        was stored before are the first ones."""


class WindowRows:
    """The same on any backend: an entry for each key and window. Only what has changed is written."""

    def __init__(self, backend: KeyedStateBackend, descriptor: ReducingStateDescriptor, starts: Sequence[int]) -> None:
        """``starts``: of the windows that the state may have."""
        self._backend, self._name, self._starts = backend, descriptor.name, starts
        self._state = backend.reducing_state(descriptor)
        self._stored: dict[int, tuple[KeyColumn, Column]] = {}

    def load(self) -> StoredWindows:
        found: StoredWindows = {}
        for start in self._starts:
            keys = self._backend.keys(self._name, start)
            if keys:
                found[start] = keys, self._state.get_many(keys, [start] * len(keys))
                self._stored[start] = keys, np.array(found[start][1])
        return found

    def store(self, windows: Mapping[int, tuple[KeyColumn, Column]]) -> None:
        for start in [one for one in self._stored if one not in windows]:
            keys = plain(self._stored.pop(start)[0])
            self._state.clear_many(keys, [start] * len(keys))
        for start, (keys, values) in windows.items():
            changed = np.ones(len(values), dtype=np.bool_)
            if start in self._stored:
                before = self._stored[start][1]
                # By their bits: a sum may change from -0.0 to 0.0.
                changed[: len(before)] = values[: len(before)].view(np.int64) != before.view(np.int64)
            at = np.flatnonzero(changed)
            some = [plain(keys)[one] for one in at.tolist()]
            self._state.store_many(some, [start] * len(some), values[at].tolist())
            self._stored[start] = keys, values
