"""What invariants hear of a running case: trace events, and changes of files that readers may see.

An invariant that fails is told apart from the task in which it was called.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

from engine.elements.errors import WeirError
from engine.explore.run.file_outputs import NotedFileSystem
from engine.explore.run.invariant import Invariant
from engine.explore.run.job_under_test import World
from engine.observe.trace_events import EVERY_CHANNEL, RECORDS, Receive, Send, TraceEvent
from state_backends.files import FileSystem


class InvariantError(WeirError):
    """An invariant itself is broken: its verdict on the run is worth nothing."""


class InvariantFailed(BaseException):
    """Says the same from within a run. Not an :class:`Exception`, or the engine would take it for a failed task."""


class Dispatcher:
    """One instrument for all invariants: each receives only the kinds of events that it asked for. Other instruments
    receive all, after them."""

    def __init__(self, invariants: Sequence[Invariant], others: Sequence[Callable[[TraceEvent], None]]) -> None:
        self.others = others
        self.by_kind: dict[type[Any], tuple[Callable[[Any], None], ...]] = {}
        heard: list[Container[int]] = []
        for invariant in invariants:
            handlers = invariant.handlers()
            for kind, handler in handlers.items():
                self.by_kind[kind] = (*self.by_kind.get(kind, ()), handler)
            if Send in handlers or Receive in handlers:
                heard.append(invariant.records_of)
        is_shared = all(one is heard[0] for one in heard)
        self._heard = EVERY_CHANNEL if not is_shared else heard[0] if heard else ()
        self.records_of: Container[int] = EVERY_CHANNEL if others else self._heard
        """As an instrument."""
        self._hears_more = self.records_of is not self._heard

    def __call__(self, event: Any) -> None:
        kind = event.__class__
        handlers = self.by_kind.get(kind)
        if handlers is not None:
            is_element = self._hears_more and (kind is Send or kind is Receive)
            if not is_element or event.kind != RECORDS or event.channel in self._heard:
                try:
                    for handler in handlers:
                        handler(event)
                except Exception as error:
                    raise InvariantFailed(f"an invariant failed at {event}: {error!r}") from error
        for other in self.others:
            other(event)


def noted_files(world: World, invariants: Sequence[Invariant]) -> FileSystem:
    """The files of a world; changes are reported to the invariants that need them."""
    told = [one.files_changed for one in invariants if type(one).files_changed != Invariant.files_changed]
    outputs = list(world.file_outputs.values())
    if not told or not outputs:
        return world.files

    def changed(path: str) -> None:
        if any(output.is_visible(path) for output in outputs):
            try:
                for tell in told:
                    tell()
            except Exception as error:
                raise InvariantFailed(f"an invariant failed when {path} had changed: {error!r}") from error

    return NotedFileSystem(world.files, changed)
