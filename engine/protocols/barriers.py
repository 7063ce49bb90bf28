"""The coordinated protocols: asynchronous barrier snapshots (Carbone et al. 2015), aligned and not, and none at all."""

from __future__ import annotations

from engine.checkpoint.aligned import AlignedBarrierHandler
from engine.checkpoint.at_least_once import AtLeastOnceTracker
from engine.checkpoint.barrier_handler import BarrierHandler
from engine.elements.events import AlignmentType, CheckpointOptions


class AlignedBarriers:
    """Exactly-once: a task blocks each channel at its barrier and snapshots when the last one is there."""

    name = "aligned"
    takes_checkpoints = True
    consistent_cut = True

    def options(self) -> CheckpointOptions:
        """Aligned, never turning unaligned."""
        return CheckpointOptions(AlignmentType.ALIGNED)

    def barrier_handler(self, channels: int) -> BarrierHandler:
        """The aligning handler."""
        return AlignedBarrierHandler(channels)


class AtLeastOnceBarriers:
    """At-least-once: a task counts barriers, blocks nothing, and snapshots when the last one is there.

    Records that overtook the last barrier are in the snapshot and will be sent again after a restore.
    """

    name = "at-least-once"
    takes_checkpoints = True
    consistent_cut = False

    def options(self) -> CheckpointOptions:
        """Barriers that block nothing."""
        return CheckpointOptions(AlignmentType.AT_LEAST_ONCE)

    def barrier_handler(self, channels: int) -> BarrierHandler:
        """The counting tracker."""
        return AtLeastOnceTracker(channels)


class NoCheckpoints:
    """No snapshots: a restarted job begins again, and sinks publish at the end of their input."""

    name = "none"
    takes_checkpoints = False
    consistent_cut = True

    def options(self) -> CheckpointOptions:
        """Never asked for by a coordinator; plain aligned barriers."""
        return CheckpointOptions()

    def barrier_handler(self, channels: int) -> BarrierHandler:
        """A handler that will only ever see the ends of its channels."""
        return AlignedBarrierHandler(channels)
