"""Mistakes of recovery about records in flight: whose they are now."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine.runtime import restored_channels
from tests.mutants.mutant import replaced


@contextmanager
def in_flight_data_lost_on_downscale() -> Iterator[None]:
    """Records in flight to subtasks that there are no more are nobody's."""
    edge: Any = restored_channels._Edge
    spread = edge.spread

    def losing(self: Any, pieces: Any, *more: Any) -> Any:
        there = {pair: columns for pair, columns in pieces.items() if pair[1] < self._receivers}
        return spread(self, there, *more)

    with replaced(edge, spread=losing):
        yield


@contextmanager
def custom_partitioner_not_asked() -> Iterator[None]:
    """Each new channel takes all records in flight of the old ones that it is given, whoever they were meant for."""
    with replaced(restored_channels, needs_filter=lambda edge, old_receiver: False):
        yield
