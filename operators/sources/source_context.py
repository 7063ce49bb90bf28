"""The connection of a source with its operator: a context, and notifications of completed checkpoints.

Rules (Flink: ``SourceReader.notifyCheckpointComplete``, ``KafkaSourceReader``).

* A listener is notified of a completed checkpoint with the positions that are in *that* checkpoint, not the present
  ones; splits that have ended are among them.
* Notifications may be lost or late. A complete checkpoint also drops the positions of older ones; an older notification
  after a newer one has no effect.
* A restart forgets all positions. The listener is notified of the next checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.elements.batch import Batch
from engine.elements.operator import Operator
from engine.elements.outside_world import OutsideWorld
from engine.elements.source import SourceCheckpointListener
from state_backends.files import FileSystem


class OperatorSourceContext:
    """The interface between the source and its operator."""

    __slots__ = ("_operator", "attempt", "name", "processing_time_ns")

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self.name = operator.context.name
        self.attempt = operator.context.attempt
        self.processing_time_ns = operator.context.processing_time_ns
        """See the contract. Sources that wait for their records ask for it several times for each."""

    @property
    def world(self) -> OutsideWorld | None:
        """See :class:`engine.elements.source.SourceContext`, as for the other methods."""
        return self._operator.context.world

    def file_system(self) -> FileSystem:
        return self._operator.context.file_system()

    def emit_side(self, tag: str, batch: Batch) -> None:
        self._operator.output.emit_side(tag, batch)

    def count(self, name: str, amount: int = 1) -> None:
        self._operator.context.metrics.count(name, amount)

    def report_backlog(self, is_backlog: bool) -> None:
        self._operator.context.report_backlog(is_backlog)


class CompletedPositions:
    """Keeps the positions of checkpoints until they are complete, for the listener of a source."""

    def __init__(self, listener: SourceCheckpointListener) -> None:
        self._listener = listener
        self._waiting: dict[int, dict[str, Any]] = {}

    def note(self, checkpoint_id: int, positions: Iterable[tuple[str, Any]]) -> None:
        """The positions in the snapshot for a checkpoint. Position ``None``: no record of the split has been read."""
        self._waiting[checkpoint_id] = {split: position for split, position in positions if position is not None}

    def completed(self, checkpoint_id: int) -> None:
        """Tell the listener."""
        positions = self._waiting.get(checkpoint_id)
        self._waiting = {number: one for number, one in self._waiting.items() if number > checkpoint_id}
        if positions:
            self._listener.notify_checkpoint_complete(checkpoint_id, positions)

    def aborted(self, checkpoint_id: int) -> None:
        """The checkpoint will never be complete."""
        self._waiting.pop(checkpoint_id, None)

    def close(self) -> None:
        """Release the resources of the listener."""
        self._listener.close()

    def fingerprint(self) -> object:
        return [(number, sorted(positions.items())) for number, positions in sorted(self._waiting.items())]
