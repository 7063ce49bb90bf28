"""Keyed state, timers and contexts of the evaluator: dicts and lists (docs/state.md).

State returns a copy of a value that can be changed in place, as on every backend but the heap.
"""

from __future__ import annotations

import copy
from bisect import insort
from collections.abc import Callable, Iterable
from typing import Any

from engine.explore.opinion.elements import EvaluatedStep, NotModelled
from state_backends.codec import default_codec

_PLAIN = (int, str, bytes, bool, float, type(None))
_encode = default_codec().encode


def by_encoding(value: Any) -> bytes:
    """A sort key for values without an order of their own: keys, and entries of maps."""
    return _encode(value, "key")


def copied(value: Any) -> Any:
    """The value, or a copy of one that could be changed in place."""
    return value if isinstance(value, _PLAIN) else copy.deepcopy(value)


class Cells:
    """All keyed state of a step. ``key``: the current one; ``scope``: the current window, ``None`` = no window."""

    def __init__(self) -> None:
        self.key: Any = None
        self.scope: Any = None
        self.cells: dict[tuple[str, Any], dict[Any, Any]] = {}
        """By name and scope, by key."""

    def named(self, name: str, scope: Any = None) -> dict[Any, Any]:
        """The cells of a state, by key."""
        return self.cells.setdefault((name, scope), {})


class _State:
    def __init__(self, cells: Cells, name: str, scope: Any = None) -> None:
        self._all, self.name, self._scope = cells, name, scope

    def _cell(self) -> dict[Any, Any]:
        if self._all.key is None:
            raise RuntimeError(f"keyed state {self.name!r} was used without a current key")
        return self._all.named(self.name, self._scope)

    def _read(self, default: Any = None) -> Any:
        cell = self._cell()
        return copied(cell.get(self._all.key, default))

    def _write(self, value: Any) -> None:
        """Empty state does not exist: ``None``, an empty list and an empty map remove the entry."""
        cell = self._cell()
        if value is None or (isinstance(value, list | dict) and not value and type(self) is not ValueCell):
            cell.pop(self._all.key, None)
        else:
            cell[self._all.key] = copied(value)

    def clear(self) -> None:
        self._cell().pop(self._all.key, None)


class ValueCell(_State):
    """Value state."""

    def __init__(self, cells: Cells, name: str, scope: Any = None, default: Any = None) -> None:
        super().__init__(cells, name, scope)
        self._default = default

    def get(self) -> Any:
        """The value, or the default."""
        return self._read(self._default)

    def update(self, value: Any) -> None:
        self._write(value)


class ListCell(_State):
    """List state; a missing list reads as ``None``."""

    def get(self) -> list[Any] | None:
        found: list[Any] | None = self._read()
        return found

    def add(self, element: Any) -> None:
        self._write([*(self._read() or ()), element])

    def add_all(self, elements: Iterable[Any]) -> None:
        self._write([*(self._read() or ()), *elements])

    def update(self, elements: Iterable[Any]) -> None:
        self._write(list(elements))

    def join(self, first: Any, second: Any) -> Any:
        """Of two windows that were merged."""
        return [*first, *second]


class ReducingCell(_State):
    """Reducing state."""

    def __init__(self, cells: Cells, name: str, scope: Any, reduce: Callable[[Any, Any], Any]) -> None:
        super().__init__(cells, name, scope)
        self.join = reduce

    def get(self) -> Any:
        """The reduction, ``None`` before the first value."""
        return self._read()

    def add(self, value: Any) -> None:
        """The first value unchanged, further ones combined by the function."""
        before = self._read()
        self._write(value if before is None else self.join(before, value))


