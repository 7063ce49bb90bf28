"""The coordinated protocols: asynchronous barrier snapshots (Carbone et al. 2015), aligned, unaligned, both, neither.

Each gives a task in a loop, some of whose channels lead back to it, a handler of its own: no protocol would ever
complete a checkpoint there otherwise.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from engine.checkpoint.barriers import (
    AlignedBarrierHandler,
    AlternatingBarrierHandler,
    AtLeastOnceTracker,
    BackEdgeBarrierHandler,
    BackEdgeTracker,
    BarrierHandler,
    InputCapture,
)
from engine.elements.events import CheckpointOptions


@dataclass(frozen=True, slots=True)
class AlignedBarriers:
    """Exactly-once: a task blocks each channel at its barrier and snapshots when the last one is there."""

    checkpoints_after_tasks_finish: bool = True
    name = "aligned"
    takes_checkpoints = True
    consistent_cut = True
    stores_channel_state = False
    tracks_records = False

    def options(self) -> CheckpointOptions:
        """Aligned, never turning unaligned."""
        return CheckpointOptions.configured()

    def barrier_handler(self, channels: int, capture: InputCapture, back_edges: Collection[int] = ()) -> BarrierHandler:
        """The aligning handler."""
        if back_edges:
            return BackEdgeBarrierHandler(
                channels, self.checkpoints_after_tasks_finish, capture=capture, back_edges=back_edges
            )
        return AlignedBarrierHandler(channels, self.checkpoints_after_tasks_finish)


@dataclass(frozen=True, slots=True)
class UnalignedBarriers:
    """Exactly-once without waiting: the first barrier takes the snapshot, and the records it has overtaken are part of
    it (Flink: FLIP-76)."""

    checkpoints_after_tasks_finish: bool = True
    name = "unaligned"
    takes_checkpoints = True
    consistent_cut = True
    stores_channel_state = True
    tracks_records = False

    def options(self) -> CheckpointOptions:
        """Unaligned from the start."""
        return CheckpointOptions.configured(unaligned=True)

    def barrier_handler(self, channels: int, capture: InputCapture, back_edges: Collection[int] = ()) -> BarrierHandler:
        """The handler that obeys each barrier's own options: savepoints, for instance, stay aligned."""
        if back_edges:
            return BackEdgeBarrierHandler(
                channels, self.checkpoints_after_tasks_finish, capture=capture, back_edges=back_edges
            )
        return AlternatingBarrierHandler(channels, self.checkpoints_after_tasks_finish, capture=capture)


@dataclass(frozen=True, slots=True)
class AlignedWithTimeoutBarriers:
    """Exactly-once: aligned, but a checkpoint whose barriers are older than the timeout goes on unaligned."""

    checkpoints_after_tasks_finish: bool = True
    aligned_timeout_ns: int = 0
    name = "aligned-timeout"
    takes_checkpoints = True
    consistent_cut = True
    stores_channel_state = True
    tracks_records = False

    def options(self) -> CheckpointOptions:
        """Aligned, turning unaligned at the timeout; without one (0) unaligned at once."""
        return CheckpointOptions.configured(unaligned=True, aligned_timeout_ns=self.aligned_timeout_ns)

    def barrier_handler(self, channels: int, capture: InputCapture, back_edges: Collection[int] = ()) -> BarrierHandler:
        """The handler that may switch."""
        if back_edges:
            return BackEdgeBarrierHandler(
                channels, self.checkpoints_after_tasks_finish, capture=capture, back_edges=back_edges
            )
        return AlternatingBarrierHandler(channels, self.checkpoints_after_tasks_finish, capture=capture)


@dataclass(frozen=True, slots=True)
class AtLeastOnceBarriers:
    """At-least-once: a task counts barriers, blocks nothing, and snapshots when the last one is there.

    Records that overtook the last barrier are in the snapshot and will be sent again after a restore.
    """

    checkpoints_after_tasks_finish: bool = True
    name = "at-least-once"
    takes_checkpoints = True
    consistent_cut = False
    stores_channel_state = False
    tracks_records = False

    def options(self) -> CheckpointOptions:
        """Barriers that block nothing."""
        return CheckpointOptions.configured(exactly_once=False)

    def barrier_handler(self, channels: int, capture: InputCapture, back_edges: Collection[int] = ()) -> BarrierHandler:
        """The counting tracker."""
        if back_edges:
            return BackEdgeTracker(
                channels, self.checkpoints_after_tasks_finish, capture=capture, back_edges=back_edges
            )
        return AtLeastOnceTracker(channels, self.checkpoints_after_tasks_finish)


@dataclass(frozen=True, slots=True)
class NoCheckpoints:
    """No snapshots: a restarted job begins again, and sinks publish at the end of their input."""

    checkpoints_after_tasks_finish: bool = True
    name = "none"
    takes_checkpoints = False
    consistent_cut = True
    stores_channel_state = False
    tracks_records = False

    def options(self) -> CheckpointOptions:
        """Never asked for by a coordinator; plain aligned barriers."""
        return CheckpointOptions()

    def barrier_handler(self, channels: int, capture: InputCapture, back_edges: Collection[int] = ()) -> BarrierHandler:
        """A handler that will only ever see the ends of its channels."""
        return AlignedBarrierHandler(channels, self.checkpoints_after_tasks_finish)
