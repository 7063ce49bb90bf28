"""Record acking as a mode of a run: no barriers, and no snapshot is ever asked for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from engine.checkpoint.barriers import AlignedBarrierHandler, BarrierHandler, InputCapture
from engine.elements.events import CheckpointOptions


@dataclass(frozen=True, slots=True)
class RecordAcking:
    """At-least-once for records, nothing for state: sources send again what was not acknowledged (Storm)."""

    checkpoints_after_tasks_finish: bool = True
    name = "acking"
    takes_checkpoints = False
    consistent_cut = False
    stores_channel_state = False
    tracks_records = True

    def options(self) -> CheckpointOptions:
        """Never asked for by a coordinator."""
        return CheckpointOptions()

    def barrier_handler(self, channels: int, capture: InputCapture, back_edges: Collection[int] = ()) -> BarrierHandler:
        """A handler that will only ever see the ends of its channels."""
        return AlignedBarrierHandler(channels, self.checkpoints_after_tasks_finish)