class MapCell(_State):
    """Map state; entries come in the order of their encoded keys."""

    def get(self, map_key: Any) -> Any:
        return (self._read() or {}).get(map_key)

    def contains(self, map_key: Any) -> bool:
        return map_key in (self._read() or {})

    def put(self, map_key: Any, value: Any) -> None:
        self._write({**(self._read() or {}), map_key: value})

    def put_all(self, entries: dict[Any, Any]) -> None:
        self._write({**(self._read() or {}), **entries})

    def remove(self, map_key: Any) -> None:
        left = self._read() or {}
        left.pop(map_key, None)
        self._write(left)

    def entries(self) -> list[tuple[Any, Any]]:
        return sorted((self._read() or {}).items(), key=lambda entry: by_encoding(entry[0]))

    def keys(self) -> list[Any]:
        return [key for key, _ in self.entries()]

    def values(self) -> list[Any]:
        return [value for _, value in self.entries()]

    def is_empty(self) -> bool:
        return not self._read()


class CellStates:
    """The states of the current key by name, as user functions request them. ``prefix`` separates the names of triggers
    from those of window functions; ``scoped``: whether a state belongs to the current window."""

    def __init__(self, cells: Cells, prefix: str = "", *, scoped: bool = False) -> None:
        self._cells, self._prefix, self._scoped = cells, prefix, scoped

    def value_state(self, name: str, default: Any = None, *, ttl: Any = None) -> ValueCell:
        return ValueCell(*self._where(name, ttl), default)

    def list_state(self, name: str, *, ttl: Any = None) -> ListCell:
        return ListCell(*self._where(name, ttl))

    def reducing_state(self, name: str, reduce: Callable[[Any, Any], Any], *, ttl: Any = None) -> ReducingCell:
        return ReducingCell(*self._where(name, ttl), reduce)

    def map_state(self, name: str, *, ttl: Any = None) -> MapCell:
        return MapCell(*self._where(name, ttl))

    def _where(self, name: str, ttl: Any) -> tuple[Cells, str, Any]:
        if ttl is not None:
            raise NotModelled(f"state {name!r} expires by the virtual clock, which depends on costs and schedules")
        return self._cells, self._prefix + name, self._cells.scope if self._scoped else None


class Timers:
    """Event-time timers: a set of ``(time, key, window)``. Due timers fire by time, then by encoded key."""

    def __init__(self) -> None:
        self._timers: list[tuple[int, bytes, Any, Any]] = []

    def add(self, time_ms: int, key: Any, scope: Any = ()) -> None:
        """Setting a timer twice is setting it once."""
        timer = (time_ms, by_encoding(key), scope, key)
        if timer not in self._timers:
            insort(self._timers, timer, key=lambda one: one[:3])

    def remove(self, time_ms: int, key: Any, scope: Any = ()) -> None:
        """Removing an unknown timer is no error."""
        timer = (time_ms, by_encoding(key), scope, key)
        if timer in self._timers:
            self._timers.remove(timer)

    def next_due(self, watermark_ms: int) -> tuple[int, Any, Any] | None:
        """Remove and return the next timer that the watermark has reached. One at a time: it may set further timers."""
        if not self._timers or self._timers[0][0] > watermark_ms:
            return None
        time_ms, _, scope, key = self._timers.pop(0)
        return time_ms, key, scope


class Context(CellStates):
    """The context of a process function: the contexts of docs/state.md and docs/two-inputs.md in one."""

    def __init__(self, step: EvaluatedStep, cells: Cells, timers: Timers) -> None:
        super().__init__(cells)
        self._step, self._timers = step, timers
        self.timestamp_ms: int | None = None
        self.time_domain = "event"

    @property
    def current_key(self) -> Any:
        return self._cells.key

    @property
    def current_watermark_ms(self) -> int:
        return self._step.watermark_ms

    def processing_time_ms(self) -> int:
        raise NotModelled("it asks for the virtual clock, which depends on costs and schedules")

    def side_output(self, tag: str, value: Any) -> None:
        """With the timestamp of the current record or timer."""
        self._step.emit(value, self.timestamp_ms, tag)

    def register_event_time_timer(self, time_ms: int) -> None:
        self._timers.add(time_ms, self._cells.key)

    def delete_event_time_timer(self, time_ms: int) -> None:
        self._timers.remove(time_ms, self._cells.key)

    def register_processing_time_timer(self, time_ms: int) -> None:
        raise NotModelled("it sets a timer of the virtual clock, which depends on costs and schedules")

    delete_processing_time_timer = register_processing_time_timer
