"""Mistakes of recovery: which checkpoint, whose state, which attempt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine.runtime import restored_channels
from engine.runtime.checkpoint_files import CheckpointFiles
from tests.mutants.mutant import replaced


@contextmanager
def empty_checkpoint_chosen() -> Iterator[None]:
    """A checkpoint that was begun and never completed is the newest one: there is nothing in it."""
    latest = CheckpointFiles.latest

    def newest(files: Any, known: Any = None) -> Any:
        restored, problems = latest(files, known)
        if restored is not None and files.storage.highest_checkpoint_id() > restored.checkpoint_id:
            return None, problems
        return restored, problems

    with replaced(CheckpointFiles, latest=newest):
        yield


@contextmanager
def in_flight_data_lost_on_downscale() -> Iterator[None]:
    """Records in flight to subtasks that there are no more are nobody's."""
    edge: Any = restored_channels._Edge
    spread = edge.spread

    def losing(self: Any, pieces: Any) -> Any:
        there = {pair: columns for pair, columns in pieces.items() if pair[1] < self._receivers}
        return spread(self, there)

    with replaced(edge, spread=losing):
        yield


@contextmanager
def custom_partitioner_not_asked() -> Iterator[None]:
    """Each new channel takes all records in flight of the old ones that it is given, whoever they were meant for."""
    with replaced(restored_channels, needs_filter=lambda edge, old_receiver: False):
        yield
