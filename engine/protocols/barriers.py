"""The protocols: asynchronous barrier snapshots (Carbone et al. 2015), aligned, unaligned, both, neither; and none.

In a loop, where some channels lead back to the task, each protocol with checkpoints gives a handler of its own:
otherwise no checkpoint would ever complete there.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from engine.checkpoint.barriers import (
    AtLeastOnceTracker,
    BackEdgeTracker,
    BarrierHandler,
    InputCapture,
    SingleCheckpointHandler,
)
from engine.elements.events import CheckpointOptions


@dataclass(frozen=True)
class CheckpointProtocol:
    """How the tasks of a job agree on a cut.

    ``name``               its name for ``--mode``;
    ``takes_checkpoints``  whether a coordinator runs at all;
    ``consistent_cut``     whether a completed checkpoint must not hold effects of records after its cut. The cut
                           oracle takes a difference for a violation where this is true, and for a prediction of
                           duplicates where it is not.
    ``stores_channel_state``  whether records in flight may be part of a checkpoint;
    ``tracks_records``     whether each source record is followed instead, and sent again when it is not acknowledged.
    """

    checkpoints_after_tasks_finish: bool = True
    name: ClassVar[str]
    takes_checkpoints: ClassVar[bool] = True
    consistent_cut: ClassVar[bool] = True
    stores_channel_state: ClassVar[bool] = False
    tracks_records: ClassVar[bool] = False

    def options(self) -> CheckpointOptions:
        """The options of a checkpoint's barriers. Without checkpoints no coordinator asks for them."""
        return CheckpointOptions()

    def barrier_handler(
        self, channels: int, capture: InputCapture | None, back_edges: Collection[int] = ()
    ) -> BarrierHandler:
        """The input side of a task with ``channels`` input channels, whose records in flight ``capture`` follows; a
        protocol that stores none, outside loops, needs none. ``back_edges``: those of the channels that lead back to
        the task, in a loop."""
        after_finish = self.checkpoints_after_tasks_finish
        back_edges = back_edges if self.takes_checkpoints else ()
        # It obeys each barrier's own options: savepoints, for instance, stay aligned.
        captured = capture if self.stores_channel_state or back_edges else None
        return SingleCheckpointHandler(channels, after_finish, capture=captured, back_edges=back_edges)


class AlignedBarriers(CheckpointProtocol):
    """Exactly-once: a task blocks each channel at its barrier and snapshots when the last one is there."""

    name = "aligned"

    def options(self) -> CheckpointOptions:
        """Aligned, never turning unaligned."""
        return CheckpointOptions.configured()


class UnalignedBarriers(CheckpointProtocol):
    """Exactly-once without waiting: the first barrier takes the snapshot, and the records it has overtaken are part of
    it (Flink: FLIP-76)."""

    name = "unaligned"
    stores_channel_state = True

    def options(self) -> CheckpointOptions:
        """Unaligned from the start."""
        return CheckpointOptions.configured(unaligned=True)


@dataclass(frozen=True)
class AlignedWithTimeoutBarriers(CheckpointProtocol):
    """Exactly-once: aligned, but a checkpoint whose barriers are older than the timeout goes on unaligned."""

    aligned_timeout_ns: int = 0
    name = "aligned-timeout"
    stores_channel_state = True

    def options(self) -> CheckpointOptions:
        """Aligned, turning unaligned at the timeout; without one (0) unaligned at once."""
        return CheckpointOptions.configured(unaligned=True, aligned_timeout_ns=self.aligned_timeout_ns)


class AtLeastOnceBarriers(CheckpointProtocol):
    """At-least-once: a task counts barriers, blocks no channel, and snapshots when the last one is there.

    Records that overtook the last barrier are in the snapshot and will be sent again after a restore.
    """

    name = "at-least-once"
    consistent_cut = False

    def options(self) -> CheckpointOptions:
        """Barriers that block no channel."""
        return CheckpointOptions.configured(exactly_once=False)

    def barrier_handler(
        self, channels: int, capture: InputCapture | None, back_edges: Collection[int] = ()
    ) -> BarrierHandler:
        """The counting tracker."""
        after_finish = self.checkpoints_after_tasks_finish
        if back_edges:
            assert capture is not None, "back edges are captured"
            return BackEdgeTracker(channels, after_finish, capture=capture, back_edges=back_edges)
        return AtLeastOnceTracker(channels, after_finish)


class RecordAcking(CheckpointProtocol):
    """At-least-once for records, nothing for state: sources send again records that were not acknowledged (Storm)."""

    name = "acking"
    takes_checkpoints = False
    consistent_cut = False
    tracks_records = True


class NoCheckpoints(CheckpointProtocol):
    """No snapshots: a restarted job begins again, and sinks publish at the end of their input."""

    name = "none"
    takes_checkpoints = False
