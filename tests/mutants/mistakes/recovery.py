"""Mistakes of recovery: the new owners of records in flight, event time, and the part of a log that is needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine.runtime.storage import restored_channels
from operators.time import EventClock
from state_backends.changelog.history import LogHistory
from tests.mutants.mutant import replaced


@contextmanager
def in_flight_data_lost_on_downscale() -> Iterator[None]:
    """Records in flight to subtasks that no longer exist are dropped."""
    edge: Any = restored_channels._Edge
    spread = edge.spread

    def losing(self: Any, pieces: Any, *more: Any) -> Any:
        there = {pair: columns for pair, columns in pieces.items() if pair[1] < self._receivers}
        return spread(self, there, *more)

    with replaced(edge, spread=losing):
        yield


@contextmanager
def custom_partitioner_not_asked() -> Iterator[None]:
    """Each new channel takes all records in flight of its old channels, whichever subtask they were meant for."""
    with replaced(restored_channels, needs_filter=lambda edge, old_receiver: False):
        yield


@contextmanager
def latest_watermark_restored() -> Iterator[None]:
    """Every subtask goes on from the watermark of the one that was furthest."""
    begin = EventClock.__init__

    def hurrying(clock: Any, context: Any) -> None:
        begin(clock, context)
        clock.watermark_ms = max(clock._state.get(), default=clock.watermark_ms)

    with replaced(EventClock, __init__=hurrying):
        yield


@contextmanager
def log_cut_where_the_materialisation_ended() -> Iterator[None]:
    """A materialisation is taken to hold the changes that were made while it was written, too."""
    materialized = LogHistory.materialized

    def cutting(history: Any) -> Any:
        history._running = history._running._replace(upto=history.end)
        return materialized(history)

    with replaced(LogHistory, materialized=cutting):
        yield
